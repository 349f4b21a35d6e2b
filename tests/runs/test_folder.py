"""Folders of runs."""

import os
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from eagletui.core.errors import RunError
from eagletui.runs.find import find
from eagletui.runs.folder import RunFolder, create_folder
from tests.runs.bare_run import bare_run


def test_a_new_folder_is_private_and_holds_the_places_of_a_run(root: Path) -> None:
    folder = create_folder("b3-magicoder")
    assert folder.path == root / "b3-magicoder"
    for place in (folder.path, folder.log_path("engine").parent, folder.features_dir, folder.provider_dir):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert create_folder("b3-magicoder") == folder


def test_what_names_a_run_in_a_command_finds_it_from_where_the_command_is_given(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "work"
    here.mkdir()
    monkeypatch.chdir(here)
    among = bare_run("a run")
    below, away = RunFolder(here / "copies" / "b"), RunFolder(tmp_path / "el se" / "c")
    for folder in (below, away):
        shutil.copytree(among.path, folder.path)
    assert (among.argument, below.argument) == ("'a run'", "./copies/b")
    shutil.copytree(among.path, here / "d")
    assert RunFolder(Path("d")).argument == "./d", "not the run of that name"
    for folder in (among, below, away, RunFolder(here / "d")):
        (given,) = shlex.split(folder.argument)
        assert find(given).path.samefile(folder.path)
    monkeypatch.chdir(below.path)
    assert find(*shlex.split(below.argument)).path.samefile(below.path)


def test_a_name_that_cannot_be_shown_is_written_as_a_shell_reads_it(root: Path) -> None:
    name = os.fsdecode(b"it's \\ \x1b]0;owned\x07\xff \xe2\x80\xae7")
    bare_run("a").path.rename(root / name)
    argument = RunFolder(root / name).argument
    assert argument.isascii()
    assert argument.isprintable()
    read = subprocess.run(["bash", "-c", f"printf %s {argument}"], capture_output=True, check=True).stdout
    assert read == os.fsencode(name)


def test_a_run_is_named_by_its_path_where_the_working_folder_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EAGLETUI_RUNS")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    folder = RunFolder(tmp_path / "a run")
    assert folder.argument == folder.argument_anywhere == f"'{tmp_path}/a run'"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "/etc", "-rf", "a\nb", "a\x1b[31m"])
def test_a_name_that_is_no_plain_folder_name_is_refused(root: Path, name: str) -> None:
    with pytest.raises(RunError, match="cannot name a run"):
        create_folder(name)
    assert not root.exists()


def test_a_place_that_cannot_be_written_is_named(root: Path) -> None:
    root.write_text("a file where the folder should be")
    with pytest.raises(RunError, match=r"runs/a cannot be made: "):
        create_folder("a")
