"""Runs in parts, over a real provider and real engines, and what joining them gives."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from eagletui.cli.app import main
from eagletui.cli.create import create_run, take_up
from eagletui.cli.run import with_options
from eagletui.config.run_config import RunConfig, load_config, to_json
from eagletui.config.toml import to_toml
from eagletui.core.chat import Message, Prompt
from eagletui.core.errors import InputError, LockedError, RunError
from eagletui.core.money import PICO
from eagletui.embedded.data import tokenizer_dir
from eagletui.embedded.market import MODEL_SLUG
from eagletui.embedded.server import ServeOptions
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.merging import KEPT, MADE_ANEW, OF_SAMPLE
from eagletui.ledger.orders import AdmitRequest, NewPrompt
from eagletui.ledger.writer import LedgerWriter
from eagletui.merge import merge_runs
from eagletui.rebuild.job import rebuild_run
from eagletui.runs.claims import Claim
from eagletui.runs.folder import RunFolder
from eagletui.runs.merged import mark_merged
from tests.engine.run_folder import EngineRun
from tests.ledger.truth import counters, recount
from tests.provider_fixture import serve_in_thread

PROMPTS = 11
CAP = Decimal("1.000000000001")


@dataclass(frozen=True)
class Bought:
    """The same job, once whole and once in two parts."""

    root: Path
    whole: RunFolder
    parts: tuple[RunFolder, RunFolder]


def _answered(prompts: Path, base_url: str, part: str | None) -> RunFolder:
    config = RunConfig.model_validate(
        {
            "run": {"name": "job"},
            "prompts": {"path": [prompts]},
            "model": {"id": MODEL_SLUG, "tokenizer": tokenizer_dir(), "format": "smollm2"},
            "provider": {"kind": "embedded", "base_url": base_url, "only": ["embedded/text"]},
            "sampling": {"max_tokens": 64},
            "spend": {"stop_at_usd": Decimal("0.5"), "cap_usd": CAP},
            "check": {"on_breach": "warn", "max_drift_percent": 100.0},
        }
    )
    with Claim() as claim:
        folder, _ = create_run(with_options(config, part=part), claim)
    run = EngineRun(folder)
    try:
        assert run.finish() == 0, run.log()
    finally:
        run.end()
    return folder


@pytest.fixture(scope="module")
def bought(tmp_path_factory: pytest.TempPathFactory) -> Bought:
    root = tmp_path_factory.mktemp("merge")
    prompts = root / "prompts.jsonl"
    rows = [{"id": f"p{number}", "prompt": f"Question {number}?"} for number in range(PROMPTS)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folders = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EAGLETUI_RUNS", str(root / "runs"))
        # Recorded replies are chosen by how often a prompt was asked, so the whole and its parts are asked apart.
        for parts in ((None,), ("1/2", "2/2")):
            provider = serve_in_thread(
                ServeOptions(backend="replay", books=root / f"{len(parts)}.jsonl", latency_s=0.0)
            )
            try:
                folders += [_answered(prompts, provider.api_url, part) for part in parts]
            finally:
                provider.stop()
    return Bought(root, folders[0], (folders[1], folders[2]))


@pytest.fixture
def runs(bought: Bought, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the runs, to be merged at will."""
    root = tmp_path / "runs"
    shutil.copytree(bought.root / "runs", root)
    monkeypatch.setenv("EAGLETUI_RUNS", str(root))
    return root


def _parts(runs: Path) -> list[RunFolder]:
    return [RunFolder(runs / f"job-part-{number}-of-2") for number in (1, 2)]


def _rows(folder: RunFolder, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder.ledger_path)) as connection:
        return connection.execute(query).fetchall()


def _set(folder: RunFolder, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder.ledger_path)) as connection:
        connection.execute(statement, values)
        connection.commit()


def _reconfigure(folder: RunFolder, section: str, **changes: object) -> None:
    config = load_config(folder.config_path)
    config = config.model_copy(update={section: getattr(config, section).model_copy(update=changes)})
    folder.config_path.write_text(to_toml(config))
    _set(folder, "UPDATE run SET config_json = ?", to_json(config))


