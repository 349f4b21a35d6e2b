"""`status`, `ls` and `inspect`: the promised JSON, and words that a terminal can take."""

import json
import shlex
import shutil
import time
from decimal import Decimal
from pathlib import Path

import pytest

from eagletui.cli.follow import Progress
from eagletui.cli.inspect import folded
from eagletui.core.tokdiff import Span
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.orders import Answered, Failed, Finished, TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.folder import RunFolder
from eagletui.tui import standing
from tests.cli.conftest import Command
from tests.ledger.build import send

HOSTILE = "Hi \x1b]0;owned\x07there\u202e!"
BODY = json.dumps({"id": "gen-1", "choices": [{"message": {"content": HOSTILE}}]}).encode()


def _answer(folder: RunFolder) -> None:
    """Answer the first sample: `IHi` and the stop token, with one span."""
    with LedgerWriter(folder.ledger_path) as writer:
        writer.set_run_state("running")
        tokens = TokensResult(
            (57, 18_419, 2),
            HOSTILE + "<|im_end|>",
            "streamed",
            "usable",
            prompt_ids=(1, 2, 3),
            spans=(Span(0, 1, (57,), (58, 59), "~"),),
            drift=0,
        )
        answered = Answered(
            BODY,
            "json",
            123_456_789,
            "embedded/stream",
            "stop",
            latency_s=1.0,
            billed_prompt_tokens=3,
            billed_output_tokens=3,
            tokens=tokens,
        )
        writer.finish([Finished(send(writer, 1, hold=10**9, endpoint="embedded/stream"), answered)])


def test_status_has_every_promised_key_and_money_as_decimal_strings(eagletui: Command, made_run: RunFolder) -> None:
    _answer(made_run)
    status = eagletui("status", made_run.name, "--json").json
    assert list(status) == [
        "run",
        "state",
        "pause_reason",
        "samples",
        "extracted",
        "tokens",
        "spend_usd",
        "drift",
        "evidence",
        "usability",
        "resegmented",
        "rate",
        "in_flight",
        "limited_by",
        "extract",
        "workers",
        "findings",
        "profiles",
    ]
    assert (status["run"], status["state"], status["pause_reason"]) == ("small", "running", None)
    assert status["samples"]["queued"] == 3
    assert status["samples"]["tokenized"] == 1
    assert status["tokens"] == {"prompt": 3, "output": 3, "billed_prompt": 3, "billed_output": 3}
    assert status["spend_usd"] == {
        "settled": "0.000123456789",
        "held": "0",
        "unsettled": "0",
        "unattributed": "0",
        "stop_at": "1",
        "cap": "1",
        "per_million_usable": "41.152263",
    }
    assert Decimal(status["spend_usd"]["settled"]) * 10**12 == 123_456_789
    assert status["drift"] == {
        "tokens": 0,
        "percent": 0.0,
        "by_endpoint": {"embedded/stream": {"tokens": 0, "percent": 0.0}},
    }
    assert status["evidence"] == {"streamed": 1}
    assert status["usability"] == {"usable": 1}
    assert status["resegmented"] == 1
    assert set(status["rate"]) == {"samples_per_s", "output_tokens_per_s"}
    assert status["extract"] == {"shards": 0, "rows": 0, "bytes": 0}
    assert (status["workers"], status["findings"]) == ([], [])


def test_status_takes_a_name_a_folder_or_a_ledger(eagletui: Command, made_run: RunFolder) -> None:
    by_name = eagletui("status", made_run.name, "--json").json
    assert eagletui("status", str(made_run.path), "--json").json == by_name
    assert eagletui("status", str(made_run.ledger_path), "--json").json == by_name


def test_status_for_people_names_the_figures(eagletui: Command, made_run: RunFolder) -> None:
    _answer(made_run)
    ended = eagletui("status", made_run.name)
    assert ended.code == 0
    assert "1 of 1 (100.0 %): 1 streamed" in ended.out
    assert "$0.000123 settled" in ended.out
    assert "1 sample whose ids are not what re-encoding the text gives" in ended.out


def test_status_names_an_endpoint_that_is_out_of_the_rotation(eagletui: Command, made_run: RunFolder) -> None:
    well: dict[str, object] = {"blocked_s": 0.0, "broken_s": None, "failures": 0}
    broken = {"blocked_s": 41.0, "broken_s": 1234.0, "failures": 1}
    with LedgerWriter(made_run.ledger_path) as writer:
        writer.set_run_state("running")
        writer.beat("engine", ready=True, detail={"endpoints": {"embedded/text": well, "embedded/stream": broken}})
    shown = eagletui("status", made_run.name).out
    assert "embedded/stream is out of the rotation for 1,234 s after 1 failure; one request looks again in 41 s" in (
        " ".join(shown.split())
    )
    assert "embedded/text" not in shown


