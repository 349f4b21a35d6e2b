"""Lines appended to lists that are the truth about a folder."""

import resource
from pathlib import Path

import pytest

from eagletui.files.appending import append_line


def test_a_line_that_the_disk_takes_in_part_leaves_the_list_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "list.jsonl"
    append_line(path, "first")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            append_line(path, "second" * 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    append_line(path, "third")
    assert path.read_text().splitlines() == ["first", "third"]
