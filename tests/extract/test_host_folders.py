"""Folders in which workers of a cluster let shards grow, and those that killed workers left."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagletui.extract.host_folders import HostFolders

OWNER = """
import sys, tempfile
from pathlib import Path
from eagletui.extract.host_folders import HostFolders
tempfile.tempdir = sys.argv[1]
with HostFolders.of(Path("/runs/a/features"), "s3://b/a").new() as folder:
    (folder / "half.safetensors.tmp").write_bytes(b"half a shard")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let temporary files lie in a folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def owner(place: Path) -> "Iterator[subprocess.Popen[str]]":
    """Another process with a folder of run a."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def test_a_killed_owner_s_folder_is_removed_and_neither_a_living_one_s_nor_another_run_s(
    owner: "subprocess.Popen[str]", place: Path
) -> None:
    assert owner.stdout is not None
    theirs = Path(owner.stdout.readline().strip())
    mine = HostFolders.of(Path("/runs/a/features"), "s3://b/a")
    other = HostFolders.of(Path("/runs/b/features"), "s3://b/a")
    with mine.new() as folder, other.new() as of_other_run:
        (place / f"{mine.prefix}link").symlink_to(of_other_run)
        assert mine.sweep() == 0
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert theirs.is_dir()
        assert other.sweep() == 0
        assert mine.sweep() == 1
        assert not theirs.exists()
        assert folder.is_dir()
        assert of_other_run.is_dir()
    assert not folder.exists()
