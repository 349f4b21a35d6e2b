"""Faults that training would not survive: `verify` rejects each, whether the trainer's loader notices or not."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.export.exported_run import ExportedRun, verify
from tests.export.mutations import FAULTS, Fault, alter_id, damage, make_vocabulary_stale, truncate

pytestmark = pytest.mark.conformance

TRAINERS = ("speculators", "specforge")


@pytest.fixture
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    out, _ = request.getfixturevalue(f"{request.param}_export")
    shutil.copytree(out, tmp_path / request.param)
    return tmp_path / str(request.param)


def _loaded_rows(out: Path) -> int:
    """Count the rows that the trainer's own loader gives out without a word."""
    if out.name == "speculators":
        from speculators.train.data import ArrowDataset
        from speculators.train.recovery import SampleUnavailable

        dataset = ArrowDataset(4096, str(out), on_missing="raise")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows: list[Any] = [dataset[index] for index in range(len(dataset))]
        return sum(not isinstance(row, SampleUnavailable) for row in rows)
    from specforge.runtime.data_plane.feature_store import load_feature_file
    from specforge.runtime.data_plane.offline_reader import OfflineManifestReader

    refs = OfflineManifestReader(str(out), validate_files=True).read()
    return sum(bool(load_feature_file(ref.feature_store_uri.removeprefix("file://"))) for ref in refs)


@pytest.mark.parametrize("copied", TRAINERS, indirect=True)
def test_a_good_export_passes(made: ExportedRun, copied: Path) -> None:
    assert verify(made, copied, code=0) == {}


@pytest.mark.parametrize("cover", [False, True], ids=["plain", "covered"])
@pytest.mark.parametrize(("fault", "check"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
@pytest.mark.parametrize("copied", TRAINERS, indirect=True)
def test_every_fault_of_a_row_is_rejected(
    made: ExportedRun, copied: Path, fault: Fault, check: str, cover: bool
) -> None:
    damage(copied, made.model, 1, fault, cover=cover)
    accepted = _loaded_rows(copied)
    if fault is not alter_id or copied.name == "specforge":
        assert accepted == len(made.samples), "the trainer notices: say so in the facts this test rests on"
    failed = verify(made, copied, code=1)
    assert check in failed
    assert ("files" in failed) is not cover


@pytest.mark.parametrize("copied", TRAINERS, indirect=True)
def test_a_truncated_file_is_rejected(made: ExportedRun, copied: Path) -> None:
    truncate(copied, 2)
    failed = verify(made, copied, code=1)
    assert "bytes instead of" in failed["files"]
    assert "cannot be read" in failed["layout"]


@pytest.mark.parametrize("copied", TRAINERS, indirect=True)
def test_a_stale_vocabulary_is_rejected_that_the_trainer_takes(made: ExportedRun, copied: Path) -> None:
    make_vocabulary_stale(copied)
    if copied.name == "specforge":
        from specforge.core.compact_teacher import validate_vocab_mapping_consistency

        mapping = torch.load(copied / "vocab_mapping" / "vocab_mapping.pt", weights_only=True)
        validate_vocab_mapping_consistency(mapping["t2d"], mapping["d2t"])
    assert "stale" in verify(made, copied, code=1)["vocabulary"]


@pytest.mark.parametrize("copied", TRAINERS, indirect=True)
def test_a_missing_a_foreign_and_a_moved_file_are_rejected(made: ExportedRun, copied: Path) -> None:
    files = sorted(
        path for path in copied.rglob("*") if path.name.startswith(("hs_", "data_")) and "arrow" not in path.name
    )
    files[0].rename(files[0].with_name(files[0].name.replace("0", "77", 1)))
    failed = verify(made, copied, code=1)["files"]
    assert "is missing" in failed
    assert "is of no row" in failed