def test_a_wait_for_costs_is_explained_once_by_run_and_each_time_by_status(
    eagletui: Command, made_run: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    waits = "1 broken request has no known cost. To wait no longer, `eagletui run RUN`."
    with LedgerWriter(made_run.ledger_path) as writer, RoleLock(made_run.path, "engine"):
        writer.set_run_state("running")
        writer.beat("engine", ready=True, detail={"waits": waits})
        with LedgerReader(made_run.ledger_path) as reader:
            progress = Progress(reader, made_run.argument)
            progress.show()
            progress.show(always=True)
            said = standing.banner(reader.snapshot(), time.time(), "")
        assert capfd.readouterr().err.count("no known cost. To wait no longer, `eagletui run small`.") == 1
        assert "no known cost" in eagletui("status", made_run.name).out
    assert said is not None
    assert said.text == "1 broken request has no known cost."
    assert "no known cost" not in eagletui("status", made_run.name).out, "the engine has ended"


def test_a_followed_run_prints_what_its_workers_warn_of_once_and_not_its_pauses(
    made_run: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    with LedgerWriter(made_run.ledger_path) as writer:
        before = writer.event("warn", "engine", "files", "Of an earlier start.")
        writer.event("warn", "engine", "files", "Only 1 of 1,200 requests can be in flight.")
        writer.event("warn", "engine", "paused", "The cap is reached.")
        writer.event("info", "engine", "state", "Nothing to warn of.")
    with LedgerReader(made_run.ledger_path) as reader:
        progress = Progress(reader, made_run.argument, before)
        progress.show()
        progress.show(always=True)
    said = [line for line in capfd.readouterr().err.splitlines() if "answered" not in line]
    assert said == ["warn: Only 1 of 1,200 requests can be in flight."]


def test_hints_for_a_run_that_lies_elsewhere_can_be_pasted(
    eagletui: Command, made_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = RunFolder(tmp_path / "else where" / "small")
    shutil.copytree(made_run.path, away.path)
    named = shlex.quote(str(away.path))
    with LedgerWriter(away.ledger_path) as writer:
        writer.finding("loop", "9 of 40 loop", endpoint="e", affected=9, examined=40, action="`ctl RUN quarantine e`")
    shown = eagletui("status", str(away.path)).out
    assert f"Go on with: eagletui run {named}" in shown
    assert f"`ctl {named} quarantine e`" in shown
    assert f"eagletui extract {named} --model PATH" in shown
    assert f"eagletui run {named} goes on." in eagletui("ctl", str(away.path), "cap", "0.5").out
    monkeypatch.chdir(away.path.parent)
    assert "eagletui attach ./small" in eagletui("inspect", "./small").out


def test_a_run_without_its_engine_is_called_interrupted_and_not_running(eagletui: Command, made_run: RunFolder) -> None:
    assert "not started. Go on with: eagletui run small" in eagletui("status", made_run.name).out
    assert "small  not started" in eagletui("ls").out
    _answer(made_run)
    assert "interrupted: no engine is running. Go on with: eagletui run small" in eagletui("status", made_run.name).out
    assert "small  interrupted" in eagletui("ls").out
    assert eagletui("status", made_run.name, "--json").json["state"] == "running"


def test_a_pause_without_an_engine_names_the_command_that_ends_it(eagletui: Command, made_run: RunFolder) -> None:
    with LedgerWriter(made_run.ledger_path) as writer:
        writer.set_run_state("running")
        writer.set_run_state("paused", "cap", "The worst case of one more request would pass the cap.")
    assert "paused (cap). Go on with: eagletui ctl small cap USD, then: eagletui run small" in (
        eagletui("status", made_run.name).out
    )
    with LedgerWriter(made_run.ledger_path) as writer:
        writer.set_run_state("paused", "breaker", "Nine of ten requests failed.")
    assert "paused (breaker): Nine of ten requests failed. Go on with: eagletui run small" in (
        eagletui("status", made_run.name).out
    )


def test_limits_below_a_cent_are_written_to_their_last_digit(eagletui: Command, made_run: RunFolder) -> None:
    assert eagletui("ctl", made_run.name, "cap", "0.0015").out.startswith("The cap is $0.0015.")
    assert "stop-at $1.00, cap $0.0015" in eagletui("status", made_run.name).out


def test_inspect_without_a_sample_lists_what_is_worth_a_look_and_why(eagletui: Command, made_run: RunFolder) -> None:
    assert "Nothing failed, drifts or differs." in eagletui("inspect", made_run.name).out
    _answer(made_run)
    with LedgerWriter(made_run.ledger_path) as writer:
        writer.finish([Finished(send(writer, 2), Failed("void", "server_error", "It broke.\x1b[2J"))])
    ended = eagletui("inspect", made_run.name)
    assert ended.code == 0
    assert "re-encoding its text gives other ids in 1 place" in ended.out
    assert "server_error: It broke." in ended.out
    assert "eagletui inspect small p0" in ended.out
    assert "p3" not in ended.out
    assert "\x1b" not in ended.out
    rows = eagletui("inspect", made_run.name, "--json").json["samples"]
    assert [(row["id"], row["state"], row["spans"]) for row in rows] == [("p0", "tokenized", 1), ("p1", "failed", None)]


def test_inspect_writes_a_streams_keep_alives_once_with_their_number() -> None:
    body = ": OPENROUTER PROCESSING\n\n" * 3 + 'data: {"a":1}\n\n'
    assert folded(body) == ': OPENROUTER PROCESSING  (3 times)\ndata: {"a":1}'


def test_status_of_an_unknown_run_exits_2_and_names_near_ones(eagletui: Command, made_run: RunFolder) -> None:
    ended = eagletui("status", "smal", "--json")
    assert (ended.code, ended.json["ok"]) == (2, False)
    assert "Did you mean small?" in ended.err


def test_watching_and_one_json_object_exclude_each_other(eagletui: Command, made_run: RunFolder) -> None:
    assert eagletui("status", made_run.name, "--json", "--watch").code == 2


def test_ls_lists_runs_and_an_unreadable_one_without_hiding_the_others(
    eagletui: Command, made_run: RunFolder, runs: Path
) -> None:
    (runs / "broken").mkdir()
    (runs / "broken" / "ledger.sqlite").write_bytes(b"not a database, but long enough to look like one" * 20)
    rows = {row["run"]: row for row in eagletui("ls", "--json").json["runs"]}
    assert rows["small"]["state"] == "new"
    assert (rows["small"]["samples"], rows["small"]["answered"], rows["small"]["engine_alive"]) == (4, 0, False)
    assert (rows["small"]["settled_usd"], rows["small"]["stop_at_usd"]) == ("0", "1")
    assert rows["broken"]["error"]
    assert rows["broken"]["state"] is None
    ended = eagletui("ls")
    assert ended.code == 0
    assert "broken  unreadable" in ended.out


def test_ls_without_runs_says_how_to_start_one(eagletui: Command, runs: Path) -> None:
    assert eagletui("ls", "--json").json == {"runs": []}
    assert "eagletui demo" in eagletui("ls").out


def test_inspect_gives_reply_raw_text_ids_spans_and_the_tail(eagletui: Command, made_run: RunFolder) -> None:
    _answer(made_run)
    sample = eagletui("inspect", made_run.name, "p0", "--json").json
    assert (sample["id"], sample["evidence"], sample["usability"], sample["drift"]) == ("p0", "streamed", "usable", 0)
    assert sample["reply"] == {"encoding": "json", "body": BODY.decode()}
    assert sample["raw"] == HOSTILE + "<|im_end|>"
    assert (sample["prompt_ids"], sample["output_ids"]) == ([1, 2, 3], [57, 18_419, 2])
    (span,) = sample["spans"]
    assert (span["offset"], span["length"], span["a_ids"], span["b_ids"], span["kind"]) == (0, 1, [57], [58, 59], "~")
    assert (span["a"], span["b"]) == (["I"], ["J", "K"])
    assert sample["tail"]["ids"][-1] == {"id": 2, "text": "<|im_end|>", "special": True}
    assert sample["tail"]["expected_end"] == {"id": 2, "text": "<|im_end|>"}
    assert sample["tail"]["ends_with_it"] is True
    assert sample["cost_usd"] == "0.000123456789"


def test_inspect_shows_hostile_text_without_its_control_bytes(eagletui: Command, made_run: RunFolder) -> None:
    _answer(made_run)
    ended = eagletui("inspect", made_run.name, "p0")
    assert ended.code == 0
    assert "Hi there" in ended.out
    assert not set(ended.out) & {"\x1b", "\x07", "\u202e"}


@pytest.mark.parametrize("command", [("status",), ("inspect",), ("ctl", "stop")])
def test_a_folder_whose_name_holds_control_bytes_does_not_write_to_the_terminal(
    eagletui: Command, made_run: RunFolder, command: tuple[str, ...]
) -> None:
    moved = made_run.path.rename(made_run.path.with_name(f"a{HOSTILE}"))
    ended = eagletui(command[0], str(moved), *command[1:])
    assert "owned" in ended.out + ended.err, "escaped, in a command that names the run"
    assert not set(ended.out + ended.err) & {"\x1b", "\x07", "\u202e"}


def test_inspect_of_a_sample_without_an_answer_shows_what_there_is(eagletui: Command, made_run: RunFolder) -> None:
    assert eagletui("inspect", made_run.name, "p3").code == 0
    sample = eagletui("inspect", made_run.name, "p3", "--json").json
    assert (sample["state"], sample["reply"], sample["output_ids"], sample["tail"]) == ("queued", None, None, None)
    assert sample["prompt"]["messages"] == [{"role": "user", "content": "Question 3?", "reasoning": None}]


def test_inspect_of_an_unknown_sample_names_near_keys(eagletui: Command, made_run: RunFolder) -> None:
    ended = eagletui("inspect", made_run.name, "p")
    assert ended.code == 2
    assert "Keys that contain it: p0, p1, p2, p3." in ended.err
