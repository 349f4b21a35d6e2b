"""Compare stored features with the model itself: a fresh forward, and the head over the stored last stream."""

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self

import torch

from eagletui.core.features import AUX_LAYERS, SLOTS, DType
from eagletui.extract import widened
from eagletui.extract.capture import TOLERANCE, Capture
from eagletui.extract.shards import Record
from eagletui.models.spread import device_of

FP8_TOLERANCE: Final = 4e-2
"""Median relative error of rows in fp8: rounding to eight bits gives 0.025 (SmolLM2-135M), on top of the kernels'."""

FP8_ROW_TOLERANCE: Final = 0.5

AGREEMENT: Final = 0.98
"""Share of rows whose most likely next token must be the same from stored and from fresh states."""

FP8_AGREEMENT: Final = 0.9
"""The same in fp8, where rounding alone changes 3 % of them (SmolLM2-135M)."""

ROW_TOLERANCE: Final[dict[DType, float]] = {"float32": 1e-2, "bfloat16": 0.5, "float16": 0.5}
"""Relative error of one row that no rounding explains. A changed id or a shifted layer gives about 1; a mixture of
experts in low precision sends single tokens to another expert, at about 0.1."""

LastNorm = Literal["pre", "post"]
"""Whether the last slot is before or after the final norm. Our shards are `pre`, SpecForge's files `post`."""

_NAMES: Final = ("low", "middle", "high", "last")
_LAST: Final[dict[LastNorm, str]] = {
    "pre": "the last layer's output before the final norm",
    "post": "the output of the final norm",
}


class Limits(NamedTuple):
    """What rounding explains."""

    median: float
    """Relative error of a row, median over the rows of one stream."""
    row: float
    """Of any one row."""
    agreement: float
    """Share of rows with the same most likely next token."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One stored sample against a fresh forward."""

    key: str
    rows: int
    median_error: float
    """Relative error of a row, median over rows and streams."""
    worst_error: float
    agreeing: int
    """Rows whose most likely next token is the same from the stored last stream and from the fresh one."""
    top1: int
    """Sampled tokens that the stored last stream finds most likely."""
    sampled: int
    """Sampled tokens that have a row before them."""
    fault: str | None
    """What is wrong, one sentence; None if nothing is."""
    limits: "Limits"
    """What was asked for."""


def compare(capture: Capture, record: Record, last: LastNorm = "pre", *, was_fp8: bool = False) -> Comparison:
    """Run the model over a stored sample's ids and compare every stream.

    Args:
        capture: the hooked model.
        record: one stored sample of finite states, in the model's dtype or a shorter one.
        last: what its last slot is meant to be.
        was_fp8: its states were rounded to eight bits before.
    """
    with _Places(capture, record.hidden_states) as places:
        fresh = capture.alone(record.token_ids)
    if last == "post":
        fresh[:, AUX_LAYERS] = _normed(capture, fresh[:, AUX_LAYERS])
    errors = _row_errors(record.hidden_states, fresh)
    stored_next = next_tokens(capture, record.hidden_states[:, AUX_LAYERS], last)
    fresh_next = next_tokens(capture, fresh[:, AUX_LAYERS], last)
    agreeing = int((stored_next == fresh_next).sum())
    sampled = record.loss_mask[1:].bool()
    top1 = int((stored_next[:-1][sampled] == record.token_ids[1:][sampled]).sum())
    limits = _limits(capture, record, was_fp8)
    return Comparison(
        record.key,
        len(record.token_ids),
        float(errors.median()),
        float(errors.max()),
        agreeing,
        top1,
        int(sampled.sum()),
        _find_fault(capture, errors, places, last, limits),
        limits,
    )


def next_tokens(capture: Capture, stream: torch.Tensor, last: LastNorm = "pre") -> torch.Tensor:
    """Return the most likely next token of each row.

    Args:
        capture: the model.
        stream: the last layer's output, [T, H], on the CPU.
        last: on which side of the final norm it was taken.

    Returns:
        int64 [T], on the CPU.
    """
    target = capture.target
    device = device_of(target.head)
    normed = _normed(capture, stream) if last == "pre" else stream
    with torch.inference_mode(), widened.products(wanted=capture.widens):
        logits = target.head(normed[None].to(device, getattr(torch, target.dtype)))
    ids: torch.Tensor = logits[0].argmax(dim=-1).cpu()
    return ids