WHAT_A_RUN_IS = (
    "SELECT id, prompt_key, dataset, body, preview FROM prompts ORDER BY id",
    "SELECT id, sample_key, prompt_id, answer_index, turn, dataset, state, attempts, endpoint, finish_reason, evidence,"
    " usability, prompt_tokens, output_tokens, billed_prompt_tokens, billed_output_tokens, drift_tokens, spans,"
    " offset_tokens, cost_pico FROM samples ORDER BY id",
    "SELECT sample_id, number, endpoint, state, hold_pico, cost_pico, billed_prompt_tokens, billed_output_tokens"
    " FROM attempts ORDER BY sample_id, number",
    "SELECT sample_id, prompt_ids, output_ids, raw, spans, evidence, reason, tail_trimmed FROM tokens ORDER BY 1",
    "SELECT tag, state, offset_tokens, offset_cause FROM endpoints ORDER BY 1",
    "SELECT endpoint, prompt_usd, completion_usd, request_usd FROM prices ORDER BY id",
    "SELECT kind, endpoint, sentence, affected, examined FROM findings WHERE closed_at IS NULL ORDER BY 1, 2",
    "SELECT path, sha256, samples FROM sources ORDER BY id",
    "SELECT stop_at_pico, cap_pico, model_id, format, tokenizer_hash, template_hash, state FROM run",
    "SELECT kind, name, scope, value FROM counters WHERE value <> 0 ORDER BY 1, 2, 3",
)


def test_two_parts_merged_equal_the_run_done_at_once(bought: Bought, runs: Path) -> None:
    first, second = _parts(runs)
    made = merge_runs([second, first], "joined")
    rebuild_run(made.folder, processes=1)
    assert made.parts == (first.name, second.name)
    assert (made.samples, made.missing_parts) == (PROMPTS, ())
    for query in WHAT_A_RUN_IS:
        assert _rows(made.folder, query) == _rows(bought.whole, query), query
    assert made.settled_pico == _rows(bought.whole, "SELECT sum(cost_pico) FROM attempts")[0][0] > 0
    assert made.cap_pico == int(CAP * PICO)
    kept = "SELECT samples.sample_key FROM samples JOIN replies ON answered_attempt_id = replies.attempt_id"
    assert len(_rows(made.folder, kept)) == PROMPTS


def test_the_command_prints_one_json_object_and_the_labels_are_those_of_the_whole(
    runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["merge", *(folder.name for folder in _parts(runs)), "--out", "joined", "--json"])
    assert end.value.code == 0
    said = json.loads(capfd.readouterr().out)
    assert (said["samples"], said["attempts"], said["rebuild"]["samples"]) == (PROMPTS,) * 3
    assert Decimal(said["spend_usd"]["cap"]) == CAP


