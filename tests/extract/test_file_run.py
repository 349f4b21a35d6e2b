import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from eagletui.core.errors import InputError, LockedError, ModelError, RunError
from eagletui.extract.engines import Order
from eagletui.extract.file_run import Extracted, Watching, extract_file
from eagletui.extract.ids_file import check_ids_file
from eagletui.extract.manifest import SHARD_LIST, read_manifest, read_shard_list
from eagletui.extract.shards import ShardReader, hash_file
from eagletui.extract.space import DiskSpace
from eagletui.ledger.locks import RoleLock
from eagletui.models.load import DTypeChoice
from tests.tiny_models import KINDS, VOCAB, Kind, random_samples, streams_of_transformers

SOME_KINDS = ["llama", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind != "llama")]

LENGTHS = (7, 33, 2, 150, 64, 20)


def _write_ids(path: Path, samples: list[tuple[int, ...]]) -> Path:
    with path.open("w") as stream:
        for number, ids in enumerate(samples):
            cut = max(1, len(ids) // 3)
            if number % 2:
                line: dict[str, Any] = {"id": f"s{number}", "prompt_ids": ids[:cut], "output_ids": ids[cut:], "x": None}
            else:
                line = {"id": f"s{number}", "input_ids": ids, "loss_mask": [0] * cut + [1] * (len(ids) - cut)}
            stream.write(json.dumps(line) + "\n")
    return path


def _extract_ids(ids: Path, model: Path, out: Path, **options: Any) -> Extracted:
    said = options.pop("said", [])
    watching = Watching(
        report=lambda level, kind, message: said.append((kind, message)),
        start=lambda samples, rows: None,
        step=lambda progress: None,
    )
    how = {name: options.pop(name) for name in ("shard_mib", "space", "token_budget") if name in options}
    return extract_file(ids, Order(model, device="cpu", threads=1, **options), out, watching, **how)


def _extract(tmp_path: Path, model: Path, *, dtype: str = "float32", shard_mib: int = 1) -> Extracted:
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples(LENGTHS))
    choice: DTypeChoice = "bfloat16" if dtype == "bfloat16" else "float32"
    return _extract_ids(ids, model, tmp_path / "out", dtype=choice, shard_mib=shard_mib)


