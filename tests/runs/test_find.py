"""Runs found by name, folder and ledger file, and listed."""

from pathlib import Path

import pytest

from eagletui.core.errors import RunError
from eagletui.runs.find import find, list_runs
from eagletui.runs.folder import create_folder
from tests.runs.bare_run import bare_run


def test_a_run_is_found_by_name_folder_and_ledger_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bare_run("demo")
    monkeypatch.chdir(tmp_path)
    for given in ("demo", str(folder.path), "runs/demo", "runs/demo/", str(folder.ledger_path)):
        assert find(given).path.resolve() == folder.path.resolve()
        assert find(given).name == "demo"
    monkeypatch.chdir(folder.path)
    for given in (".", "ledger.sqlite"):
        assert find(given).name == "demo"


def test_a_name_inside_the_runs_wins_over_a_folder_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bare_run("demo")
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find("demo") == folder


def test_a_path_is_the_folder_it_leads_to_and_not_one_below_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare_run("demo")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "demo").mkdir(parents=True)
    (elsewhere / "demo" / "ledger.sqlite").touch()
    monkeypatch.chdir(elsewhere)
    assert find("./demo").path == (elsewhere / "demo").resolve()


def test_an_unknown_run_is_answered_with_near_names() -> None:
    with pytest.raises(RunError, match=r"No run named 'demo'\. There are no runs in .*EAGLETUI_RUNS"):
        find("demo")
    bare_run("demo-2")
    bare_run("other")
    with pytest.raises(RunError, match=r"No run named 'dmo-2'\. Did you mean demo-2\?"):
        find("dmo-2")
    with pytest.raises(RunError, match=r"There are: demo-2, other\."):
        find("zzzzzz")
    with pytest.raises(RunError):
        find("")


def test_runs_are_listed_by_name_and_folders_without_a_ledger_are_not(root: Path) -> None:
    assert list_runs() == []
    for name in ("b", "a"):
        bare_run(name)
    create_folder("half-made")
    (root / "notes.txt").write_text("not a run")
    assert [folder.name for folder in list_runs()] == ["a", "b"]
