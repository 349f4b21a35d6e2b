"""Where each sample lies in a numbered training set, so that adding samples later moves nothing across the split.

Rows of the training part come first, those of the validation part last, because speculators validates on the tail. A
sample keeps its part and its place among the samples of that part for as long as the folder lives; new ones come after
the old ones of their part. Which part a sample joins depends on its prompt's key alone: all answers to one prompt lie
on the same side, and nothing else in the set has a say.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from eagletui.core.errors import InputError

Part = Literal["train", "validation"]

VALIDATION_PERCENT: Final = 10.0
"""Share of prompts to validate on where nothing else is asked: what speculators holds out."""

USUAL_FACTOR: Final = 2.0
"""A set that holds out less than the asked share divided by this, or more than the asked share times it, is unusual."""

_SUFFIX: Final = re.compile(r"(\.a\d+)?(\.t\d+)?\Z")


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """One sample of a numbered set; its number is its place in the list."""

    sample_key: str
    part: Part
    since: int
    """Which export of the folder brought it in, from 1."""


def joins_validation(sample_key: str, percent: float) -> bool:
    """Tell whether a sample is one to validate on.

    Args:
        sample_key: the ledger's; suffixes for answer and turn do not count.
        percent: share of prompts to validate on, 0 to 100.
    """
    digest = hashlib.sha256(_prompt_key(sample_key).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8]) < percent / 100 * 2**64


def _prompt_key(sample_key: str) -> str:
    return _SUFFIX.sub("", sample_key) or sample_key


def split_text(rows: int, held_out: int) -> str:
    """Say how many rows are on each side, and what share that really is."""
    return f"{rows - held_out:,} to train on, {held_out:,} to validate on ({_share(rows, held_out):.1f} %)"


def unusual_split(rows: int, held_out: int, percent: float) -> str | None:
    """Say that a set holds out far more or less than was asked, as small sets may; None where it does not.

    Args:
        rows: of the set, at least one; of a single one there is no split.
        held_out: of those, to validate on.
        percent: what was asked.
    """
    share = _share(rows, held_out)
    if rows < 2 or percent <= 0 or percent / USUAL_FACTOR <= share <= percent * USUAL_FACTOR:
        return None
    return (
        f"{held_out:,} of {rows:,} rows, {share:.1f} %, are to validate on, and {percent:g} % were asked: each "
        "prompt's side follows from its key alone, so that later exports move no row across, and a small set may lie "
        "off. More prompts even it out; nothing is wrong with the rows."
    )


def one_sided(rows: int, held_out: int, run: str, *, computed: bool) -> str | None:
    """Say what to do about a set that speculators refuses, for one of its sides has no rows; None where both have.

    Args:
        rows: of the set, at least one.
        held_out: of those, to validate on.
        run: name of the run.
        computed: rows have features.
    """
    if 0 < held_out < rows:
        return None
    what = "of one row" if rows == 1 else "of rows to validate on alone" if held_out else "without rows to validate on"
    extract = f"eagletui extract {run}, " if computed else ""
    return (
        f"speculators refuses a set {what}: no command trains on this one. Add prompts with eagletui add {run} "
        f"PROMPTS, then eagletui run with its config, {extract}and the same export again: rows that are there stay on "
        "their side, and a new one fills the other."
    )


def _share(rows: int, held_out: int) -> float:
    return 100.0 * held_out / rows


def place_rows(
    earlier: Sequence[PlacedRow], sample_keys: Iterable[str], validation_percent: float, *, remove_gone: bool = False
) -> tuple[PlacedRow, ...]:
    """Number the samples of an export.

    Args:
        earlier: rows of the folder's last export; empty for a new folder.
        sample_keys: what the set holds now, in ledger order.
        validation_percent: share of prompts to validate on; 0 for none.
        remove_gone: leave samples out that are not in the set any more; those behind them get lower numbers and stay in
            their part.

    Raises:
        InputError: samples of the earlier export are gone, and nobody said to leave them out.
    """
    keys = list(dict.fromkeys(sample_keys))
    present = set(keys)
    gone = [row.sample_key for row in earlier if row.sample_key not in present]
    if gone and not remove_gone:
        raise InputError(
            f"{len(gone)} of the {len(earlier)} samples exported before, {gone[0]} among them, are not in the training "
            "set any more: quarantined, doubted since, or without features over the ids that they have now. Extract "
            "again if features are missing. --remove-gone takes them out: rows behind them get lower numbers and their "
            "files other names, nothing is written anew. No training may read the folder meanwhile."
        )
    earlier = [row for row in earlier if row.sample_key in present]
    known = {row.sample_key for row in earlier}
    now = 1 + max((row.since for row in earlier), default=0)
    added = [
        PlacedRow(key, "validation" if joins_validation(key, validation_percent) else "train", now)
        for key in keys
        if key not in known
    ]
    if validation_percent > 0:
        added = _with_both_parts(earlier, added)
    rows = [*earlier, *added]
    return tuple(sorted(rows, key=lambda row: row.part == "validation"))


def _with_both_parts(earlier: Sequence[PlacedRow], added: list[PlacedRow]) -> list[PlacedRow]:
    """Fill the empty part of a small set with rows that are new: a trainer refuses a split without rows.

    They are the answers to the last new prompt; where there is one prompt alone, the last of its answers.
    """
    parts = {row.part for row in (*earlier, *added)}
    if not added or len(earlier) + len(added) < 2 or len(parts) == 2:
        return added
    other: Part = "validation" if parts == {"train"} else "train"
    settled = {_prompt_key(row.sample_key) for row in earlier}
    prompts = list(dict.fromkeys(_prompt_key(row.sample_key) for row in added))
    new = [prompt for prompt in prompts if prompt not in settled]
    moved = {added[-1].sample_key}
    if new and len(settled | set(prompts)) > 1:
        moved = {row.sample_key for row in added if _prompt_key(row.sample_key) == new[-1]}
    return [replace(row, part=other) if row.sample_key in moved else row for row in added]
