"""Compare stored features with the model itself: a fresh forward, and the head over the stored last stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from eagletui.core.features import AUX_LAYERS, SLOTS, DType
from eagletui.extract.capture import TOLERANCE, Capture
from eagletui.extract.shards import Record

ROW_TOLERANCE: Final[dict[DType, float]] = {"float32": 1e-2, "bfloat16": 0.5, "float16": 0.5}
"""Relative error of one row that no rounding explains. A changed id or a shifted layer gives about 1; a mixture of
experts in low precision sends single tokens to another expert, at about 0.1."""

_NAMES: Final = ("low", "middle", "high", "last")


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


def compare(capture: Capture, record: Record) -> Comparison:
    """Run the model over a stored sample's ids and compare every stream.

    Args:
        capture: the hooked model.
        record: one stored sample of finite states.
    """
    target = capture.target
    fresh = capture.one_by_one(record.token_ids)
    errors = _row_errors(record.hidden_states, fresh)
    middle, worst = float(errors.median()), float(errors.max())
    stored_next = next_tokens(capture, record.hidden_states[:, AUX_LAYERS])
    fresh_next = next_tokens(capture, fresh[:, AUX_LAYERS])
    agreeing = int((stored_next == fresh_next).sum())
    sampled = record.loss_mask[1:].bool()
    top1 = int((stored_next[:-1][sampled] == record.token_ids[1:][sampled]).sum())
    fault = None
    if middle > TOLERANCE[target.dtype] or worst > ROW_TOLERANCE[target.dtype]:
        fault = _name_fault(capture, record, errors)
    return Comparison(record.key, len(record.token_ids), middle, worst, agreeing, top1, int(sampled.sum()), fault)


def next_tokens(capture: Capture, last: torch.Tensor) -> torch.Tensor:
    """Return the most likely next token of each row.

    Args:
        capture: the model.
        last: the last layer's output before the final norm, [T, H], on the CPU.

    Returns:
        int64 [T], on the CPU.
    """
    target = capture.target
    device = next(target.head.parameters()).device
    with torch.inference_mode():
        logits = target.head(target.norm(last[None].to(device, getattr(torch, target.dtype))))
    ids: torch.Tensor = logits[0].argmax(dim=-1).cpu()
    return ids


def _row_errors(stored: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    """Return |stored - fresh| / |fresh| per row and stream, float32 [T, 4]."""
    scale = torch.linalg.vector_norm(fresh.float(), dim=-1).clamp_min(1e-30)
    return torch.linalg.vector_norm(stored.float() - fresh.float(), dim=-1) / scale


def _name_fault(capture: Capture, record: Record, errors: torch.Tensor) -> str:
    tolerance = TOLERANCE[capture.target.dtype]
    by_slot = errors.median(dim=0).values
    wrong = [slot for slot in range(SLOTS) if float(by_slot[slot]) > tolerance]
    if not wrong:
        limit = ROW_TOLERANCE[capture.target.dtype]
        rows = (errors > limit).any(dim=1).nonzero().flatten().tolist()
        return f"rows {_some(rows)} differ from a fresh forward over the stored ids: an id or a row was changed"
    streams = _all_streams(capture, record.token_ids)
    found = [_place_of(record.hidden_states[:, slot], streams, tolerance) for slot in wrong]
    said = [
        f"the {_NAMES[slot]} stream is {place} instead of {_expected(capture, slot)}"
        for slot, place in zip(wrong, found, strict=True)
        if place is not None
    ]
    unknown = [_NAMES[slot] for slot, place in zip(wrong, found, strict=True) if place is None]
    if unknown:
        said.append(f"{' and '.join(unknown)} fit no layer of this model over the stored ids")
    return "; ".join(said)


def _expected(capture: Capture, slot: int) -> str:
    if slot == AUX_LAYERS:
        return "the last layer's output before the final norm"
    return f"the input of layer {capture.layers.entering[slot]}"


def _place_of(stored: torch.Tensor, streams: Sequence[tuple[str, torch.Tensor]], tolerance: float) -> str | None:
    for name, stream in streams:
        errors = _row_errors(stored[:, None], stream[:, None])
        if float(errors.median()) <= tolerance:
            return name
    return None


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
    name = "the last layer's output before the final norm"
    hooks.append(target.norm.register_forward_pre_hook(keep(name), with_kwargs=True))
    try:
        with torch.inference_mode():
            out = target.decoder(input_ids=token_ids[None].to(target.device), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return [*kept, ("the output of the final norm", out.last_hidden_state[0].cpu())]


def _some(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:5]))
    return f"{shown} and {len(rows) - 5} more" if len(rows) > 5 else shown
