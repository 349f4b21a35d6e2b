"""Compare stored features with the model itself: a fresh forward, and the head over the stored last stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

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
    """Relative error of a row, median over rows and streams."""
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
    fresh = capture.alone(record.token_ids)
    if last == "post":
        fresh[:, AUX_LAYERS] = _normed(capture, fresh[:, AUX_LAYERS])
    errors = _row_errors(record.hidden_states, fresh)
    middle, worst = float(errors.median()), float(errors.max())
    stored_next = next_tokens(capture, record.hidden_states[:, AUX_LAYERS], last)
    fresh_next = next_tokens(capture, fresh[:, AUX_LAYERS], last)
    agreeing = int((stored_next == fresh_next).sum())
    sampled = record.loss_mask[1:].bool()
    top1 = int((stored_next[:-1][sampled] == record.token_ids[1:][sampled]).sum())
    limits = _limits(capture, record, was_fp8)
    fault = None
    if middle > limits.median or worst > limits.row:
        fault = _name_fault(capture, record, errors, last, limits)
    return Comparison(
        record.key, len(record.token_ids), middle, worst, agreeing, top1, int(sampled.sum()), fault, limits
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


def _name_fault(capture: Capture, record: Record, errors: torch.Tensor, last: LastNorm, limits: Limits) -> str:
    by_slot = errors.median(dim=0).values
    wrong = [slot for slot in range(SLOTS) if float(by_slot[slot]) > limits.median]
    if not wrong:
        rows = (errors > limits.row).any(dim=1).nonzero().flatten().tolist()
        return f"rows {_some(rows)} differ from a fresh forward over the stored ids: an id or a row was changed"
    streams = _all_streams(capture, record.token_ids)
    found = [_place_of(record.hidden_states[:, slot], streams, limits.median) for slot in wrong]
    said = [
        f"the {_NAMES[slot]} stream is {place} instead of {_expected(capture, slot, last)}"
        for slot, place in zip(wrong, found, strict=True)
        if place is not None
    ]
    unknown = [_NAMES[slot] for slot, place in zip(wrong, found, strict=True) if place is None]
    if unknown:
        said.append(f"{' and '.join(unknown)} fit no layer of this model over the stored ids")
    return "; ".join(said)


def _expected(capture: Capture, slot: int, last: LastNorm) -> str:
    if slot == AUX_LAYERS:
        return _LAST[last]
    return f"the input of layer {capture.layers.entering[slot]}"


def _place_of(stored: torch.Tensor, streams: Sequence[tuple[str, torch.Tensor]], tolerance: float) -> str | None:
    """Name the nearest stream of the model; None if it is not near."""
    error, name = min((float(_row_errors(stored[:, None], stream[:, None]).median()), name) for name, stream in streams)
    return name if error <= tolerance else None


def _all_streams(capture: Capture, token_ids: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Compute the input of every layer and both sides of the final norm, each [T, H] on the CPU, with its name."""
    target = capture.target
    kept: list[tuple[str, torch.Tensor]] = []

    def keep(name: str) -> Any:
        def hook(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            kept.append((name, (args[0] if args else kwargs["hidden_states"])[0].cpu()))

        return hook

    hooks = [
        layer.register_forward_pre_hook(keep(f"the input of layer {index}"), with_kwargs=True)
        for index, layer in enumerate(target.layers)
    ]
    hooks.append(target.norm.register_forward_pre_hook(keep(_LAST["pre"]), with_kwargs=True))
    try:
        with torch.inference_mode():
            out = target.decoder(input_ids=token_ids[None].to(target.device), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return [*kept, (_LAST["post"], out.last_hidden_state[0].cpu())]


def _some(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:5]))
    return f"{shown} and {len(rows) - 5} more" if len(rows) > 5 else shown