def test_the_shares_of_the_parts_make_the_limits_of_the_whole(bought: Bought) -> None:
    limits = [_rows(folder, "SELECT cap_pico, stop_at_pico FROM run")[0] for folder in bought.parts]
    assert [sum(column) for column in zip(*limits, strict=True)] == [int(CAP * PICO), PICO // 2]
    samples = [_rows(folder, "SELECT count(*) FROM samples")[0][0] for folder in bought.parts]
    assert samples == [5, 6]
    assert limits[0][0] < limits[1][0]


def test_another_cap_of_the_whole_gives_a_part_its_share(runs: Path) -> None:
    first, _ = _parts(runs)
    config = load_config(first.config_path)
    spend = config.spend.model_copy(update={"cap_usd": Decimal(22)})
    take_up(first, config.model_copy(update={"spend": spend}))
    assert _rows(first, "SELECT cap_pico FROM run") == [(10 * PICO,)]


def test_counters_of_a_merged_run_are_what_its_rows_say_and_triggers_keep_them(runs: Path) -> None:
    made = merge_runs(_parts(runs), "joined")
    assert_counters(made.folder)
    with LedgerWriter(made.folder.ledger_path) as writer:
        writer.quarantine("embedded/text")
    assert_counters(made.folder)


def assert_counters(folder: RunFolder) -> None:
    assert counters(folder.ledger_path) == recount(folder.ledger_path)


def test_every_table_of_a_ledger_is_copied_or_made_anew(bought: Bought) -> None:
    joined = {"sources", "prompts", "samples", "attempts", "replies", "tokens", "shards", "features"}
    joined |= {"endpoints", "findings", "ticks"}
    names = {row[0] for row in _rows(bought.whole, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names == joined | {*KEPT, *OF_SAMPLE, *MADE_ANEW}


def test_what_a_model_said_of_answers_comes_along(runs: Path) -> None:
    first, second = _parts(runs)
    opinion = "INSERT INTO opinions SELECT id, 'q', 'm', 0.9, 1.5, 0, 1, 3, -4, -4, 1, '{}', 0 FROM samples LIMIT 2"
    for folder in (first, second):
        _set(folder, opinion)
    made = merge_runs([first, second], "joined")
    keys = "SELECT sample_key FROM opinions JOIN samples ON id = sample_id ORDER BY 1"
    assert _rows(made.folder, keys) == sorted(_rows(first, keys) + _rows(second, keys))


def test_a_part_is_merged_once(runs: Path) -> None:
    first, second = _parts(runs)
    with pytest.raises(InputError, match="given twice"):
        merge_runs([first, first], "joined")
    copied = RunFolder(runs / "copy")
    shutil.copytree(first.path, copied.path)
    with pytest.raises(RunError, match=r"are the same part, 1/2"):
        merge_runs([first, copied], "joined")
    made = merge_runs([first, second], "joined")
    with pytest.raises(RunError, match=r"was merged into .*joined"):
        merge_runs([first, second], "again")
    with pytest.raises(RunError, match="overlap: 5 samples stand in both"):
        merge_runs([made.folder, copied], "again")
    assert not (runs / "again").exists()


def test_a_merged_part_goes_on_once_the_joined_run_is_given_up(runs: Path) -> None:
    first, second = _parts(runs)
    made = merge_runs([first, second], "joined")
    run = EngineRun(first)
    try:
        assert run.finish() == 2
        assert "was merged into" in run.log()
    finally:
        run.end()
    shutil.rmtree(made.folder.path)
    assert merge_runs([first, second], "joined").samples == PROMPTS


def test_what_a_killed_merge_left_is_cleared_away(runs: Path) -> None:
    first, second = _parts(runs)
    leftover = runs / ".joined.new"
    shutil.copytree(first.path, leftover)
    mark_merged(second, RunFolder(runs / "joined"))
    made = merge_runs([first, second], "joined")
    assert (made.samples, leftover.exists()) == (PROMPTS, False)


@pytest.mark.parametrize(
    ("column", "value", "named"),
    [
        ("tokenizer_hash", "another", "tokenizer hash"),
        ("template_hash", "another", "chat template hash"),
        ("format", "qwen3", "output format"),
    ],
)
def test_runs_of_another_tokenizer_template_or_format_are_refused(
    runs: Path, column: str, value: str, named: str
) -> None:
    first, second = _parts(runs)
    _set(second, f"UPDATE run SET {column} = ?", value)
    with pytest.raises(RunError, match=f"{second.name} differs from {first.name}.*\n.*{named}.*{value}"):
        merge_runs([first, second], "joined")
    assert not (runs / "joined").exists()
    assert sorted(path.name for path in runs.iterdir()) == ["job", first.name, second.name]


def test_runs_of_another_sampling_are_refused(runs: Path) -> None:
    first, second = _parts(runs)
    _reconfigure(second, "sampling", temperature=0.5)
    with pytest.raises(RunError, match=r"\[sampling\] temperature: 1.0 there, 0.5 here"):
        merge_runs([first, second], "joined")


def test_parts_of_other_prompt_files_are_refused(runs: Path) -> None:
    first, second = _parts(runs)
    _set(second, "UPDATE sources SET sha256 = 'other'")
    with pytest.raises(RunError, match="other prompt files"):
        merge_runs([first, second], "joined")


def test_one_generation_in_two_runs_is_paid_once_and_so_refused(runs: Path) -> None:
    first, second = _parts(runs)
    ((generation,),) = _rows(first, "SELECT generation_id FROM attempts ORDER BY id LIMIT 1")
    _set(second, "UPDATE attempts SET generation_id = ? WHERE id = 1", generation)
    with pytest.raises(RunError, match=r"1 generation stand in both.*be paid for twice"):
        merge_runs([first, second], "joined")


def test_a_run_with_a_request_of_unknown_cost_or_a_living_worker_is_refused(runs: Path) -> None:
    first, second = _parts(runs)
    with RoleLock(second.path, "extractor"), pytest.raises(LockedError):
        merge_runs([first, second], "joined")
    with LedgerWriter(second.ledger_path) as writer:
        writer.set_run_state("running")
        source = writer.add_source("more.jsonl", "more", 1)
        writer.add_prompts([NewPrompt("late", "more", Prompt((Message("user", "More?"),)), "More?")], source)
        (sample,) = writer.claim(10)
        writer.admit([AdmitRequest(sample.id, "embedded/text", 1000, False)])
    with pytest.raises(RunError, match="whose cost is not known yet"):
        merge_runs([first, second], "joined")


def test_runs_that_are_no_parts_follow_each_other(runs: Path) -> None:
    first, second = _parts(runs)
    for folder in (first, second):
        _reconfigure(folder, "run", part=None)
    made = merge_runs([second, first], "joined")
    keys = [row[0] for row in _rows(made.folder, "SELECT sample_key FROM samples ORDER BY id")]
    assert keys == [
        row[0] for folder in (second, first) for row in _rows(folder, "SELECT sample_key FROM samples ORDER BY id")
    ]
    assert_counters(made.folder)


def test_a_missing_part_is_named(runs: Path) -> None:
    first, second = _parts(runs)
    _reconfigure(first, "run", part="1/3")
    _reconfigure(second, "run", part="2/3")
    assert merge_runs([first, second], "joined").missing_parts == ("3/3",)
