"""What asking samples again comes to: which ones, what is given up, and what it commits at most."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from eagletui.core.money import Books, format_usd
from eagletui.ledger.reader_spend import SpendReader
from eagletui.ledger.retry_bound import AskedAgain
from eagletui.ledger.rows import SampleRow
from eagletui.tui import figures


class Again(NamedTuple):
    """The samples that can be asked again."""

    failed: list[str]
    """Keys of failed and refused samples: nothing is given up."""
    set_aside: list[str]
    """Keys of quarantined ones, whose answers are given up."""
    paid_pico: int
    """For the answers that are given up."""
    ids: list[int]
    """Of all of them."""

    @classmethod
    def of(cls, rows: Sequence[SampleRow]) -> "Again":
        """Sort samples; those with an answer in use are left out."""
        aside = [row for row in rows if row.state == "quarantined"]
        failed = [row for row in rows if row.state in ("failed", "refused")]
        return cls(
            failed=sorted(row.sample_key for row in failed),
            set_aside=sorted(row.sample_key for row in aside),
            paid_pico=sum(row.cost_pico or 0 for row in aside),
            ids=[row.id for row in (*failed, *aside)],
        )

    @property
    def keys(self) -> list[str]:
        """Of every sample to ask again."""
        return self.failed + self.set_aside

    def lines(self, asked: AskedAgain, books: Books) -> list[str]:
        """Say how many are asked, what that costs at most and what is given up, in numbers."""
        known = asked.samples - asked.unbounded
        lines = [f"{figures.plural(asked.samples, 'sample')} asked again."]
        if known:
            pico = f"({asked.bound_pico:,} picodollars)"
            each = "" if known == 1 else f" {known:,} requests together,"
            most = format_usd(_rounded_up(asked.bound_pico), 6)
            lines.append(f"At most {most} {pico}:{each} what is reserved before a request is sent.")
        if asked.unbounded:
            lines.append(
                f"{figures.plural(asked.unbounded, 'sample')} had nothing reserved before: their bound is not known"
                " here."
            )
        room = books.cap_pico - books.committed_pico
        lines.append(
            f"The cap of {figures.usd_short(books.cap_pico)} leaves {figures.usd(max(0, room))} for new holds."
        )
        if asked.bound_pico > room:
            lines.append("That is less: some of them wait until others settle, or until the cap is raised.")
        if self.set_aside:
            lines.append(
                f"{figures.plural(len(self.set_aside), 'set-aside answer')} given up: {figures.usd(self.paid_pico)}"
                " was paid, and counts as wasted."
            )
        if asked.later_turns:
            lines.append(f"{figures.plural(asked.later_turns, 'later turn')} that followed them among these.")
        return lines


def _rounded_up(pico: int) -> int:
    """Round to a millionth of a dollar, so that what is shown is never below the bound."""
    return -(-pico // 10**6) * 10**6


def ask_ledger(path: Path, again: Again) -> AskedAgain:
    """Read what asking them again would commit."""
    with SpendReader(path) as reader:
        return reader.would_ask_again(again.ids)
