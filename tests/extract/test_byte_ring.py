"""Bytes that pass through a ring are those that were put in, as long as they are needed."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eagletui.extract.byte_ring import ByteRing

SIZE = 64


@settings(max_examples=30)
@given(rows=st.lists(st.integers(1, 24), min_size=1, max_size=30))
def test_what_fits_at_the_same_time_is_not_overwritten(rows: list[int]) -> None:
    ring = ByteRing(SIZE)
    held: list[tuple[bytes, tuple[memoryview, ...]]] = []
    for number, length in enumerate(rows):
        states = torch.full((length, 1, 2), number, dtype=torch.bfloat16)  # 4 bytes a row
        size = states.nbytes
        while held and sum(len(exact) for exact, _ in held) + size > SIZE:
            held.pop(0)
        exact = bytes(states.view(torch.uint8).flatten().tolist())
        held.append((exact, ring.copy(states)))
        states.zero_()
        assert [b"".join(parts) for _, parts in held] == [exact for exact, _ in held]
