import pytest

from eagletui.core.loss_mask import packed_mask, run_lengths


@pytest.mark.parametrize(
    ("mask", "lengths"),
    [
        ("0011100110", [2, 3, 2, 2, 1]),
        ("110", [0, 2, 1]),
        ("0", [1]),
        ("", []),
    ],
)
def test_run_lengths_begin_with_zeros(mask: str, lengths: list[int]) -> None:
    assert run_lengths(map(int, mask)) == lengths


def test_a_sample_is_a_prompt_and_an_answer() -> None:
    assert packed_mask(2, 3) == ",".join(map(str, run_lengths([0, 0, 1, 1, 1])))
