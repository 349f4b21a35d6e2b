"""Take another API key, while the engine lives or between two engines: the cross-check begins anew with it."""

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from eagletui.config.run_config import RunConfig
from eagletui.core.errors import ConfigError, ProviderError
from eagletui.core.money import format_usd
from eagletui.engine.connect import connect
from eagletui.engine.fleet import Fleet
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.settle import Settler
from eagletui.files.replacement import replace_text
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import KeyStatus, Provider
from eagletui.runs.folder import RunFolder


@dataclass(slots=True)
class Rekey:
    """Knows the key in use and hands on another one."""

    config: RunConfig
    provider: Provider
    folder: RunFolder
    fleet: Fleet
    settler: Settler
    ledger: LedgerThread
    is_busy: Callable[[], bool]
    """A request is under way, or its end is not in the ledger yet."""

    async def read_again(self) -> str:
        """Read the key again and use it where it is another one. Call while nothing can be sent.

        Returns:
            One sentence about what came of it.

        Raises:
            ConfigError: the key cannot be read or does not work, or the old one is still being spent from; the old one
                stays in use.
            LedgerError: nothing was written; the old one stays in use.
        """
        section = self.config.provider
        if section.api_key_file is None and section.api_key_command is None:
            return (
                "The key is the same: a running engine does not see another environment. To give another key, end the "
                "engine with SIGTERM and `eagletui run RUN`, or let api_key_file or api_key_command give it."
            )
        key = (await asyncio.to_thread(self.config.secret)).reveal()
        if key == self.fleet.key:
            return "The key is the same as before."
        status = await self._status_of(key)
        if self.is_busy():
            raise ConfigError(
                "Requests with the old key are still under way, and what they cost is told by that key alone. Resume "
                "once nothing is in flight."
            )
        if status is not None:
            await self._rebase(status)
        self.provider.use_key(key)
        self.fleet.use_key(key)
        try:
            remember_key(self.folder, key)
        except OSError as error:
            # The next engine takes it for another key once more, which costs it no more than what is open then.
            return f"Another key is used from here on; its mark could not be written: {error.strerror}."
        return "Another key is used from here on."

    async def begin(self, status: KeyStatus) -> None:
        """Go over to the key that this engine was started with, where the engine before it used another one.

        Call once the replies that the other engine left are filed: what they cost is known, and was paid with its key.

        Args:
            status: of this engine's key, before anything was bought with it.
        """
        if self.settler.key.changes == 0:  # else a person was sooner, with a third key
            await self._rebase(status)
            remember_key(self.folder, self.fleet.key)

    async def _rebase(self, status: KeyStatus) -> None:
        async with self.settler.booking:  # a sum that is being booked is of the old key
            self.settler.take_key(*await self.ledger.do(partial(rebase, status), urgent=True))

    async def _status_of(self, key: str) -> KeyStatus | None:
        """Ask what a key has spent, with a client of its own: the one at work keeps the key that its answers are of."""
        client = connect(self.config, self.folder, key)
        try:
            return await client.key()
        except ProviderError as error:
            raise ConfigError(f"The other key does not work: {error}") from error
        finally:
            await client.aclose()


def is_other_key(folder: RunFolder, key: str) -> bool:
    """Tell whether a run's last engine used another key; what cannot be read tells nothing."""
    try:
        salt, _, mark = _path(folder).read_text(encoding="ascii").partition(":")
        return bool(mark) and mark != _mark(bytes.fromhex(salt), key)
    except (OSError, ValueError):
        return False


def remember_key(folder: RunFolder, key: str) -> None:
    """Keep a mark from which the key cannot be told, but whether it is the same one can, wherever the folder lies.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    salt = secrets.token_bytes(hashlib.blake2b.SALT_SIZE)
    replace_text(_path(folder), f"{salt.hex()}:{_mark(salt, key)}")


def _path(folder: RunFolder) -> Path:
    return folder.path / "key.mark"


def _mark(salt: bytes, key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=8, person=b"eagletui", salt=salt).hexdigest()


def rebase(status: KeyStatus, writer: LedgerWriter) -> tuple[int, list[int]]:
    """Begin the cross-check anew with another key: what the run has spent so far was spent with the old one.

    The new key will never show what open attempts cost, so their bounds are booked as spent. A cost that becomes known
    later moves from that sum to its attempt.

    Returns:
        What the key would have shown before the run, had the run used it from its start, and the attempts booked.
    """
    with writer.transaction(durable=True):
        writer.event("info", "engine", "key", "Another API key is used from here on.")
        held = writer.open_attempts()
        ids = [attempt.id for attempt in held]
        if held:
            bounds_pico = sum(attempt.hold_pico for attempt in held)
            detail = (
                f"{len(held)} attempts had no known cost when the key was changed, and the new key cannot show it: "
                f"their bounds, {format_usd(bounds_pico)}, are booked as spent."
            )
            writer.adjust_unattributed(bounds_pico, ids, detail)
        usage_pico = status.usage_pico_usd - writer.books().spent_pico
        writer.set_key_usage_at_start(usage_pico, anew=True)
    return usage_pico, ids