@pytest.mark.parametrize("kind", SOME_KINDS)
def test_stored_states_equal_a_plain_transformers_forward_to_the_bit(
    tmp_path: Path, tiny_models: dict[Kind, Path], kind: Kind
) -> None:
    done = _extract(tmp_path, tiny_models[kind])
    assert (done.samples, done.rows, done.shards, done.refused) == (6, sum(LENGTHS), 1, 0)
    with ShardReader(tmp_path / "out" / "shards" / "000000.safetensors") as reader:
        for position, ids in enumerate(random_samples(LENGTHS)):
            record = reader.record(position)
            aux, _ = streams_of_transformers(tiny_models[kind], ids)
            cut = max(1, len(ids) // 3)
            assert record.key == f"s{position}"
            assert record.token_ids.tolist() == list(ids)
            assert record.loss_mask.tolist() == [0] * cut + [1] * (len(ids) - cut)
            assert record.hidden_states.dtype == torch.float32
            assert torch.equal(record.hidden_states[:, :3], aux)


@pytest.mark.parametrize("kind", SOME_KINDS)
def test_bfloat16_is_packed_after_a_self_test_and_stays_within_two_percent(
    tmp_path: Path, tiny_models: dict[Kind, Path], kind: Kind
) -> None:
    done = _extract(tmp_path, tiny_models[kind], dtype="bfloat16")
    assert done.capture.startswith("packed: 4 samples both ways")
    with ShardReader(tmp_path / "out" / "shards" / "000000.safetensors") as reader:
        for position, ids in enumerate(random_samples(LENGTHS)):
            aux, _ = streams_of_transformers(tiny_models[kind], ids, dtype=torch.bfloat16)
            stored = reader.record(position).hidden_states[:, :3]
            assert stored.dtype == torch.bfloat16
            assert torch.linalg.vector_norm((stored - aux).float()) <= 0.02 * torch.linalg.vector_norm(aux.float())


def test_the_manifest_says_how_the_features_were_made(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    _extract(tmp_path, tiny_models["qwen3"])
    manifest = read_manifest(tmp_path / "out")
    assert (manifest.layers_entering, manifest.layers_output) == ((2, 4, 5), (1, 3, 4))
    assert (manifest.last_hidden_norm, manifest.dtype) == ("pre", "float32")
    assert (manifest.num_layers, manifest.hidden_size, manifest.vocab_size) == (8, 64, VOCAB)
    assert manifest.model_architecture == "Qwen3ForCausalLM"
    assert manifest.capture.startswith("one_by_one: in float32 on a CPU")
    assert manifest.source.startswith("file ids.jsonl sha256 ")
    (shard,) = read_shard_list(tmp_path / "out")
    assert shard.xxh3 == hash_file(tmp_path / "out" / shard.path)


def test_a_second_call_computes_only_what_is_missing(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    samples = random_samples((400,) * 6)
    ids = _write_ids(tmp_path / "ids.jsonl", samples)
    out = tmp_path / "out"
    first = _extract_ids(ids, tiny_models["llama"], out, dtype="float32", shard_mib=1)
    assert (first.computed, first.shards) == (6, 3)
    list_path = out / "shards.jsonl"
    lines = list_path.read_text().splitlines(keepends=True)
    list_path.write_text("".join(lines[:2]) + lines[2][:20])  # killed between the rename and the end of the line
    (out / "shards" / "000003.safetensors.tmp").write_bytes(b"half")
    again = _extract_ids(ids, tiny_models["llama"], out, dtype="float32", shard_mib=1)
    assert (again.computed, again.samples, again.shards) == (2, 6, 3)
    assert again.capture == first.capture
    keys = [key for shard in read_shard_list(out) for key in ShardReader(out / shard.path).keys]
    assert sorted(keys) == [f"s{number}" for number in range(6)]
    assert sorted(file.name for file in (out / "shards").iterdir()) == [f"00000{n}.safetensors" for n in range(3)]


def test_shards_that_are_gone_or_cut_are_named_and_their_samples_computed_again(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples((400,) * 6))
    out = tmp_path / "out"
    _extract_ids(ids, tiny_models["llama"], out, dtype="float32", shard_mib=1)
    before = {key: states for shard in read_shard_list(out) for key, states in _states(out / shard.path).items()}
    (out / "shards" / "000000.safetensors").unlink()
    os.truncate(out / "shards" / "000001.safetensors", 5000)
    said: list[tuple[str, str]] = []
    again = _extract_ids(ids, tiny_models["llama"], out, dtype="float32", shard_mib=1, said=said)
    assert (again.computed, again.samples, again.shards) == (4, 6, 3)
    lost = sorted(message for kind, message in said if kind == "shard_lost")
    assert [message.partition("; ")[0].partition(" instead")[0] for message in lost] == [
        "shards/000000.safetensors is gone",
        "shards/000001.safetensors has 5000 bytes",
    ]
    after = {key: states for shard in read_shard_list(out) for key, states in _states(out / shard.path).items()}
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


def _states(file: Path) -> dict[str, torch.Tensor]:
    with ShardReader(file) as reader:
        return {key: reader.record(position).hidden_states.clone() for position, key in enumerate(reader.keys)}


def test_a_list_with_other_samples_than_its_shard_is_not_gone_on_from(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    _extract(tmp_path, tiny_models["llama"])
    path = tmp_path / "out" / SHARD_LIST
    path.write_text(path.read_text().replace('"s0"', '"zzz"'))
    with pytest.raises(RunError, match=r"shards\.jsonl: .* sample 0 is 'zzz' there and 's0' in the shard"):
        _extract(tmp_path, tiny_models["llama"])
    assert "zzz" in path.read_text()


def test_a_folder_made_in_another_way_is_not_added_to(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    _extract(tmp_path, tiny_models["llama"])
    with pytest.raises(RunError, match=r"made in another way: .*dtype is 'float32' there and 'bfloat16' now"):
        _extract(tmp_path, tiny_models["llama"], dtype="bfloat16")
    with pytest.raises(RunError, match="model_xxh3"):
        _extract(tmp_path, tiny_models["qwen3"])


def test_a_call_that_was_killed_before_its_first_shard_is_gone_on_from(
    tmp_path: Path, tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("eagletui.extract.file_run.write_shard_list", killed)
        with pytest.raises(KeyboardInterrupt):
            _extract(tmp_path, tiny_models["llama"])
    manifest = tmp_path / "out" / "manifest.json"
    manifest.rename(tmp_path / "out" / ".manifest.json.new")  # killed before that, or by an earlier build
    (tmp_path / "out" / SHARD_LIST).touch()
    assert _extract(tmp_path, tiny_models["llama"]).computed == len(LENGTHS)


def test_a_list_of_an_earlier_build_which_names_no_samples_is_gone_on_from(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    _extract(tmp_path, tiny_models["llama"])
    path = tmp_path / "out" / SHARD_LIST
    line = json.loads(path.read_text())
    del line["sample_ids"]
    path.write_text(json.dumps(line) + "\n")
    assert _extract(tmp_path, tiny_models["llama"]).computed == 0


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="is not empty"):
        _extract(tmp_path, tiny_models["llama"])


def test_two_extractions_into_one_folder_do_not_meet(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    _extract(tmp_path, tiny_models["llama"])
    with RoleLock(tmp_path / "out", "extractor"), pytest.raises(LockedError, match="already running"):
        _extract(tmp_path, tiny_models["llama"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "a", "input_ids": [1, 2], "loss_mask": [0, 1]', r":2: found broken JSON"),
        ("[1, 2]", r":2: found \[1,2\], expected one JSON object"),
        ('{"input_ids": [1], "loss_mask": [1]}', r":2: field id: found nothing"),
        ('{"id": "a", "output_ids": [1, 2]}', r":2: field prompt_ids: found nothing, .*depend on its prompt"),
        ('{"id": "a", "prompt_ids": null, "output_ids": [1, 2]}', r":2: field prompt_ids: found null"),
        ('{"id": "a", "prompt_ids": [1], "output_ids": null}', r":2: field output_ids: found null"),
        ('{"id": "a", "prompt_ids": [], "output_ids": [1]}', r":2: field prompt_ids: found an empty list"),
        ('{"id": "a", "input_ids": [1, true], "loss_mask": [0, 1]}', r":2: field input_ids\[1\]: found true"),
        ('{"id": "a", "input_ids": [1, 2.0], "loss_mask": [0, 1]}', r":2: field input_ids\[1\]: found 2.0"),
        ('{"id": "a", "input_ids": [-1], "loss_mask": [1]}', r":2: field input_ids\[0\]: found -1"),
        ('{"id": "a", "input_ids": [512], "loss_mask": [1]}', r":2: field input_ids\[0\]: found 512, .*below 512"),
        ('{"id": "a", "input_ids": [1, 2], "loss_mask": [1]}', r":2: field loss_mask: found 1 numbers, expected 2"),
        ('{"id": "a", "input_ids": [1], "loss_mask": [2]}', r":2: field loss_mask: found 2, expected 0 or 1"),
        (
            '{"id": "a", "input_ids": [1, 2], "loss_mask": [0, 0]}',
            r":2: field loss_mask: found 2 zeros, expected at least",
        ),
        ('{"id": "first", "input_ids": [1], "loss_mask": [1]}', r':2: field id: found "first", .*line 1 has it too'),
        ('{"id": "\\u001b[31m", "input_ids": "\\u001b[2J", "loss_mask": [1]}', r'field input_ids: found "'),
    ],
)
def test_bad_lines_are_named_and_nothing_is_written(
    tmp_path: Path, tiny_models: dict[Kind, Path], line: str, message: str
) -> None:
    path = tmp_path / "ids.jsonl"
    path.write_text('{"id": "first", "prompt_ids": [1], "output_ids": [2]}\n' + line + "\n")
    with pytest.raises(InputError, match=message) as caught:
        _extract_ids(path, tiny_models["llama"], tmp_path / "out")
    assert str(caught.value).endswith("Nothing was written.")
    assert "\x1b" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_empty_file_and_an_absent_one_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n \n")
    with pytest.raises(InputError, match=r"empty\.jsonl: found no lines"):
        check_ids_file(tmp_path / "empty.jsonl")
    with pytest.raises(InputError, match=r"absent\.jsonl cannot be read: No such file"):
        check_ids_file(tmp_path / "absent.jsonl")


def test_only_the_first_twenty_problems_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "ids.jsonl"
    path.write_text("{}\n" * 50)
    with pytest.raises(InputError) as caught:
        check_ids_file(path)
    lines = str(caught.value).splitlines()
    assert len(lines) == 22
    assert lines[-2] == "... and 30 more"


def test_features_that_do_not_fit_on_the_disk_are_refused_before_the_first_forward(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples(LENGTHS))
    full = DiskSpace(tmp_path, 0, lambda _: SimpleNamespace(f_bavail=1000, f_frsize=1))  # type: ignore[arg-type, return-value]
    with pytest.raises(
        InputError, match=r"276 tokens at 1,040 bytes each in float32, need 288\.\d KiB; .* has 1000 bytes"
    ):
        _extract_ids(ids, tiny_models["llama"], tmp_path / "out", dtype="float32", space=full)
    assert not (tmp_path / "out").exists()


def test_a_sample_with_states_that_are_not_finite_is_refused_by_name(
    tmp_path: Path, tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from eagletui.extract.capture import Capture

    plain = Capture._run

    def overflowing(self: Capture, ids: torch.Tensor, extra: dict[str, Any]) -> torch.Tensor:
        states = plain(self, ids, extra)
        return states.fill_(float("inf")) if len(ids) == 33 else states

    monkeypatch.setattr(Capture, "_run", overflowing)
    said: list[tuple[str, str]] = []
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples(LENGTHS))
    done = _extract_ids(ids, tiny_models["llama"], tmp_path / "out", said=said, dtype="float32")
    assert (done.samples, done.refused) == (5, 1)
    assert ("sample_refused", "s1 gets no features: 33 of 33 rows are not finite; the dtype may be too narrow.") in said


def test_samples_longer_than_the_model_has_positions_are_refused_by_name(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    said: list[tuple[str, str]] = []
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples((1024, 1025, 20)))
    done = _extract_ids(ids, tiny_models["llama"], tmp_path / "out", said=said, dtype="float32")
    assert (done.samples, done.refused, done.left_out) == (2, 1, 0)
    assert (
        "sample_refused",
        "s1 gets no features: 1,025 tokens do not fit: the model has 1,024 positions.",
    ) in said
    ids = _write_ids(tmp_path / "longer.jsonl", random_samples((1025, 2000)))
    with pytest.raises(ModelError, match=r"None of 2 samples can be computed\. 1,025 tokens do not fit"):
        _extract_ids(ids, tiny_models["llama"], tmp_path / "none", dtype="float32")
    assert not (tmp_path / "none").exists()


def test_a_model_that_does_not_load_leaves_nothing_behind(tmp_path: Path) -> None:
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples(LENGTHS))
    with pytest.raises(ModelError, match="No model at"):
        _extract_ids(ids, tmp_path / "nowhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()
