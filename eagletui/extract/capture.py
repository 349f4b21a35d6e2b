"""Compute the residual streams of samples with a target model, without its head."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final, Literal, TypeVar

import torch

from eagletui.core.errors import ModelError
from eagletui.core.features import SLOTS, DType, FeatureLayers
from eagletui.core.text import clean_line
from eagletui.extract import attention, widened
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


class DeviceFullError(ModelError):
    """A forward needs more memory than the device has."""


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
        return self._run(token_ids, {})

    def alone(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Run one sample as `packed` does, with nobody beside it; takes and returns what `one_by_one` does."""
        with widened.products(wanted=self.widens):
            return self.one_by_one(token_ids)

    def packed(self, samples: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Run several samples in one forward, each with its own positions and seeing only itself.

        Args:
            samples: int64 [T] each, on the CPU.

        Returns:
            one [T, 4, H] per sample, views of one tensor.
        """
        lengths = [len(sample) for sample in samples]
        positions = torch.cat([torch.arange(length) for length in lengths])
        with ExitStack() as stack:
            stack.enter_context(widened.products(wanted=self.widens))
            self.target.decoder.set_attn_implementation(attention.NAME)
            stack.callback(self.target.decoder.set_attn_implementation, self.target.attention)
            extra = {"position_ids": positions[None].to(self.target.device), "segment_lengths": lengths}
            if self.kernel.call is not None:
                starts = attention.starts_of(lengths).to(self.target.device)
                extra |= {"segment_kernel": self.kernel.call, "segment_starts": starts}
            streams = self._run(torch.cat(list(samples)), extra)
        return tuple(streams.split(lengths))

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

    def _run(self, token_ids: torch.Tensor, extra: dict[str, Any]) -> torch.Tensor:
        rows = len(token_ids)
        target = self.target
        dtype = getattr(torch, target.dtype)
        self._out = torch.empty((rows, SLOTS, target.hidden_size), dtype=dtype, device=target.device)
        try:
            with torch.inference_mode():
                target.decoder(input_ids=token_ids[None].to(target.device), use_cache=False, **extra)
            return self._out.cpu()
        except torch.OutOfMemoryError as error:
            raise DeviceFullError(f"{rows} tokens do not fit into the memory of {target.device} at once.") from error
        finally:
            self._out = None

    def _keeper(self, slot: int) -> Any:
        def keep(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self._out is not None:
                stream = args[0] if args else kwargs["hidden_states"]
                self._out[:, slot].copy_(stream[0])

        return keep


def _share_that_differs(some: torch.Tensor, others: torch.Tensor) -> float | None:
    """Return the share of choices that differ between [layers, tokens, chosen] and another; None where none is."""
    if not others.numel():
        return None
    return float((some != others).any(dim=-1).float().mean())


def _largest_difference(some: torch.Tensor, others: torch.Tensor) -> float:
    """Return the largest difference of two tensors of one shape; 0 where they are empty."""
    return float((some - others).abs().max()) if some.numel() else 0.0
