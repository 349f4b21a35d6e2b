import pytest
import torch
from torch.nn.functional import linear

from eagletui.extract import widened


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("with_bias", [True, False])
def test_widened_products_are_the_exact_ones_rounded(dtype: torch.dtype, with_bias: bool) -> None:
    dice = torch.Generator().manual_seed(7)
    rows, weight, bias = (torch.randn(shape, generator=dice).to(dtype) for shape in ((2, 300, 128), (256, 128), (256,)))
    with widened.products(wanted=True):
        found = linear(rows, weight, bias if with_bias else None)
    exact = rows.double() @ weight.double().T + (bias.double() if with_bias else 0.0)
    assert (found.dtype, found.shape) == (dtype, (2, 300, 256))
    assert ((found.double() - exact).abs() <= torch.finfo(dtype).eps * exact.abs() + 1e-5).all()
    assert (found == exact.to(dtype)).double().mean() > 0.99


def test_float32_and_small_weights_are_left_alone_and_so_is_everything_outside() -> None:
    rows, weight = torch.randn(3, 8), torch.randn(5, 8)
    alone = linear(rows, weight), linear(rows.bfloat16(), weight.bfloat16())
    with widened.products(wanted=True):
        assert torch.equal(linear(rows, weight), alone[0])
        assert torch.equal(linear(rows.bfloat16(), weight.bfloat16()), alone[1])
    with widened.products(wanted=False):
        assert linear(rows.bfloat16(), weight.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(("device", "dtype"), [("cuda", "bfloat16"), ("cpu", "float32")])
def test_devices_and_types_with_their_own_units_are_not_widened(device: str, dtype: str) -> None:
    assert not widened.is_needed(device, dtype)
