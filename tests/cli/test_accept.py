"""`eagletui accept`: what is signed is what the ledger holds, and exports carry it."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from eagletui.core.fidelity import PROVED
from eagletui.core.tokdiff import Span
from eagletui.core.verdicts import Doubtful, basis
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.folder import RunFolder
from tests.cli.conftest import Command
from tests.kept_run import answered_run, kept

RULE = "same bytes, other cut"


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return answered_run(tmp_path_factory.mktemp("answered") / "run", 48, sampling={"max_tokens": 256})


@pytest.fixture
def run(answered: RunFolder, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(answered.path, tmp_path / "run")))


def test_a_verdict_counts_what_the_ledger_holds_and_is_kept(eagletui: Command, run: RunFolder) -> None:
    items = kept(run)
    resegmented = [i for i in items if i.row.evidence in PROVED and i.row.spans]
    unproved = [i for i in items if i.row.evidence in ("conflict", "canonical")]
    assert resegmented
    differ = sum(
        len(span.a_ids) if len(span.a_ids) > len(span.b_ids) else len(span.b_ids)
        for item in resegmented
        if item.tokens is not None
        for span in item.tokens.spans
        if span.kind == "~"
    )
    ended = eagletui("accept", str(run.path), "--dataset", "test", "--rule", RULE, "--by", "Kim", "--json")
    assert ended.code == 0, ended.err
    told = ended.json
    assert (told["samples"], told["mismatched"]) == (48, len(resegmented) + len(unproved))
    assert told["by_kind"]["same_bytes"] + told["by_kind"].get("other_text", 0) == len(resegmented)
    assert told["by_kind"].get("unproved", 0) == len(unproved)
    assert told["cost"]["tokens"] >= differ
    assert told["cost"]["is_lower_bound"] == bool(unproved)
    assert told["cost"]["output_tokens"] == sum(item.row.output_tokens or 0 for item in items)
    with LedgerReader(run.ledger_path) as reader:
        (verdict,) = reader.verdicts()
        assert reader.last_events(1)[0].kind == "accept"
    assert (verdict.dataset, verdict.rule, verdict.accepted_by) == ("test", RULE, "Kim")
    assert (verdict.samples, verdict.mismatched) == (48, told["mismatched"])


def test_an_export_carries_the_verdict(eagletui: Command, run: RunFolder, tmp_path: Path) -> None:
    assert eagletui("accept", str(run.path), "--dataset", "test", "--rule", RULE, "--by", "Kim").code == 0
    assert eagletui("export", str(run.path), "--to", "jsonl", "--out", str(tmp_path / "out")).code == 0
    (verdict,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["verdicts"]
    assert (verdict["dataset"], verdict["rule"], verdict["accepted_by"]) == ("test", RULE, "Kim")
    assert sum(verdict["by_kind"].values()) == verdict["mismatched"]
    assert verdict["cost"]["tokens_percent"] >= 0


def test_a_person_sees_the_kinds_and_the_cost(eagletui: Command, run: RunFolder) -> None:
    ended = eagletui("accept", str(run.path), "--dataset", "test", "--rule", RULE, "--by", "Kim\x1b[31m")
    assert "same bytes" in ended.out
    assert "output tokens differ" in ended.out
    with LedgerReader(run.ledger_path) as reader:
        (verdict,) = reader.verdicts()
    assert f"Signed: all {verdict.mismatched} mismatched of 48 samples of test accepted by Kim: {RULE}" in ended.out
    assert "\x1b" not in ended.out


def test_a_verdict_can_be_signed_while_the_engine_works(eagletui: Command, run: RunFolder) -> None:
    with RoleLock(run.path, "engine"):
        assert eagletui("accept", str(run.path), "--dataset", "test", "--rule", RULE).code == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--dataset", "tset", "--rule", RULE), "Did you mean test?"),
        (("--dataset", "other-name", "--rule", RULE), "There are: test."),
        (("--dataset", "test", "--rule", " \n"), "--rule: found nothing"),
    ],
)
def test_what_cannot_be_signed_is_refused_and_not_stored(
    eagletui: Command, run: RunFolder, options: tuple[str, ...], expected: str
) -> None:
    ended = eagletui("accept", str(run.path), *options)
    assert ended.code == 2
    assert expected in ended.err
    with sqlite3.connect(run.ledger_path) as connection:
        assert connection.execute("SELECT count(*) FROM verdicts").fetchone() == (0,)
    connection.close()


def test_nothing_is_signed_before_the_first_answer(eagletui: Command, made_run: RunFolder) -> None:
    ended = eagletui("accept", made_run.name, "--dataset", "prompts", "--rule", RULE)
    assert ended.code == 2
    assert "is answered yet" in ended.err


def test_the_cost_of_accepting_is_what_differs_and_at_least_what_a_count_is_off_by() -> None:
    span = Span(0, 4, (1, 2, 3), (4, 5), "~")
    text = Span(9, 2, (7,), (), "+")
    found = basis(
        samples=200,
        proved=100,
        counted=90,
        output_tokens=10_000,
        doubtful=[
            Doubtful("served", (span,), 0),
            Doubtful("streamed", (span, text), 0),
            Doubtful("conflict", (), -5),
            Doubtful("canonical", (), None),
        ],
    )
    assert found.by_kind == {"same_bytes": 1, "other_text": 1, "unproved": 2}
    assert found.mismatched == 4
    assert found.samples_percent == 2.0
    assert found.tokens_differ == 3 + (3 + 1) + 5 + 1
    assert found.tokens_percent == pytest.approx(0.13)
    assert found.is_lower_bound
