"""Files replaced in one step."""

import resource
import stat
from pathlib import Path

import pytest

from eagletui.files.replacement import replace_text


def test_a_file_that_the_disk_does_not_take_leaves_the_old_one_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    replace_text(path, "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            replace_text(path, "new" * 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [file.name for file in tmp_path.iterdir()] == ["config.toml"]
    assert path.read_text() == "old"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_a_kill_left_of_a_file_with_one_writer_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    (tmp_path / ".config.toml.new").write_text("half")
    replace_text(path, "whole")
    assert [file.name for file in tmp_path.iterdir()] == ["config.toml"]
    assert path.read_text() == "whole"
