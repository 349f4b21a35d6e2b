"""Matrix products of 16-bit models on a CPU that has no units for them.

There torch multiplies element by element, eight times slower than in float32 (AVX2: 9 against 75 GFLOP/s a core).
Here every product runs in float32 over the same numbers and is rounded back: 16-bit products are exact in float32, so
only the order of the sums differs. A weight is widened for the time of its product, so memory grows by the largest one.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

SAID: Final = "products in float32 because this CPU has no units for shorter ones"
"""In a manifest, how samples were run; a comparison with them must multiply alike."""

_NATIVE: Final[dict[str, Callable[[], bool]]] = {
    "bfloat16": torch.ops.mkldnn._is_mkldnn_bf16_supported,
    "float16": torch.ops.mkldnn._is_mkldnn_fp16_supported,
}
"""What torch itself asks before it takes a fast kernel."""

_WORTH_NUMBERS: Final = 2**14
"""Of a weight: smaller ones are multiplied as transformers does, to the bit."""

_ROWS: Final = 256
"""Widened at once: enough for full speed, and little memory beside the 16-bit numbers."""


def is_needed(device_kind: str, dtype: str) -> bool:
    """Tell whether this device multiplies numbers of this type slowly."""
    native = _NATIVE.get(dtype)
    return device_kind == "cpu" and native is not None and not native()


def products(*, wanted: bool) -> AbstractContextManager[object]:
    """Return a context in which matrix products with weights run in float32; one that does nothing if not wanted."""
    return _Widened() if wanted else nullcontext()


class _Widened(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    def __torch_function__(
        self, function: Any, _types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        is_wide = function is not linear or args[0].dtype not in (torch.bfloat16, torch.float16)
        if is_wide or args[1].numel() < _WORTH_NUMBERS:
            return function(*args, **(kwargs or {}))
        return _multiply(*args, **(kwargs or {}))


def _multiply(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:  # noqa: A002
    """Multiply as torch's `linear`, whose parameters have these names, some rows at a time."""
    wide = weight.float(), None if bias is None else bias.float()
    rows = input.reshape(-1, input.shape[-1])
    out = rows.new_empty((len(rows), len(weight)))
    for at in range(0, len(rows), _ROWS):
        out[at : at + _ROWS] = linear(rows[at : at + _ROWS].float(), *wide)
    return out.reshape(*input.shape[:-1], len(weight))
