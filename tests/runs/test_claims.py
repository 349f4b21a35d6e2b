"""A run that a command is about to start stays in its place."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from eagletui.core.errors import LockedError, RunError
from eagletui.ledger.locks import RoleLock
from eagletui.runs import claims
from eagletui.runs.claims import Claim, unclaimed
from eagletui.runs.folder import RunFolder
from eagletui.runs.making import replace, staged
from eagletui.runs.setting_aside import publish, restore
from tests.runs.bare_run import bare_run


def test_a_claimed_run_is_not_replaced_and_a_claim_is_shared(root: Path) -> None:
    final = bare_run("a")
    with staged("a", replaces=True) as stage, Claim() as first, Claim() as second:
        stage.ledger_path.touch()
        first.take(final)
        second.take(final)
        first.release()
        with pytest.raises(LockedError, match="Another command is just starting run a"):
            replace(stage, final, lambda _: None)
        assert final.ledger_path.stat().st_size > 0
        second.release()
        replace(stage, final, lambda _: None)
    assert final.ledger_path.stat().st_size == 0


def test_a_claim_taken_before_a_run_has_its_name_holds_when_it_has(root: Path) -> None:
    final = bare_run("a")
    with staged("a", replaces=True) as stage, Claim() as claim:
        stage.ledger_path.touch()
        claim.take(stage)
        replace(stage, final, lambda _: None)
        with pytest.raises(LockedError), unclaimed(final):
            pass
    with unclaimed(final):
        pass


def test_whoever_waited_while_a_run_was_replaced_claims_the_new_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = bare_run("a")
    waited = False

    def flock(descriptor: int, operation: int) -> None:
        nonlocal waited
        if not waited:
            waited = True
            replace(stage, final, lambda _: None)
        fcntl.flock(descriptor, operation)

    names = SimpleNamespace(**{**vars(fcntl), "flock": flock})
    monkeypatch.setattr("eagletui.runs.claims.fcntl", names)
    with staged("a", replaces=True) as stage, Claim() as claim:
        stage.ledger_path.touch()
        claim.take(final)
        with pytest.raises(LockedError), unclaimed(final):
            pass


def test_a_run_that_is_just_being_replaced_or_was_left_half_replaced_is_waited_for_and_claimed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = bare_run("a")
    final.path.rename(root / ".a.old")
    with staged("a", replaces=True) as stage, RoleLock(root / ".a.old", "engine"), Claim() as claim:

        def restoring(folder: RunFolder) -> None:
            restore(folder)
            assert not folder.path.exists(), "it is still being replaced"
            publish(stage, final)

        stage.ledger_path.touch()
        monkeypatch.setattr(claims, "restore", restoring)
        claim.take(final)
        with pytest.raises(LockedError), unclaimed(final):
            pass
    assert final.ledger_path.stat().st_size == 0, "the new one"
    monkeypatch.setattr(claims, "restore", restore)
    shutil.rmtree(final.path)
    with Claim() as claim:
        claim.take(final)
    assert final.ledger_path.stat().st_size > 0, "the old one, which nobody replaces any more"


@pytest.mark.parametrize("taking", [lambda run: Claim().take(run), lambda run: unclaimed(run).__enter__()])
def test_a_disk_without_locks_is_an_error_of_the_run_and_leaves_nothing_open(
    root: Path, monkeypatch: pytest.MonkeyPatch, taking: Callable[[RunFolder], None]
) -> None:
    opened: list[int] = []

    def flock(descriptor: int, _operation: int) -> None:
        opened.append(descriptor)
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    final = bare_run("a")
    monkeypatch.setattr("eagletui.runs.claims.fcntl", SimpleNamespace(**{**vars(fcntl), "flock": flock}))
    with pytest.raises(RunError, match=r"start\.lock cannot be written: No locks available"):
        taking(final)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_a_run_that_is_not_there_cannot_be_claimed(root: Path) -> None:
    with Claim() as claim, pytest.raises(RunError, match=r"start\.lock cannot be written: No such file"):
        claim.take(RunFolder(root / "gone"))
