"""Know before the first forward whether features will fit on the disk, and what would."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eagletui.core.disk_outlook import TELLING_SAMPLES
from eagletui.core.errors import InputError
from eagletui.core.features import SIZE_MARGIN, Stored, folder_bytes, row_bytes
from eagletui.core.quantization import differing
from eagletui.core.reports import Report
from eagletui.extract.engines import Order
from eagletui.extract.space import DiskSpace, size_text
from eagletui.ledger.snapshot import Snapshot
from eagletui.models.facts import stored_dtype
from eagletui.models.identity import stored_hidden_size, weight_files

_TO_COME: Final = ("queued", "in_flight", "answered")


@dataclass(frozen=True, slots=True)
class Need:
    """What is to be computed, and what it takes on the disk."""

    samples: int
    tokens: int
    hidden_size: int
    stored: Stored
    present_tokens: int = 0
    """Of samples that have features already: a token budget counts them, and their type binds the others."""

    @property
    def bytes(self) -> int:
        """On the disk, headers included."""
        return folder_bytes(self.tokens, self.hidden_size, self.stored)


def require_room(space: DiskSpace, need: Need, elsewhere: str) -> None:
    """Check before the first forward that everything will fit.

    Args:
        space: the disk.
        need: what is to be computed.
        elsewhere: how to name a larger disk, the end of a sentence.

    Raises:
        InputError: it will not; figures, and what would fit, are named.
    """
    free = max(0, space.free_bytes())
    if need.bytes <= free:
        return
    per_token = row_bytes(need.hidden_size, need.stored)
    raise InputError(
        f"Features of {need.samples:,} samples, {need.tokens:,} tokens at {per_token:,} bytes each in {need.stored}, "
        f"need {size_text(need.bytes)}; {space.folder} has {size_text(free)} to give "
        f"({size_text(space.low_water_bytes)} stay free). What there is: {'; '.join(_ways_out(need, free))}; "
        f"{elsewhere}. Nothing was written."
    )


def _ways_out(need: Need, free: int) -> list[str]:
    ways = []
    if need.stored != "fp8" and not need.present_tokens:
        smaller = folder_bytes(need.tokens, need.hidden_size, "fp8")
        fits = "which fits" if smaller <= free else "which does not fit either"
        ways.append(f"--dtype fp8 needs {size_text(smaller)}, {fits}")
    tokens = int(free / SIZE_MARGIN) // row_bytes(need.hidden_size, need.stored)
    if tokens * need.samples >= need.tokens:  # at least one sample of the usual length
        ways.append(
            f"--token-budget {need.present_tokens + tokens} takes a subset with every data set and length in its share "
            f"({tokens / need.tokens:.0%} of the tokens{' that wait' if need.present_tokens else ''})"
        )
    return ways or ["free some space"]


def foresee(order: Order, samples: int, tokens: int, present_tokens: int = 0) -> Need | None:
    """Work the need out before the model is loaded; None where its files do not say enough.

    Raises:
        ModelError: there is no model.
    """
    weight_files(order.model)
    hidden_size = stored_hidden_size(order.model)
    if hidden_size is None:
        return None
    stored: Stored | None = None if order.dtype == "auto" else order.dtype
    if stored is None and order.model.is_dir():
        stored = stored_dtype(order.model)
    return None if stored is None else Need(samples, tokens, hidden_size, stored, present_tokens)


def short_of(space: DiskSpace, known: Need, snapshot: Snapshot, max_tokens: int) -> str | None:
    """Say where the features of a run that goes on will hardly fit; None where they will.

    Args:
        space: the disk.
        known: of the samples that wait now.
        snapshot: of the run.
        max_tokens: of one answer, taken as its length until the first answers tell better.
    """
    to_come = sum(snapshot.states[state] for state in _TO_COME)
    answered = snapshot.states["tokenized"]
    is_told = answered >= TELLING_SAMPLES
    each = (snapshot.tokens.prompt + snapshot.tokens.output) / answered if is_told else max_tokens
    tokens = known.tokens + round(to_come * each)
    need = Need(known.samples + to_come, tokens, known.hidden_size, known.stored)
    free = max(0, space.free_bytes())
    if need.bytes <= free:
        return None
    basis = f"at {each:,.0f} tokens each, as so far" if is_told else f"if each answer had {max_tokens:,} tokens"
    return (
        f"Features of {need.samples:,} samples will need {size_text(need.bytes)} {basis}, and {space.folder} has "
        f"{size_text(free)} to give. Extraction pauses when the disk is full; dtype fp8 takes half, and after the run "
        "extract --token-budget takes a subset."
    )


def warn_of_other_weights(served: dict[str, str | None], extraction: str | None, model: Path, report: Report) -> None:
    """Say where answers were sampled from other weights than features are computed with.

    Args:
        served: the quantization that each endpoint states.
        extraction: how the checkpoint is stored; None: plain floating point.
        model: the checkpoint.
        report: takes the warning.
    """
    others = differing(served, extraction)
    if others:
        named = ", ".join(f"{tag} ({name})" for tag, name in sorted(others.items()))
        report(
            "warn",
            "quantization_differs",
            f"Answers came from {named}, and {model.name} is stored as {extraction or 'plain floating point'}: its "
            "states are not those that the answers were sampled from. The manifest has both.",
        )
