"""What an extractor tells of itself comes back from the ledger as it went in, and nonsense comes back as nothing."""

import json

import pytest

from eagletui.core.gauges import ExtractorDetail, Gpu, Machine, read_detail


def test_figures_come_back_as_they_were_written() -> None:
    told = ExtractorDetail(
        "extracting",
        10,
        800,
        214.5,
        1,
        18_448,
        "s3://b/f",
        4,
        True,
        Machine(187.0, 2, 1, 2, 3, (Gpu("H200", 5, 6, 7),)),
    )
    assert read_detail(json.dumps(told.detail())) == told
    bare = ExtractorDetail("starting", machine=Machine(without_gpu="no NVIDIA driver"))
    assert read_detail(json.dumps(bare.detail())) == bare
    assert read_detail('{"phase": "starting"}') == ExtractorDetail("starting")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"phase": 3}'])
def test_what_is_no_figures_is_none(text: str) -> None:
    assert read_detail(text) is None


def test_a_figure_of_another_type_is_unknown() -> None:
    found = read_detail('{"phase": "x", "rows": "many", "row_bytes": true, "machine": {"cores": 1.5, "gpus": [1, {}]}}')
    assert found == ExtractorDetail("x", machine=Machine(gpus=(Gpu("GPU", None, 0, 0),)))
