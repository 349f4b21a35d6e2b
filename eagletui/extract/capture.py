"""Compute the residual streams of samples with a target model, without its head."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final, Literal, NamedTuple, TypeVar

import torch

from eagletui.core.errors import ModelError
from eagletui.core.features import SLOTS, DType, FeatureLayers
from eagletui.core.text import clean_line
from eagletui.extract import attention, widened
from eagletui.extract.computing import are_finite
from eagletui.extract.transfer import Wait, transfer_of
from eagletui.models.load import TargetModel

Mode = Literal["one_by_one", "packed"]
_T = TypeVar("_T")

TOLERANCE: Final[dict[DType, float]] = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 5e-3}
"""Median relative error between packed and lone forwards that the self-test accepts. Kernels round differently for
other row counts; a leak between samples is of the order of 1."""

BUDGET_TOKENS: Final[dict[str, int]] = {"cpu": 512, "cuda": 16_384}
"""Row length of a pack by device kind: long enough to fill the device, short enough for its caches and its memory."""

MOVED_TOKENS: Final[dict[DType, float]] = {"float32": 1e-3, "bfloat16": 5e-2, "float16": 5e-2}
"""Share of choices, one per token and layer of experts, that may fall on other experts in a packed forward: rounding
decides near ties, and what a layer decided moves the next ones. Samples that see each other move most of them."""

_SAME_ROTATION: Final = 0.05
"""Largest difference of a cosine or sine of the same position; another position differs by up to 2."""

_SAY_FULL: Final = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
)
"""What torch 2.13 says of memory in errors that have no class of their own (c10/core/impl/alloc_cpu.cpp, cuBLAS)."""


class DeviceFullError(ModelError):
    """A forward needs more memory than the device has."""


class Streams(NamedTuple):
    """What a record holds of one sample."""

    rows: torch.Tensor
    """[T, 4, H] on the CPU, in the model's dtype; the taker's own."""
    are_finite: bool


@dataclass(frozen=True, slots=True)
class Launched:
    """A forward that the device may still be computing."""

    lengths: Sequence[int]
    """Of its samples."""
    wait: Wait
    """For all rows, and for whether those of each sample are finite."""

    def take(self) -> list[Streams]:
        """Wait until it is computed, and return the streams of each sample, views of one tensor; to be called once."""
        rows, finite = self.wait()
        return [Streams(*one) for one in zip(rows.split(list(self.lengths)), finite.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class SelfTest:
    """How packed forwards compare with lone ones on real samples."""

    samples: int
    median_error: float
    """Median over samples and streams of |packed - lone| / |lone|, Euclidean norms."""
    worst_error: float
    tolerance: float
    moved: float | None
    """Share of choices of experts, per token and layer, that fell on others; None without experts."""
    failure: str | None
    """Why packing cannot be used, one phrase; None if it can."""


class Capture:
    """One target model with hooks on the streams that a record holds."""

    def __init__(self, target: TargetModel, layers: FeatureLayers) -> None:
        """Hook the model. One capture per model at a time.

        Args:
            target: the loaded model; its attention is switched as needed.
            layers: which streams.
        """
        self.target = target
        self.layers = layers
        self.device_kind = torch.device(target.device).type
        self.budget_tokens = BUDGET_TOKENS.get(self.device_kind, BUDGET_TOKENS["cuda"])
        self.widens = widened.is_needed(self.device_kind, target.dtype)
        """All but `one_by_one` multiplies in float32, because this CPU has no faster way."""
        config = target.decoder.config.get_text_config(decoder=True)
        capability = torch.cuda.get_device_capability(target.device) if self.device_kind == "cuda" else None
        self.kernel = attention.choose_kernel(self.device_kind, target.dtype, capability, config)
        self._transfer = transfer_of(torch.device(target.device))
        self._out: Any = None
        self._chosen: list[Any] | None = None
        self._turned: torch.Tensor | None = None
        hooked = [target.layers[index] for index in layers.entering] + [target.norm]
        self._hooks = [
            module.register_forward_pre_hook(self._keeper(slot), with_kwargs=True) for slot, module in enumerate(hooked)
        ]
        self._hooks += [
            module.register_forward_pre_hook(self._note_experts)
            for name, module in target.layers.named_modules()
            if name.endswith(".experts")
        ]
        self._hooks.append(target.layers[0].register_forward_pre_hook(self._note_positions, with_kwargs=True))
        attention.register()

    def close(self) -> None:
        """Take the hooks off the model."""
        for hook in self._hooks:
            hook.remove()

    def packing_obstacle(self) -> str | None:
        """Tell why samples may not share a forward here, as a phrase; None where they may.

        On a CPU in float32 packing gains nothing, and a lone forward is bit-equal to transformers by construction.
        """
        if self.device_kind == "cpu" and self.target.dtype == "float32":
            return "in float32 on a CPU a lone forward is as fast and exact to the bit"
        config = self.target.decoder.config.get_text_config(decoder=True)
        return attention.obstacle(config, self.target.attention)

    def one_by_one(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Run one sample exactly as transformers would, to the bit.

        Args:
            token_ids: int64 [T], on the CPU.

        Returns:
            [T, 4, H] on the CPU, in the model's dtype.
        """
        return self._launch(token_ids, [len(token_ids)], {}).take()[0].rows

    def alone(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Run one sample as `packed` does, with nobody beside it; takes and returns what `one_by_one` does."""
        return self.start_alone(token_ids).take()[0].rows

    def packed(self, samples: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Run several samples in one forward, each with its own positions and seeing only itself.

        Args:
            samples: int64 [T] each, on the CPU.

        Returns:
            one [T, 4, H] per sample, views of one tensor.
        """
        return tuple(streams.rows for streams in self.start(samples).take())

    def start_alone(self, token_ids: torch.Tensor) -> Launched:
        """Launch what `alone` runs; on CUDA it is under way when this returns, elsewhere done."""
        with widened.products(wanted=self.widens):
            return self._launch(token_ids, [len(token_ids)], {})

    def start(self, samples: Sequence[torch.Tensor]) -> Launched:
        """Launch what `packed` runs; on CUDA it is under way when this returns, elsewhere done.

        Raises:
            DeviceFullError: it needs more memory than the device has.
        """
        lengths = [len(sample) for sample in samples]
        positions = torch.cat([torch.arange(length) for length in lengths])
        with ExitStack() as stack:
            stack.enter_context(widened.products(wanted=self.widens))
            self.target.decoder.set_attn_implementation(attention.NAME)
            stack.callback(self.target.decoder.set_attn_implementation, self.target.attention)
            extra = {"position_ids": positions[None], "segment_lengths": lengths}
            if self.kernel.call is not None:
                extra |= {"segment_kernel": self.kernel.call, "segment_starts": attention.starts_of(lengths)}
            return self._launch(torch.cat(list(samples)), lengths, extra)

    def release(self) -> None:
        """Give memory that no tensor holds back to the device, where shorter forwards find it in one piece."""
        if self.device_kind == "cuda":
            torch.cuda.empty_cache()

    def self_test(self, samples: Sequence[torch.Tensor]) -> SelfTest:
        """Compare a packed forward with lone ones.

        Args:
            samples: at least two real samples, int64 [T] each.
        """
        tolerance = TOLERANCE[self.target.dtype]
        try:
            together, chosen_together, turned_together = self._watched(lambda: self.packed(samples))
        except (RuntimeError, ValueError, TypeError) as error:
            why = f"the packed forward failed: {clean_line(str(error), 200)}"
            return SelfTest(len(samples), 0.0, 0.0, tolerance, None, why)
        errors: list[float] = []
        chosen_alone: list[torch.Tensor] = []
        turned_alone: list[torch.Tensor] = []
        for sample, packed in zip(samples, together, strict=True):
            lone, chosen, turned = self._watched(partial(self.one_by_one, sample))
            chosen_alone.append(chosen)
            turned_alone.append(turned)
            for slot in range(SLOTS):
                scale = torch.linalg.vector_norm(lone[:, slot].float())
                distance = torch.linalg.vector_norm(packed[:, slot].float() - lone[:, slot].float())
                errors.append(float(distance / scale))
        moved = _share_that_differs(chosen_together, torch.cat(chosen_alone, dim=1))
        middle, worst = median(errors), max(errors)
        failure = None
        if not middle <= tolerance:
            failure = f"median relative error {middle:.1e} is above {tolerance:.0e}"
        elif moved is not None and moved > MOVED_TOKENS[self.target.dtype]:
            failure = f"{moved:.2%} of tokens go to other experts, above {MOVED_TOKENS[self.target.dtype]:.1%}"
        elif _largest_difference(turned_together, torch.cat(turned_alone, dim=1)) > _SAME_ROTATION:
            failure = "positions do not start anew in each sample"
        return SelfTest(len(samples), middle, worst, tolerance, moved, failure)

    def _watched(self, forward: Callable[[], _T]) -> tuple[_T, torch.Tensor, torch.Tensor]:
        """Run a forward and return what it decided by the way too.

        Returns:
            its streams; the experts it chose, [layers of experts, tokens, chosen], sorted; and cosines and sines of the
            positions, [2, tokens, dims], without tokens where the model does not hand them to its layers.
        """
        self._chosen, self._turned = [], None
        try:
            streams = forward()
            chosen, turned = self._chosen, self._turned
        finally:
            self._chosen, self._turned = None, None
        experts = torch.stack(chosen) if chosen else torch.empty((0, 0, 0))
        return streams, experts, torch.empty((2, 0, 0)) if turned is None else turned

    def _note_positions(self, _module: Any, _args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the rotations that the first layer gets. States say little of them: RoPE only sees distances."""
        rotations = kwargs.get("position_embeddings")
        if self._chosen is not None and isinstance(rotations, tuple):
            self._turned = torch.stack([part[0].float().cpu() for part in rotations])

    def _note_experts(self, _module: Any, args: tuple[Any, ...]) -> None:
        """Keep the choice of a layer: transformers calls experts with states, indices of the chosen, and weights."""
        if self._chosen is not None and len(args) > 1:
            self._chosen.append(args[1].cpu().sort(dim=-1).values)

    def _launch(self, token_ids: torch.Tensor, lengths: Sequence[int], extra: dict[str, Any]) -> Launched:
        try:
            rows = self._run(token_ids, extra)
            finite = torch.stack([are_finite(part) for part in rows.split(list(lengths))])
            return Launched(lengths, self._transfer.bring([rows, finite]))
        except RuntimeError as error:
            if not _means_full(error):
                raise
            why = f"{len(token_ids)} tokens do not fit into the memory of {self.target.device} at once."
            # Without its traceback, whose frames hold what the forward had computed, while a shorter one is tried.
            raise DeviceFullError(why) from error.with_traceback(None)

    def _run(self, token_ids: torch.Tensor, extra: dict[str, Any]) -> torch.Tensor:
        """Launch a forward and return its rows, [N, 4, H] on the device, which may still be computing them."""
        target, send = self.target, self._transfer.send
        shape = (len(token_ids), SLOTS, target.hidden_size)
        self._out = torch.empty(shape, dtype=getattr(torch, target.dtype), device=target.device)
        there = {name: send(given) if isinstance(given, torch.Tensor) else given for name, given in extra.items()}
        try:
            with torch.inference_mode():
                target.decoder(input_ids=send(token_ids[None]), use_cache=False, **there)
            return self._out
        finally:
            self._out = None

    def _keeper(self, slot: int) -> Any:
        def keep(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._out is not None:
                stream = args[0] if args else kwargs["hidden_states"]
                self._out[:, slot].copy_(stream[0])

        return keep


def _means_full(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or any(said in str(error) for said in _SAY_FULL)


def _share_that_differs(some: torch.Tensor, others: torch.Tensor) -> float | None:
    """Return the share of choices that differ between [layers, tokens, chosen] and another; None where none is."""
    if not others.numel():
        return None
    return float((some != others).any(dim=-1).float().mean())


def _largest_difference(some: torch.Tensor, others: torch.Tensor) -> float:
    """Return the largest difference of two tensors of one shape; 0 where they are empty."""
    return float((some - others).abs().max()) if some.numel() else 0.0
