"""One export at a time writes ids into a folder, and what killed ones left there goes."""

from pathlib import Path

import pytest

from eagletui.core.errors import LockedError
from eagletui.export.jsonl import export_jsonl
from eagletui.export.trainer_folder import alone
from eagletui.runs.folder import RunFolder
from tests.export.exported_run import command
from tests.extract.small_run import answer_samples, create_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    made = create_run(tmp_path_factory.mktemp("run") / "run", None)
    answer_samples(made, [((1, 2), (3, number)) for number in range(4)])
    return made


def test_what_killed_exports_left_half_written_goes_and_nothing_else(run: RunFolder, tmp_path: Path) -> None:
    entries = tmp_path / "cache" / "tokenized_dataset"
    entries.mkdir(parents=True)
    left = [tmp_path / f".{name}.99.tmp" for name in ("train.jsonl", "validation.parquet", "manifest.json")]
    left.append(entries / f".{'0f' * 16}.pt.99.tmp")
    others = [tmp_path / ".notes.99.tmp", tmp_path / ".train.jsonl.old.tmp", entries / ".mine.pt.99.tmp"]
    for path in (*left, *others):
        path.write_bytes(b"half")
    arguments = ("--model", "named/target", "--max-length", "64", "--chat-template", "qwen", "--json")
    command("export", str(run.path), "--to", "torchspec", "--out", str(tmp_path), *arguments)
    assert [path for path in left if path.exists()] == []
    assert all(path.read_bytes() == b"half" for path in others)
    assert (tmp_path / "train.jsonl").stat().st_size > 0


def test_an_export_waits_for_no_other_in_its_folder_and_says_so(run: RunFolder, tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(LockedError, match=f"Another export writes into {tmp_path}"):
        export_jsonl(run, tmp_path)
    assert list(tmp_path.iterdir()) == []
