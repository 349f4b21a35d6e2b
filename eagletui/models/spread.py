"""Models larger than one device: accelerate puts their layers on all of them, and moves streams from one to the next.

One device computes at a time, so this lets a model fit and makes nothing faster; where a model fits into one GPU, a
worker a GPU is what several are for.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch

SPREAD: Final = "spread"
"""The name of this among devices: every CUDA device, then this machine's memory, then the checkpoint on its disk."""

_FOR_WEIGHTS: Final = 0.85
"""Share of a device's free memory that weights may take; packs need the rest."""


def is_needed(weights_bytes: int, free_bytes: Sequence[int]) -> bool:
    """Tell whether a model has to go over several devices.

    Args:
        weights_bytes: of the model.
        free_bytes: on each device, the first one first.
    """
    return len(free_bytes) > 1 and weights_bytes > _FOR_WEIGHTS * free_bytes[0]


def free_memory() -> list[int]:
    """Return the free bytes of each CUDA device."""
    return [int(torch.cuda.mem_get_info(index)[0]) for index in range(torch.cuda.device_count())]


def device_of(module: Any) -> Any:
    """Return where a module computes, which is not where its weights lie while they are offloaded."""
    hook = getattr(module, "_hf_hook", None)
    at = None if hook is None else hook.execution_device
    return next(module.parameters()).device if at is None else torch.device(at)
