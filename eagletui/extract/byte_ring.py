"""Memory of a fixed size through which states pass on their way to the disk."""

import torch

from eagletui.extract.open_shard import as_bytes


class ByteRing:
    """A ring of bytes: what is copied in stays until as much again is, so the owner counts what is still needed.

    Memory that is used again and again costs no page faults, and what it takes is known.
    """

    def __init__(self, size_bytes: int) -> None:
        """Reserve the ring; the system gives memory when it is first used."""
        self._memory = torch.empty(size_bytes, dtype=torch.uint8)
        self._next = 0

    def copy(self, states: torch.Tensor) -> tuple[memoryview, ...]:
        """Copy states in.

        Args:
            states: contiguous, on the CPU.

        Returns:
            their bytes, in two parts where the ring's end lies between; what is larger than the ring has memory of its
            own.
        """
        content = states.view(torch.uint8).flatten()
        if len(content) > len(self._memory):
            return (as_bytes(content.clone()),)
        first = self._memory[self._next : self._next + len(content)]
        second = self._memory[: len(content) - len(first)]
        first.copy_(content[: len(first)])
        second.copy_(content[len(first) :])
        self._next = (self._next + len(content)) % len(self._memory)
        return (as_bytes(first), as_bytes(second)) if len(second) else (as_bytes(first),)