def _normed(capture: Capture, stream: torch.Tensor) -> torch.Tensor:
    """Apply the model's final norm to [T, H] on the CPU."""
    target = capture.target
    device = device_of(target.norm)
    with torch.inference_mode():
        normed: torch.Tensor = target.norm(stream[None].to(device, getattr(torch, target.dtype)))
    return normed[0].cpu()


def _limits(capture: Capture, record: Record, was_fp8: bool) -> Limits:
    """Return what rounding explains: of the computation, or of the shorter type that the states are stored in."""
    if was_fp8:
        return Limits(FP8_TOLERANCE, FP8_ROW_TOLERANCE, FP8_AGREEMENT)
    dtypes = (capture.target.dtype, str(record.hidden_states.dtype).removeprefix("torch."))
    median, row = (
        max(limit for dtype, limit in limits.items() if dtype in dtypes) for limits in (TOLERANCE, ROW_TOLERANCE)
    )
    return Limits(median, row, AGREEMENT)


def _row_errors(stored: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    """Return |stored - fresh| / |fresh| per row and stream, float32 [T, 4]."""
    scale = torch.linalg.vector_norm(fresh.float(), dim=-1).clamp_min(1e-30)
    return torch.linalg.vector_norm(stored.float() - fresh.float(), dim=-1) / scale


def _find_fault(
    capture: Capture, errors: torch.Tensor, places: "_Places", last: LastNorm, limits: Limits
) -> str | None:
    """Say what is wrong with a sample, slot by slot: one wrong stream of four is as bad as four.

    A neighbouring layer may be nearer than rounding, so each stream must also fit its own place best of all.
    """
    own = errors.median(dim=0).values.tolist()
    said: list[str] = []
    unknown: list[str] = []
    for slot in range(SLOTS):
        expected = _LAST[last] if slot == AUX_LAYERS else _entering(capture.layers.entering[slot])
        error, place = places.nearest(slot)
        if place != expected and error < own[slot] and error <= limits.median:
            said.append(f"the {_NAMES[slot]} stream is {place} instead of {expected}")
        elif not own[slot] <= limits.median:
            unknown.append(_NAMES[slot])
    if unknown:
        said.append(f"{' and '.join(unknown)} fit no layer of this model over the stored ids")
    if not said and not float(errors.max()) <= limits.row:
        rows = (errors > limits.row).any(dim=1).nonzero().flatten().tolist()
        said.append(f"rows {_some(rows)} differ from a fresh forward over the stored ids: an id or a row was changed")
    return "; ".join(said) or None


def _entering(layer: int) -> str:
    return f"the input of layer {layer}"


class _Places:
    """Measures while a forward runs how far stored streams lie from every layer's input and both sides of the norm.

    Nothing of the forward is kept, so it costs no memory that grows with the layers.
    """

    def __init__(self, capture: Capture, stored: torch.Tensor) -> None:
        """Take a hooked model and stored states, [T, 4, H] on the CPU."""
        self._target = capture.target
        self._stored = {torch.device("cpu"): stored}
        self._found: list[tuple[str, list[float]]] = []

    def __enter__(self) -> Self:
        """Hook every layer."""
        self._hooks = [
            layer.register_forward_pre_hook(self._before(_entering(index)), with_kwargs=True)
            for index, layer in enumerate(self._target.layers)
        ]
        norm = self._target.norm
        self._hooks.append(norm.register_forward_pre_hook(self._before(_LAST["pre"]), with_kwargs=True))
        self._hooks.append(norm.register_forward_hook(lambda _module, _args, out: self._measure(_LAST["post"], out)))
        return self

    def __exit__(self, *_: object) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()

    def nearest(self, slot: int) -> tuple[float, str]:
        """Return the least error of a slot, median over its rows, and the place it was found at."""
        return min((errors[slot], place) for place, errors in self._found)

    def _before(self, place: str) -> Any:
        def measure(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._measure(place, args[0] if args else kwargs["hidden_states"])

        return measure

    def _measure(self, place: str, stream: torch.Tensor) -> None:
        fresh = stream[0]
        if fresh.device not in self._stored:
            self._stored[fresh.device] = self._stored[torch.device("cpu")].to(fresh.device)
        errors = _row_errors(self._stored[fresh.device], fresh[:, None])
        self._found.append((place, errors.median(dim=0).values.tolist()))


def _some(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:5]))
    return f"{shown} and {len(rows) - 5} more" if len(rows) > 5 else shown
