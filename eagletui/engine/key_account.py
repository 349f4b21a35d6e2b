"""Compare a run with what the provider's key shows: more than the run can have spent is named.

A key is read first and the books after it: whatever it shows by then, the ledger has committed before.
"""

import time
from dataclasses import dataclass
from typing import Final, NamedTuple

from eagletui.core.money import PICO, Books, format_usd
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.ledger.snapshot import KEY_USAGE
from eagletui.providers.base import Provider, ProviderFailure

TOLERATED_PICO: Final = PICO // 4
TOLERATED_PART: Final = 100
"""A key that shows a quarter dollar, or a hundredth, more than is committed may round or lag; more is named at once."""
ROUNDED_PICO: Final = 1_000_000
"""At rest a key may show a millionth of a dollar more: it adds up numbers that were rounded one by one."""


class KeySeen(NamedTuple):
    """A read of the key."""

    at: float
    """Unix seconds."""
    usage_pico: int


class KeyLook(NamedTuple):
    """What the provider's key shows of a run, beside the run's own books."""

    shown_pico: int
    """Spent with the key since the run began."""
    books: Books

    @property
    def excess_pico(self) -> int:
        """How much more that is than the run has committed."""
        return self.shown_pico - self.books.committed_pico


@dataclass(slots=True)
class KeyAccount:
    """The account of the key in use, as far as it concerns a run."""

    provider: Provider
    ledger: LedgerThread
    usage_at_start_pico: int | None
    """What the key had spent before the run; None: the provider keeps no accounts."""
    seen: KeySeen | None = None
    """What the key showed when it was last read."""
    changes: int = 0
    """How often another key was taken; what was read of an earlier one says nothing about the run's start any more."""

    def take(self, usage_at_start_pico: int) -> None:
        """Look at another key from here on.

        Args:
            usage_at_start_pico: what that key would have shown before the run.
        """
        self.usage_at_start_pico = usage_at_start_pico
        self.changes += 1

    async def usage(self) -> int | None:
        """Read what the key in use has spent; None where it cannot be read, or another was taken meanwhile."""
        changes = self.changes
        try:
            status = await self.provider.key()
        except ProviderFailure:
            return None  # asked again later, like what is not known yet
        if status is None or changes != self.changes:
            return None
        self.seen = KeySeen(time.time(), status.usage_pico_usd)
        return status.usage_pico_usd

    async def look(self) -> KeyLook | None:
        """Read the key, then the books; None where there are no accounts, or they cannot be read."""
        if self.usage_at_start_pico is None:
            return None
        usage_pico = await self.usage()
        if usage_pico is None:
            return None
        books = await self.ledger.do(lambda writer: writer.books())
        return KeyLook(usage_pico - self.usage_at_start_pico, books)

    async def look_at_work(self) -> KeyLook | None:
        """Look while requests are out, and name what is too much; None where there are no accounts."""
        look = await self.look()
        if look is not None and look.excess_pico > max(TOLERATED_PICO, look.books.spent_pico // TOLERATED_PART):
            await self.name_excess(look.excess_pico, look)
        return look

    async def name_excess(self, excess_pico: int, look: KeyLook) -> bool:
        """Open a finding where nothing explains what the key shows, and tell whether that is so."""
        if excess_pico <= ROUNDED_PICO:
            return False
        cap_pico = look.books.cap_pico
        above = f": {format_usd(look.shown_pico)} in all, above the cap {format_usd(cap_pico)}"
        await self.ledger.do(
            lambda writer: writer.finding(
                KEY_USAGE,
                f"The provider's key shows {format_usd(excess_pico)} more than this run can have spent"
                f"{above if look.shown_pico > cap_pico else ''}.",
                affected=1,
                examined=1,
                action="Use a key of its own for each run, or ask the provider about its bill.",
            )
        )
        return True

    async def drop_excess(self) -> None:
        """Close that finding: the key shows what the ledger does."""
        await self.ledger.do(lambda writer: writer.close_finding(KEY_USAGE))
