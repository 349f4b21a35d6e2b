"""Features of runs that are joined."""

import threading
from functools import partial
from pathlib import Path

import pytest

from eagletui.config.run_config import config_from_json
from eagletui.config.toml import to_toml
from eagletui.core.errors import RunError
from eagletui.extract.acknowledged import Stream, read_acknowledged
from eagletui.extract.choices import Choices
from eagletui.extract.ledger_source import describe_shard
from eagletui.extract.manifest import read_manifest, read_shard_list
from eagletui.extract.run_features import RunExtractor
from eagletui.extract.shards import MARK
from eagletui.extract.verify import verify
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer_extract import ExtractorWriter
from eagletui.merge import merge_runs
from eagletui.runs.folder import RunFolder
from tests.extract.small_run import answer_samples, create_run, finish_run
from tests.tiny_models import Kind, random_samples


@pytest.fixture
def extracted(tmp_path: Path, tiny_models: dict[Kind, Path], monkeypatch: pytest.MonkeyPatch) -> list[RunFolder]:
    """Two runs of two samples each, with features: one beside its ledger, one below a URL."""
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path))
    folders = []
    for number in range(2):
        folder = create_run(tmp_path / f"run{number}", tiny_models["llama"])
        folder.tokenizer_dir.mkdir()
        folder.vocabulary_path.write_bytes(b"")
        answer_samples(folder, [((1, 2), ids) for ids in random_samples((5, 7), seed=number)], first=2 * number)
        finish_run(folder)
        storage = f"file://{tmp_path}/far" if number else None
        with LedgerReader(folder.ledger_path) as reader, ExtractorWriter(folder.ledger_path) as writer:
            folder.config_path.write_text(to_toml(config_from_json(reader.run().config_json)))
            RunExtractor(folder, reader, writer, Choices(follow=False, storage=storage), threading.Event()).run()
        folders.append(folder)
    return folders


def test_features_come_along_belong_to_the_joined_run_and_verify(
    extracted: list[RunFolder], tiny_models: dict[Kind, Path]
) -> None:
    assert verify(extracted[1].features_dir, tiny_models["llama"]).ok
    made = merge_runs(extracted, "joined")
    listed = read_shard_list(made.folder.features_dir)
    assert [shard.path for shard in listed] == ["shards/000000.safetensors", "shards/000001.safetensors"]
    with LedgerReader(made.folder.ledger_path) as reader:
        assert [(shard.path, shard.xxh3) for shard in reader.shards()] == [(s.path, s.xxh3) for s in listed]
        assert reader.snapshot().extract.samples == 4
    assert read_manifest(made.folder.features_dir).source == "run joined"
    assert verify(made.folder.features_dir, tiny_models["llama"]).ok


def test_a_missing_or_cut_shard_is_named_and_nothing_is_merged(extracted: list[RunFolder]) -> None:
    (shard,) = (extracted[0].path.parent / "far" / "shards").iterdir()
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    with pytest.raises(RunError, match=f"found {len(whole) - 1:,} bytes, expected {len(whole):,}"):
        merge_runs(extracted, "joined")
    shard.unlink()
    with pytest.raises(RunError, match="is not there, and the ledger counts on it"):
        merge_runs(extracted, "joined")
    assert not (extracted[0].path.parent / "joined").exists()


@pytest.mark.parametrize(
    "by",
    ["extractor", pytest.param("trainer", marks=pytest.mark.slow), None],
    ids=["listed and deleted", "deleted", "only marked"],
)
def test_what_a_trainer_has_acknowledged_stays_acknowledged(
    extracted: list[RunFolder], tiny_models: dict[Kind, Path], by: str | None
) -> None:
    shard = "shards/000000.safetensors"
    here = extracted[0].features_dir
    (here / f"{shard}{MARK}").touch()
    if by == "extractor":
        Stream(here, 1, partial(describe_shard, extracted[0].ledger_path)).begin([shard])
        assert not (here / shard).exists()
    elif by == "trainer":
        (here / shard).unlink()
    joined = merge_runs(extracted, "joined").folder
    assert set(read_acknowledged(joined.features_dir)) == ({shard} if by is not None else set())
    with LedgerReader(joined.ledger_path) as reader, ExtractorWriter(joined.ledger_path) as writer:
        choices = Choices(follow=False, stream_ahead=1)
        assert RunExtractor(joined, reader, writer, choices, threading.Event()).run().progress.samples == 0
        assert reader.snapshot().extract.samples == 4
    (known,) = read_acknowledged(joined.features_dir).values()
    assert (known.path, known.sample_ids) == (shard, ("s0", "s1"))
    assert [path.name for path in (joined.features_dir / "shards").iterdir()] == ["000001.safetensors"]
    verdict = verify(joined.features_dir, tiny_models["llama"])
    assert (verdict.ok, verdict.samples) == (True, 2)
