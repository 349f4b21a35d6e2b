"""Before the first forward: does it fit, what would, and are they the weights that were served."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eagletui.cli.app import main
from eagletui.core.errors import InputError
from eagletui.core.features import folder_bytes
from eagletui.extract.choices import Choices
from eagletui.extract.engines import Order
from eagletui.extract.manifest import read_manifest
from eagletui.extract.preflight import Need, foresee, require_room, short_of
from eagletui.extract.space import DiskSpace
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_features import FeaturesReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.models.identity import stored_quantization
from tests.extract.small_run import answer_samples, create_run, finish_run
from tests.extract.small_shards import records, write_shard
from tests.extract.test_file_run import _extract_ids, _write_ids
from tests.extract.test_run_features import _events, _ids, _run_here, _stored
from tests.tiny_models import Kind, random_samples


def _space(folder: Path, free: int) -> DiskSpace:
    return DiskSpace(folder, 0, lambda _: SimpleNamespace(f_bavail=free, f_frsize=1))  # type: ignore[arg-type, return-value]


def test_what_does_not_fit_is_refused_with_the_figures_and_what_would_fit(tmp_path: Path) -> None:
    need = Need(samples=1000, tokens=1_000_000, hidden_size=64, stored="bfloat16")
    assert need.bytes == folder_bytes(1_000_000, 64, "bfloat16")
    require_room(_space(tmp_path, need.bytes), need, "or elsewhere")
    with pytest.raises(InputError) as caught:
        require_room(_space(tmp_path, need.bytes - 1), need, "or elsewhere")
    said = str(caught.value)
    assert "Features of 1,000 samples, 1,000,000 tokens at 528 bytes each in bfloat16, need 518.6 MiB; " in said
    assert "has 518.6 MiB to give" in said
    assert "--dtype fp8 needs 271.1 MiB, which fits; --token-budget 999999 takes a subset" in said
    assert said.endswith("or elsewhere. Nothing was written.")


def test_the_offered_budget_fits_and_fp8_is_offered_only_where_it_helps(tmp_path: Path) -> None:
    need = Need(samples=100, tokens=1000, hidden_size=64, stored="float32")
    with pytest.raises(InputError, match=r"fp8 needs .*, which does not fit either") as caught:
        require_room(_space(tmp_path, 100_000), need, "or elsewhere")
    (tokens,) = re.findall(r"--token-budget (\d+)", str(caught.value))
    assert folder_bytes(int(tokens), 64, "float32") <= 100_000 < folder_bytes(int(tokens) + 2, 64, "float32")
    with pytest.raises(InputError) as caught:
        require_room(_space(tmp_path, 10), Need(1, 10, 64, "fp8"), "or elsewhere")
    assert "What there is: free some space; or elsewhere" in str(caught.value)


def test_the_need_is_known_before_the_model_is_loaded(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    model = tiny_models["kimi_k25"]
    assert foresee(Order(model), 3, 100) == Need(3, 100, 64, "float32")
    assert foresee(Order(model, dtype="fp8"), 3, 100) == Need(3, 100, 64, "fp8")
    ids = _write_ids(tmp_path / "ids.jsonl", random_samples((50, 60)))
    for shard in model.glob("*.safetensors"):
        (tmp_path / "hollow").mkdir(exist_ok=True)
        (tmp_path / "hollow" / shard.name).write_bytes(b"no weights at all")
    (tmp_path / "hollow" / "config.json").write_text((model / "config.json").read_text())
    with pytest.raises(InputError, match="110 tokens at 1,040 bytes each in float32"):
        _extract_ids(ids, tmp_path / "hollow", tmp_path / "out", space=_space(tmp_path, 1000))
    assert not (tmp_path / "out").exists()


def test_a_budget_takes_its_share_of_every_data_set_and_a_second_call_stays_within_it(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    ids = tmp_path / "ids.jsonl"
    lines = [
        {"id": f"{name}{number}", "dataset": name, "prompt_ids": [1, 2], "output_ids": [3] * 8}
        for name in ("code", "chat")
        for number in range(10)
    ]
    ids.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "out"
    done = _extract_ids(ids, tiny_models["llama"], out, token_budget=105)
    assert (done.samples, done.rows, done.left_out, done.computed) == (10, 100, 10, 10)
    keys = json.loads(_metadata(out, 0)["sample_ids"])
    assert sum(key.startswith("code") for key in keys) == 5
    again = _extract_ids(ids, tiny_models["llama"], out, token_budget=105)
    assert (again.samples, again.computed, again.left_out) == (10, 0, 10)
    more = _extract_ids(ids, tiny_models["llama"], out)
    assert (more.samples, more.computed, more.left_out) == (20, 10, 0)


def test_the_offered_budget_counts_what_is_there_so_that_taking_it_computes_what_fits(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    ids = tmp_path / "ids.jsonl"
    lines = [{"id": f"s{number}", "prompt_ids": [1, 2], "output_ids": [3] * 8} for number in range(20)]
    ids.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "out"
    _extract_ids(ids, tiny_models["llama"], out, token_budget=100)
    little = _space(tmp_path, folder_bytes(40, 64, "float32"))
    with pytest.raises(InputError) as caught:
        _extract_ids(ids, tiny_models["llama"], out, space=little)
    assert "--dtype fp8" not in str(caught.value), "a folder holds one type"
    ((budget, share),) = re.findall(r"--token-budget (\d+) .* \((\d+)% of the tokens that wait\)", str(caught.value))
    assert (int(budget), int(share)) == (140, 40)
    more = _extract_ids(ids, tiny_models["llama"], out, token_budget=int(budget))
    assert (more.computed, more.samples, more.rows) == (4, 14, 140)


def test_a_run_that_has_features_is_offered_a_budget_above_them(tmp_path: Path, tiny_models: dict[Kind, Path]) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"], when="after")
    answer_samples(folder, _ids(*(20,) * 5))
    _run_here(folder)
    answer_samples(folder, _ids(*(20,) * 5), first=5)
    finish_run(folder)
    little = _space(tmp_path, folder_bytes(40, 64, "float32"))
    with pytest.raises(InputError, match=r"--token-budget 140 takes"):
        _run_here(folder, Choices(follow=True, space=little))
    _run_here(folder, Choices(follow=True, token_budget=140))
    assert len(_stored(folder)) == 7


def _left_by_a_crash(features: Path, space_bytes: int) -> DiskSpace:
    """Leave a whole shard that nobody committed on a disk that has no room beside it."""
    orphan = write_shard(features, records(5), number=7)
    with (features / orphan.path).open("ab") as stream:
        stream.write(bytes(space_bytes))

    def statvfs(_folder: Path) -> SimpleNamespace:
        used = sum(file.stat().st_blocks * 512 for file in features.rglob("*") if file.is_file())
        return SimpleNamespace(f_bavail=space_bytes - used, f_frsize=1)

    return DiskSpace(features, 0, statvfs)  # type: ignore[arg-type]


def test_the_room_that_an_interrupted_extraction_left_taken_counts_as_free_and_its_shard_as_no_data(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    room = 300_000
    folder = create_run(tmp_path / "run", tiny_models["llama"], when="after")
    answer_samples(folder, _ids(*(20,) * 4))
    finish_run(folder)
    done = _run_here(folder, Choices(follow=True, space=_left_by_a_crash(folder.features_dir, room)))
    assert done.progress.samples == 4
    assert set(_stored(folder)) == {"s0", "s1", "s2", "s3"}
    assert any("Removed shards/000007.safetensors" in message for _, message in _events(folder))

    ids, out = _write_ids(tmp_path / "ids.jsonl", random_samples((20, 30))), tmp_path / "out"
    _extract_ids(
        _write_ids(tmp_path / "ids.jsonl", random_samples((20, 30))), tiny_models["llama"], out, token_budget=30
    )
    more = _extract_ids(ids, tiny_models["llama"], out, space=_left_by_a_crash(out, room))
    assert (more.samples, more.rows, more.shards) == (2, 50, 2)


def _metadata(out: Path, number: int) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(out / "shards" / f"{number:06d}.safetensors", framework="pt") as opened:
        metadata: dict[str, str] = opened.metadata()
        return metadata


def test_the_census_of_a_run_counts_what_extraction_would_compute(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(40, 7))
    _run_here(folder)
    answer_samples(folder, _ids(150), first=2)
    answer_samples(folder, _ids(9), first=3, usability="text_suspect")
    answer_samples(folder, [(None, (1, 2, 3))], first=4)
    with FeaturesReader(folder.ledger_path) as reader:
        assert [row[1:] for row in reader.census()] == [
            ("s0", "tiny", 40, True),
            ("s1", "tiny", 7, True),
            ("s2", "tiny", 150, False),
        ]


def test_a_run_is_extracted_up_to_a_budget_and_refused_where_it_does_not_fit(
    tmp_path: Path, tiny_models: dict[Kind, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"], when="after")
    answer_samples(folder, _ids(*(20,) * 10))
    finish_run(folder)
    full = Choices(follow=True, space=_space(tmp_path, 1000))
    with pytest.raises(InputError, match="Features of 10 samples, 200 tokens at 1,040 bytes"):
        _run_here(folder, full)
    with pytest.raises(SystemExit) as end:
        main(("extract", str(folder.path), "--token-budget", "70", "--json"))
    assert end.value.code == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (printed["samples"], printed["rows"], printed["left_out"]) == (3, 60, 7)
    assert len(_stored(folder)) == 3


def test_a_live_run_that_will_hardly_fit_is_warned_of_and_goes_on(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(*(20,) * 20))
    space = _space(tmp_path, folder_bytes(900, 64, "float32"))
    need = Need(20, 400, 64, "float32")
    with LedgerReader(folder.ledger_path) as reader:
        snapshot = reader.snapshot()
        assert short_of(space, need, snapshot, 4096) is None
        queued = SimpleNamespace(states={**snapshot.states, "queued": 30}, tokens=snapshot.tokens)
        said = short_of(space, need, queued, 4096)  # type: ignore[arg-type]
    # 20 that wait and 30 to come, 20 tokens each.
    assert said is not None
    assert said.startswith("Features of 50 samples will need 1.0 MiB at 20 tokens each, as so far, and ")
    finish_run(folder)
    done = _run_here(folder, Choices(follow=True, space=_space(tmp_path, 10**7)))
    assert done.progress.samples == 20


def test_weights_other_than_the_served_ones_are_warned_of_and_both_are_in_the_manifest(
    tmp_path: Path, tiny_models: dict[Kind, Path]
) -> None:
    folder = create_run(tmp_path / "run", tiny_models["llama"])
    answer_samples(folder, _ids(10))
    with LedgerWriter(folder.ledger_path) as writer:
        writer.upsert_endpoint("cheap/int4", "Cheap", "int4")
        writer.upsert_endpoint("same/bf16", "Same", "bf16")
        writer.upsert_endpoint("silent", "Silent", None)
    _run_here(folder)
    (message,) = [message for kind, message in _events(folder) if kind == "quantization_differs"]
    assert message.startswith("Answers came from cheap/int4 (int4), and llama is stored as plain floating point: its ")
    manifest = read_manifest(folder.features_dir)
    assert manifest.served_quantizations == {"cheap/int4": "int4", "same/bf16": "bf16", "silent": None}
    assert manifest.extraction_quantization is None


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "gptq", "bits": 4}, "gptq int4"),
        ({"quant_method": "awq", "bits": 4}, "awq int4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes int4"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
            },
            "compressed-tensors int4",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "compressed-tensors fp8",
        ),
    ],
)
def test_a_checkpoint_s_quantization_is_named_with_its_numbers(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"quantization_config": config}}))
    assert stored_quantization(tmp_path) == name
