"""Bring results of a device to this machine's memory while the device goes on computing.

On CUDA they are copied on a stream of their own into pinned memory; a copy into other memory would make the host wait
for all that was launched. Whoever takes results owns their memory, and nothing writes into it again. Once nobody holds
it, torch's allocator of pinned memory gives it to later results.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import torch

Wait = Callable[[], list[torch.Tensor]]
"""Returns results on the CPU, once they are there. It holds them on the device as long as it is held itself."""


PINNED_BYTES: Final = 2**30
"""Of one result at most: torch keeps pinned blocks for good, in sizes of powers of two. A full pack has less."""


class Transfer(Protocol):
    """How numbers get to a device and back."""

    def send(self, numbers: torch.Tensor) -> torch.Tensor:
        """Bring a tensor from the CPU to the device, without waiting for what that computes where this can be."""

    def bring(self, results: Sequence[torch.Tensor]) -> Wait:
        """Let results, which nobody changes any more, come to the CPU when what was launched so far is computed."""


def transfer_of(device: torch.device) -> Transfer:
    """Choose how numbers get to a device and back."""
    return Aside(device) if device.type == "cuda" else AtOnce(device)


class AtOnce:
    """Waits for the device."""

    def __init__(self, device: torch.device) -> None:
        """Take a device."""
        self._device = device

    def send(self, numbers: torch.Tensor) -> torch.Tensor:
        """Bring a tensor to the device."""
        return numbers.to(self._device)

    def bring(self, results: Sequence[torch.Tensor]) -> Wait:
        """Bring results to the CPU; on a CPU they are there."""
        there = [part.cpu() for part in results]
        return lambda: there


class Aside:
    """Copies on a stream beside the one that computes."""

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        """Make the stream.

        Args:
            device: a CUDA device.
            cuda: `torch.cuda`, or what behaves so.
        """
        self._device = device
        self._cuda = cuda
        self._stream = cuda.Stream(device=device)
        self._pins = True

    def send(self, numbers: torch.Tensor) -> torch.Tensor:
        """Bring a tensor to the device."""
        memory = self._memory_for([numbers])
        if memory is None:
            return numbers.to(self._device)
        return memory[0].copy_(numbers).to(self._device, non_blocking=True)

    def bring(self, results: Sequence[torch.Tensor]) -> Wait:
        """Let results come to the CPU; without pinned memory they come while somebody waits for them."""
        self._stream.wait_stream(self._cuda.current_stream(self._device))
        memory = self._memory_for(results)
        if memory is None:
            return lambda: self._copy(results)
        with self._cuda.stream(self._stream):
            for place, part in zip(memory, results, strict=True):
                place.copy_(part, non_blocking=True)
            arrived = self._cuda.Event(blocking=True)  # a waiting thread leaves its core to the writer of shards
            arrived.record(self._stream)

        def wait(_held: Sequence[torch.Tensor] = results) -> list[torch.Tensor]:
            # The device's allocator does not know of the side stream, so results are held until they are copied.
            arrived.synchronize()
            return memory

        return wait

    def _copy(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        with self._cuda.stream(self._stream):
            return [part.cpu() for part in results]

    def _memory_for(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """Return pinned memory for tensors; None where the machine gives none, or it would be too much."""
        if not self._pins or sum(part.nbytes for part in tensors) > PINNED_BYTES:
            return None
        try:
            return [torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in tensors]
        except RuntimeError:  # a limit on locked memory, which later tensors would pass too
            self._pins = False
            return None
