import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagletui.cli.app import main
from eagletui.core.errors import RunError
from eagletui.core.features import FeatureLayers
from eagletui.extract.acknowledged import ACKNOWLEDGED, read_acknowledged
from eagletui.extract.manifest import (
    MANIFEST,
    SHARD_LIST,
    ListedShard,
    Manifest,
    find_manifest,
    read_shard_list,
    write_manifest,
    write_shard_list,
)

MADE = Manifest(
    model_path="/models/tiny",
    model_architecture="LlamaForCausalLM",
    model_xxh3="00",
    model_hash_covers="all",
    extraction_quantization=None,
    served_model=None,
    served_quantizations={"tiny/endpoint": None},
    tokenizer_hash=None,
    source="run run",
    dtype="float32",
    stored="fp8",
    num_layers=8,
    hidden_size=64,
    vocab_size=512,
    layers_entering=(2, 4, 5),
    layers_output=(1, 3, 4),
    last_hidden_norm="pre",
    capture="one_by_one",
    created_at=1.5,
    versions={"torch": "2"},
)
LISTED = ListedShard("shards/000000.safetensors", 2, 42, 4000, "ff", ("s0", "s1"))
NOTHING = object()


def test_a_manifest_and_a_list_come_back_as_they_were_written(tmp_path: Path) -> None:
    assert find_manifest(tmp_path) is None
    assert read_shard_list(tmp_path) == ()
    write_manifest(tmp_path, MADE)
    assert find_manifest(tmp_path) == MADE
    assert MADE.layers == FeatureLayers(8, (2, 4, 5))
    listed = (LISTED, replace(LISTED, path="shards/000001-0f.safetensors", sample_ids=()))
    write_shard_list(tmp_path, listed)
    assert read_shard_list(tmp_path) == listed


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("layers_entering", [2, 4], "field layers_entering: found [2,4], expected array of length 3"),
        ("layers_entering", ["2", "4", "5"], 'field layers_entering[0]: found "2", expected int'),
        ("layers_entering", [2, 4, 9], "field layers_entering: found [2, 4, 9], expected three growing numbers from 1"),
        ("layers_entering", [5, 4, 2], "field layers_entering: found [5, 4, 2], expected three growing numbers from 1"),
        ("layers_entering", NOTHING, "field layers_entering: found nothing, expected a value"),
        ("dtype", None, "field dtype: found null, expected 'float32' or 'bfloat16' or 'float16'"),
        ("stored", "fp4", "field stored: found \"fp4\", expected 'float32' or 'bfloat16' or 'float16' or 'fp8'"),
        ("vocab_size", "512", 'field vocab_size: found "512", expected int'),
        ("hidden_size", 0, "field hidden_size: found 0, expected int >= 1"),
        ("storage", 5, "field storage: found 5, expected str | null"),
        ("served_quantizations", {"tag": 4}, 'field served_quantizations[...]: found {"tag":4}, expected str | null'),
        ("format", "eagletui-features-0", "has format 'eagletui-features-0', expected 'eagletui-features-1'"),
    ],
)
def test_a_field_that_a_hand_has_changed_is_named(tmp_path: Path, field: str, value: Any, said: str) -> None:
    write_manifest(tmp_path, MADE)
    stated = json.loads((tmp_path / MANIFEST).read_text())
    del stated[field]
    (tmp_path / MANIFEST).write_text(json.dumps(stated if value is NOTHING else {**stated, field: value}))
    with pytest.raises(RunError) as caught:
        find_manifest(tmp_path)
    assert str(caught.value).startswith(str(tmp_path / MANIFEST))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "found broken JSON (Input data was truncated), expected one JSON object"),
        (b"[]", "found [], expected object"),
        (b"null", "found null, expected object"),
        (b"\xff", "found broken JSON"),
    ],
)
def test_a_file_that_is_no_manifest_is_named(tmp_path: Path, text: bytes, said: str) -> None:
    (tmp_path / MANIFEST).write_bytes(text)
    with pytest.raises(RunError) as caught:
        find_manifest(tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("path", 5, ":2: field path: found 5, expected str"),
        ("path", LISTED.path + "\n", ":2: field path: found"),
        ("path", "../x", ':2: field path: found "../x", expected str matching regex'),
        ("samples", "12", ':2: field samples: found "12", expected int'),
        ("xxh3", None, ":2: field xxh3: found null, expected str"),
        ("sample_ids", ["s0", 5], ":2: field sample_ids[1]: found 5, expected str"),
    ],
)
def test_a_line_of_the_list_that_a_hand_has_changed_is_named(tmp_path: Path, field: str, value: Any, said: str) -> None:
    write_shard_list(tmp_path, [LISTED])
    line = json.loads((tmp_path / SHARD_LIST).read_text())
    with (tmp_path / SHARD_LIST).open("a") as stream:
        stream.write(json.dumps({**line, field: value}) + "\n")
    with pytest.raises(RunError) as caught:
        read_shard_list(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / SHARD_LIST}{said}")


def test_an_acknowledged_file_outside_the_folder_is_refused(tmp_path: Path) -> None:
    """What is listed as acknowledged is deleted."""
    (tmp_path / ACKNOWLEDGED).write_text('{"path": "../thesis.tex", "rows": 1, "sample_ids": ["a"]}\n')
    with pytest.raises(RunError, match=r"acknowledged\.jsonl:1: field path: found \"\.\./thesis\.tex\""):
        read_acknowledged(tmp_path)


def test_the_command_ends_with_2_and_the_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_manifest(tmp_path, MADE)
    text = (tmp_path / MANIFEST).read_text()
    (tmp_path / MANIFEST).write_text(text.replace('"vocab_size": 512', '"vocab_size": "512"'))
    with pytest.raises(SystemExit) as end:
        main(["verify", str(tmp_path), "--model", "nowhere"])
    assert end.value.code == 2
    assert 'manifest.json: field vocab_size: found "512", expected int.' in capsys.readouterr().err
