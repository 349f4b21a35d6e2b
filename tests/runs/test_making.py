"""Runs made beside the others, and in the place of older ones."""

import errno
import os
from pathlib import Path

import pytest

from eagletui.core.errors import RunError
from eagletui.ledger.locks import RoleLock
from eagletui.runs.find import find
from eagletui.runs.folder import RunFolder
from eagletui.runs.making import BeingMadeError, await_made, replace, staged
from eagletui.runs.setting_aside import publish, restore
from tests.runs.bare_run import bare_run


def test_whoever_comes_second_to_make_a_run_neither_makes_nor_removes_it(root: Path) -> None:
    final = RunFolder(root / "a")
    with staged("a") as stage:
        with pytest.raises(BeingMadeError, match="is being made by another process"), staged("a"):
            pass
        stage.ledger_path.touch()
        publish(stage, final)
        with pytest.raises(BeingMadeError, match="which has ended"), staged("a"):
            pass
    assert [path.name for path in root.iterdir()] == ["a"]
    assert await_made("a") == final


def test_a_disk_that_fills_while_a_run_is_made_is_named_and_nothing_of_the_run_stays(root: Path) -> None:
    full = r"Run a cannot be made: .*/key\.mark: No space left on device\."
    with pytest.raises(RunError, match=full), staged("a") as stage:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(stage.path / "key.mark"))
    assert list(root.iterdir()) == []


def _keep(_old: RunFolder) -> None:
    raise RunError("It was used.")


def test_a_run_stays_if_it_was_used_while_the_one_for_its_place_was_made(root: Path) -> None:
    final = bare_run("a")
    with staged("a", replaces=True) as stage:
        stage.ledger_path.touch()
        with pytest.raises(RunError, match=r"It was used\."):
            replace(stage, final, _keep)
    assert [path.name for path in root.iterdir()] == ["a"]
    assert final.ledger_path.stat().st_size > 0


def test_a_run_gets_its_name_back_if_the_one_for_its_place_cannot_have_it(root: Path) -> None:
    final = bare_run("a")
    with pytest.raises(RunError, match=r"runs/a cannot be made: No such file or directory\."):
        replace(RunFolder(root / "gone"), final, lambda _: None)
    assert [path.name for path in root.iterdir()] == ["a"]
    assert final.ledger_path.is_file()


def test_a_run_whose_replacing_was_cut_short_is_put_back_unless_it_still_goes_on(root: Path) -> None:
    final = bare_run("a")
    final.path.rename(root / ".a.old")
    with RoleLock(root / ".a.old", "engine"):
        restore(final)
        assert not final.path.exists()
    assert find("a") == final
    assert [path.name for path in root.iterdir()] == ["a"]
