"""Compute the residual streams of samples with a target model, without its head."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal

import torch

from eagletui.core.errors import ModelError
from eagletui.core.features import SLOTS, DType, FeatureLayers
from eagletui.core.text import clean_line
from eagletui.extract import attention
from eagletui.models.load import TargetModel

Mode = Literal["one_by_one", "packed"]

TOLERANCE: Final[dict[DType, float]] = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 5e-3}
"""Median relative error between packed and lone forwards that the self-test accepts. Kernels round differently for
other row counts; a leak between samples is of the order of 1."""

BUDGET_TOKENS: Final[dict[str, int]] = {"cpu": 2048, "cuda": 16_384}
"""Row length of a pack by device kind: long enough to fill the device, short enough to bound its memory."""


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
        self._out: Any = None
        hooked = [target.layers[index] for index in layers.entering] + [target.norm]
        self._hooks = [
            module.register_forward_pre_hook(self._keeper(slot), with_kwargs=True) for slot, module in enumerate(hooked)
        ]
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
        """Run one sample through the model's own attention.

        Args:
            token_ids: int64 [T], on the CPU.

        Returns:
            [T, 4, H] on the CPU, in the model's dtype.
        """
        return self._run(token_ids, {})

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
            self.target.decoder.set_attn_implementation(attention.NAME)
            stack.callback(self.target.decoder.set_attn_implementation, self.target.attention)
            extra = {"position_ids": positions[None].to(self.target.device), "segment_lengths": lengths}
            streams = self._run(torch.cat(list(samples)), extra)
        return tuple(streams.split(lengths))

    def self_test(self, samples: Sequence[torch.Tensor]) -> SelfTest:
        """Compare a packed forward with lone ones.

        Args:
            samples: at least two real samples, int64 [T] each.
        """
        tolerance = TOLERANCE[self.target.dtype]
        try:
            together = self.packed(samples)
        except (RuntimeError, ValueError, TypeError) as error:
            return SelfTest(
                len(samples), 0.0, 0.0, tolerance, f"the packed forward failed: {clean_line(str(error), 200)}"
            )
        errors: list[float] = []
        for sample, packed in zip(samples, together, strict=True):
            lone = self.one_by_one(sample).float()
            for slot in range(SLOTS):
                scale = torch.linalg.vector_norm(lone[:, slot])
                errors.append(float(torch.linalg.vector_norm(packed[:, slot].float() - lone[:, slot]) / scale))
        middle, worst = median(errors), max(errors)
        failure = None if middle <= tolerance else f"median relative error {middle:.1e} is above {tolerance:.0e}"
        return SelfTest(len(samples), middle, worst, tolerance, failure)

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
