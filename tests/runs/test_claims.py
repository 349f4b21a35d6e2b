"""A run that a command is about to start stays in its place."""

import fcntl
from pathlib import Path
from types import SimpleNamespace

import pytest

from eagletui.core.errors import LockedError, RunError
from eagletui.runs.claims import Claim, unclaimed
from eagletui.runs.folder import RunFolder
from eagletui.runs.making import replace, staged
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


def test_a_run_that_is_not_there_cannot_be_claimed(root: Path) -> None:
    with Claim() as claim, pytest.raises(RunError, match=r"start\.lock cannot be written: No such file"):
        claim.take(RunFolder(root / "gone"))
