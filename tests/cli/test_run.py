"""`eagletui run` with real workers: a provider of recorded replies, an engine, and what a person does to them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eagletui.cli.create import check_config, create_run, read_config, take_up
from eagletui.cli.follow import Interrupts
from eagletui.cli.run import prepare, with_options
from eagletui.cli.unasked import to_make_anew
from eagletui.cli.workers import ensure
from eagletui.config.run_config import RunConfig
from eagletui.config.sections import PromptsSection
from eagletui.core.errors import LockedError, RunError
from eagletui.embedded.data import tokenizer_dir
from eagletui.ingest.adding import ingest
from eagletui.ingest.census import Census
from eagletui.ledger import commands
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.snapshot import KEY_USAGE
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.claims import Claim
from eagletui.runs.folder import RunFolder
from eagletui.runs.making import BeingMadeError
from eagletui.runs.workers import SpawnRole, WorkerStatus, is_alive, spawn, workers
from tests.cli.conftest import Command, MakeConfig
from tests.provider_fixture import ProviderHandle

WAIT_S = 30.0
SLOW = '[[fault]]\nkind = "slow"\nparams = { first_token_s = 0.3, tokens_per_s = 200.0 }\n'


@pytest.fixture(autouse=True)
def _end_workers(runs: Path) -> Iterator[None]:
    """Leave no worker behind, whatever a test did."""
    yield
    for path in runs.glob("*"):
        folder = RunFolder(path)
        for worker in workers(folder):
            if worker.alive:
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
        _until(partial(_none_lives, folder))


def prepared(config: RunConfig, folder: RunFolder | None) -> RunFolder:
    """Make or take up a run, and do not start it after all."""
    with Claim() as claim:
        return prepare(config, folder, claim)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.02)


def _none_lives(folder: RunFolder) -> bool:
    return not any(worker.alive for worker in workers(folder))


def _headless(config: Path) -> "subprocess.Popen[str]":
    code = "from eagletui.cli.app import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "run", str(config), "--headless"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _status(eagletui: Command, name: str = "small") -> Any:
    return eagletui("status", name, "--json").json


def _books(folder: RunFolder) -> list[dict[str, Any]]:
    lines = (folder.provider_dir / "books.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if "cost_pico" in row]


def _assert_ledger_agrees_with_books(folder: RunFolder) -> None:
    with LedgerReader(folder.ledger_path) as reader:
        books = reader.books()
    assert books.spent_pico == sum(row["cost_pico"] for row in _books(folder))
    assert books.open_pico == 0


def test_a_headless_run_answers_every_sample_ends_its_workers_and_exits_0(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    ended = eagletui("run", str(make_config()), "--headless")
    assert ended.code == 0, ended.err
    assert ended.out == ""
    assert "Run small: 4 samples (4 prompts)" in ended.err
    assert "done  4/4 answered" in ended.err
    folder = RunFolder(runs / "small")
    status = _status(eagletui)
    assert (status["state"], status["samples"]["tokenized"]) == ("done", 4)
    assert _none_lives(folder)
    _assert_ledger_agrees_with_books(folder)
    assert (folder.path.stat().st_mode & 0o777, folder.config_path.stat().st_mode & 0o777) == (0o700, 0o600)
    assert {path.name for path in folder.tokenizer_dir.iterdir()} >= {"tokenizer.json", "chat_template.jinja"}


@pytest.mark.slow
def test_running_a_finished_run_again_starts_nothing_and_buys_nothing(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    config = str(make_config())
    assert eagletui("run", config, "--headless").code == 0
    before = workers(RunFolder(runs / "small"))
    for given in (config, "small", str(runs / "small" / "config.toml")):
        ended = eagletui("run", given, "--headless")
        assert (ended.code, ended.err) == (0, "Run small is done: nothing is left to do.\n")
    assert len(_books(RunFolder(runs / "small"))) == 4
    assert [worker.pid for worker in workers(RunFolder(runs / "small"))] == [worker.pid for worker in before]
    with LedgerWriter(RunFolder(runs / "small").ledger_path) as writer:
        writer.finding(KEY_USAGE, "The key shows $7 more.", affected=1, examined=1, action="Ask about it.")
    ended = eagletui("run", config, "--headless")
    assert (ended.code, ended.err.splitlines()[1:]) == (1, ["The key shows $7 more. Ask about it."])
    Path(config).write_text(Path(config).read_text() + '[check]\non_breach = "warn"\n')
    ended = eagletui("run", config, "--headless")
    assert (ended.code, ended.err.splitlines()[-1]) == (0, "The key shows $7 more. Ask about it.")


def test_a_cap_that_is_too_small_pauses_with_3_and_a_raised_one_goes_on(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    config = str(make_config())
    # One answer is bounded by 96 completion tokens at 3.0125 USD per million, and the prompt: more than 0.0002 USD.
    ended = eagletui("run", config, "--headless", "--cap", "0.0001")
    assert ended.code == 3, ended.err
    assert "Paused (cap)" in ended.err
    status = _status(eagletui)
    assert (status["state"], status["pause_reason"], status["in_flight"]) == ("paused", "cap", 0)
    assert (status["spend_usd"]["cap"], status["spend_usd"]["settled"]) == ("0.0001", "0")
    assert eagletui("run", config, "--headless").code == 3, "the cap of the command line stays"
    assert eagletui("ctl", "small", "cap", "1").code == 0
    assert eagletui("run", config, "--headless").code == 0
    assert _status(eagletui)["samples"]["tokenized"] == 4
    _assert_ledger_agrees_with_books(RunFolder(runs / "small"))


def test_a_run_that_never_asked_anything_is_made_anew_from_a_corrected_config(
    make_config: MakeConfig, made_run: RunFolder, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corrected = read_config(str(make_config(prompts=3, temperature=0.5)))
    prepared(corrected, made_run)
    assert "never asked anything; it is made anew with other sampling.temperature." in capsys.readouterr().err
    with LedgerReader(made_run.ledger_path) as reader:
        assert reader.snapshot().samples == 3
    assert read_config(made_run.name).sampling.temperature == 0.5
    assert [path.name for path in runs.iterdir()] == ["small"]


def test_a_run_with_a_limit_or_prompts_of_its_own_is_not_made_anew(
    eagletui: Command, make_config: MakeConfig, made_run: RunFolder, tmp_path: Path
) -> None:
    other = read_config(str(make_config(temperature=0.5)))
    assert to_make_anew(made_run, other) == ["sampling.temperature"]
    assert eagletui("ctl", "small", "cap", "0.5").code == 0
    assert to_make_anew(made_run, other) == [], "its cap would be higher again"
    assert eagletui("ctl", "small", "cap", "1").code == 0
    (tmp_path / "more.jsonl").write_text('{"prompt": "One more?"}\n')
    assert eagletui("add", "small", str(tmp_path / "more.jsonl")).code == 0
    assert to_make_anew(made_run, other) == [], "the added prompt would be lost"


def test_a_run_that_another_command_is_just_starting_or_has_ordered_something_of_is_not_made_anew(
    make_config: MakeConfig, made_run: RunFolder
) -> None:
    other = read_config(str(make_config(temperature=0.5)))
    for role in ("provider", "watcher", "extractor"):
        with RoleLock(made_run.path, role), pytest.raises(LockedError, match=f"its {role} works"):
            prepared(other, made_run)
    assert to_make_anew(made_run, other) == ["sampling.temperature"]
    with LedgerWriter(made_run.ledger_path) as writer:
        writer.set_max_in_flight(3)
    assert to_make_anew(made_run, other) == [], "its pace would be another again"
    with LedgerWriter(made_run.ledger_path) as writer:
        writer.set_max_in_flight(8)
    assert to_make_anew(made_run, other) == ["sampling.temperature"]
    commands.issue(made_run.ledger_path, "pause", {})
    assert to_make_anew(made_run, other) == [], "the order would be lost"


def test_a_run_is_not_made_anew_from_when_it_has_its_name_until_its_engine_works(
    make_config: MakeConfig, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = read_config(str(make_config()))
    corrected = read_config(str(make_config(temperature=0.5)))
    tried = []

    def other_command(final: RunFolder) -> None:
        with pytest.raises(LockedError, match="Another command is just starting run small"):
            prepared(corrected, final)
        with Claim() as claim, pytest.raises(LockedError, match="Another command is just starting run small"):
            create_run(corrected, claim, replaces=True)
        tried.append(read_config("small").sampling.temperature)

    with Claim() as claim:
        with monkeypatch.context() as patched:
            patched.setattr("eagletui.cli.run._say_made", lambda final, *_: other_command(final))
            folder = prepare(mine, None, claim)
        other_command(folder)
        with Claim() as another:
            assert prepare(mine, folder, another) == folder, "the same run may be started by several"
            claim.release()
            other_command(folder)
    assert tried == [1.0, 1.0, 1.0]
    assert prepared(corrected, folder) == folder
    assert read_config("small").sampling.temperature == 0.5


def test_a_command_that_waited_while_its_run_was_made_anew_sees_the_new_one(
    make_config: MakeConfig, made_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrected = read_config(str(make_config(temperature=0.5)))

    def replaced_meanwhile(folder: RunFolder, config: RunConfig) -> list[str]:
        with Claim() as claim:
            create_run(corrected, claim, replaces=True)
        return []

    mine = read_config("small")
    monkeypatch.setattr("eagletui.cli.run.to_make_anew", replaced_meanwhile)
    with pytest.raises(RunError, match=r"sampling\.temperature: 0\.5 there, 1\.0 here"):
        prepared(mine, made_run)


def test_a_run_that_is_used_while_it_is_made_anew_stays(
    make_config: MakeConfig, made_run: RunFolder, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def used_meanwhile(prompts: PromptsSection, writer: LedgerWriter, *rest: Any) -> Census:
        with LedgerWriter(made_run.ledger_path) as old:
            old.set_run_state("running")
        return ingest(prompts, writer, *rest)

    monkeypatch.setattr("eagletui.cli.create.ingest", used_meanwhile)
    with pytest.raises(RunError, match="was started or changed while it was to be made anew"):
        prepared(read_config(str(make_config(temperature=0.5))), made_run)
    assert [path.name for path in runs.iterdir()] == ["small"]
    with LedgerReader(made_run.ledger_path) as reader:
        assert reader.run().state == "running"


@pytest.mark.parametrize("temperature", [0.5, 0.7])
def test_of_two_commands_that_make_a_run_anew_the_second_joins_the_first(
    make_config: MakeConfig,
    made_run: RunFolder,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    temperature: float,
) -> None:
    mine = read_config(str(make_config(temperature=0.5)))
    first = read_config(str(make_config(temperature=temperature)))
    overtaken = False

    def second(config: RunConfig, *, key: bool = True) -> object:
        nonlocal overtaken
        if not overtaken:
            overtaken = True
            with Claim() as claim:
                create_run(first, claim, replaces=True)
        return check_config(config, key=key)

    monkeypatch.setattr("eagletui.cli.create.check_config", second)
    if first == mine:
        assert prepared(mine, made_run) == made_run
    else:
        with pytest.raises(RunError, match=r"sampling\.temperature: 0\.7 there, 0\.5 here"):
            prepared(mine, made_run)
    assert "was made anew by another process. This command joins it." in capsys.readouterr().err
    assert read_config("small").sampling.temperature == temperature
    assert [path.name for path in runs.iterdir()] == ["small"]


def test_a_model_or_an_address_that_is_not_there_is_named_with_its_field_and_makes_no_run(
    eagletui: Command,
    make_config: MakeConfig,
    runs: Path,
    replay_provider: ProviderHandle,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "any")
    config = make_config()
    tokenizer = f'[model]\ntokenizer = "{tokenizer_dir()}"'
    kind = f'kind = "openrouter"\nbase_url = "{replay_provider.api_url}"'
    text = config.read_text().replace("[model]", tokenizer).replace('kind = "embedded"\nbackend = "replay"', kind)
    for wrong in (text.replace("smollm2-135m-instruct", "typo"), text.replace("/api/v1", "/api/v2")):
        config.write_text(wrong)
        for command in (("plan",), ("run", "--headless")):
            ended = eagletui(*command, str(config))
            assert ended.code == 2
            assert ended.err.startswith("eagletui: [model] id: found "), ended.err
            assert "/api/v" in ended.err
            assert "([provider] base_url), which answered HTTP 404: " in ended.err
    assert not runs.exists()


def test_another_config_under_the_same_name_is_refused_and_names_the_fields(
    eagletui: Command, make_config: MakeConfig, made_run: RunFolder
) -> None:
    with LedgerWriter(made_run.ledger_path) as writer:
        writer.set_run_state("running")
    ended = eagletui("run", str(make_config(temperature=0.5, cap="2.00")), "--headless")
    assert ended.code == 2
    assert "sampling.temperature: 1.0 there, 0.5 here" in ended.err
    assert "cap_usd" not in ended.err
    assert _status(eagletui)["spend_usd"]["cap"] == "1"
    assert _none_lives(made_run)


def test_what_may_change_in_the_config_is_applied_and_said(
    eagletui: Command, make_config: MakeConfig, made_run: RunFolder
) -> None:
    config = read_config(str(make_config(cap="3.00", max_in_flight=2)))
    assert take_up(made_run, config) == [
        "spend.cap_usd: 1.00 before, 3.00 now",
        "pace.max_in_flight: 8 before, 2 now",
    ]
    assert _status(eagletui)["spend_usd"]["cap"] == "3"
    assert take_up(made_run, config) == []
    assert read_config(made_run.name) == config


@pytest.mark.parametrize("given", ["copy", "{}/copy/ledger.sqlite", "elsewhere/small"])
def test_a_copied_or_moved_run_is_gone_on_with_where_it_lies(
    eagletui: Command, made_run: RunFolder, runs: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(runs.parent)
    copy = Path("elsewhere/small") if given.startswith("elsewhere") else runs / "copy"
    shutil.copytree(made_run.path, copy)
    shutil.rmtree(made_run.path)
    with RoleLock(copy, "engine", job="a test"):
        ended = eagletui("run", given.format(runs), "--headless")
    assert (ended.code, f"Run {copy.name} cannot go on now: `a test` is at work" in ended.err) == (1, True), ended.err
    assert not made_run.path.exists(), "the run was made anew and would have been bought again"


def test_limit_and_name_make_another_run(eagletui: Command, make_config: MakeConfig, runs: Path) -> None:
    config = with_options(read_config(str(make_config())), name="tiny", limit=1)
    with Claim() as claim:
        folder, _ = create_run(config, claim)
    assert folder.name == "tiny"
    assert sum(_status(eagletui, "tiny")["samples"].values()) == 1
    assert eagletui("run", str(make_config()), "--name", "no/way").code == 2


def test_wrong_prompts_leave_no_run_behind(eagletui: Command, make_config: MakeConfig, runs: Path) -> None:
    config = make_config()
    prompts = config.parent / "prompts.jsonl"
    prompts.write_text(prompts.read_text() + '{"prompt": 3}\n')
    ended = eagletui("run", str(config), "--headless")
    assert ended.code == 2
    assert f"{prompts}:5: field prompt: found 3, expected text" in ended.err
    assert "Traceback" not in ended.err
    assert list(runs.iterdir()) == []


@pytest.mark.slow
def test_samples_that_fail_for_good_exit_1(eagletui: Command, make_config: MakeConfig) -> None:
    config = make_config(faults='[[fault]]\nkind = "http_500"\nmatch = { prompt_contains = "Question 2?" }\n')
    config.write_text(config.read_text() + "max_attempts = 2\n")
    assert eagletui("run", str(config), "--headless").code == 1
    status = _status(eagletui)
    assert (status["state"], status["samples"]["failed"], status["samples"]["tokenized"]) == ("done", 1, 3)


def test_an_engine_that_cannot_start_is_named_with_its_log_and_nothing_stays_alive(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    config = make_config(faults="[[fault]]\nkind = 'no_such_fault'\n")
    ended = eagletui("run", str(config), "--headless")
    assert ended.code == 2
    assert "The provider of small ended while starting" in ended.err
    assert "no_such_fault" in ended.err
    assert _none_lives(RunFolder(runs / "small"))


def test_ctrl_c_while_workers_start_ends_the_engine_that_was_started_and_says_so(
    eagletui: Command, make_config: MakeConfig, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(folder: RunFolder, role: SpawnRole, *args: str, keeps: Sequence[int]) -> int:
        pid = spawn(folder, role, *args, keeps=keeps)
        if role == "engine":
            os.kill(os.getpid(), signal.SIGINT)
        return pid

    monkeypatch.setattr("eagletui.cli.workers.spawn", interrupted)
    ended = eagletui("run", str(make_config(prompts=40, faults=SLOW)), "--headless")
    assert ended.code == 130, ended.err
    assert "Interrupted: what is in flight comes to its end" in ended.err
    assert "The run can go on: eagletui run small" in ended.err
    assert _none_lives(RunFolder(runs / "small"))
    assert _status(eagletui)["samples"]["queued"] > 0


def test_a_command_whose_engine_comes_second_joins_the_first(
    made_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter([None, WorkerStatus("engine", 2, True, 0.0)])

    def ends_at_once_of_the_lock(folder: RunFolder, role: SpawnRole, timeout_s: float, **wait: Any) -> None:
        if "pid" in wait:
            raise RunError("The engine of small ended while starting.")

    monkeypatch.setattr("eagletui.cli.workers.spawn", lambda *_, keeps: 1)
    monkeypatch.setattr("eagletui.cli.workers.is_alive", lambda *_: next(seen))
    monkeypatch.setattr("eagletui.cli.workers.wait_ready", ends_at_once_of_the_lock)
    assert ensure(made_run, "engine", 1.0, Interrupts()) is False


def test_a_command_joins_another_one_that_makes_the_same_run(
    eagletui: Command, make_config: MakeConfig, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made_elsewhere(config: RunConfig, claim: Claim, *, replaces: bool) -> tuple[RunFolder, Census]:
        create_run(config, claim, replaces=replaces)
        raise BeingMadeError("Run small is being made by another process.")

    monkeypatch.setattr("eagletui.cli.run.create_run", made_elsewhere)
    with LedgerReader(prepared(read_config(str(make_config())), None).ledger_path) as reader:
        assert reader.snapshot().samples == 4


def test_detach_returns_at_once_and_ctl_steers_the_live_engine(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    config = str(make_config(prompts=40, max_in_flight=2, faults=SLOW))
    assert eagletui("run", config, "--detach").code == 0
    folder = RunFolder(runs / "small")
    assert is_alive(folder, "engine") is not None
    paused = eagletui("ctl", "small", "pause", "--json")
    assert (paused.code, paused.json["changed"]) == (0, True)
    assert eagletui("ctl", "small", "pause", "--json").json["changed"] is False
    assert _status(eagletui)["pause_reason"] == "user"
    assert eagletui("ctl", "small", "in-flight", "8", "--json").json["changed"] is True
    assert eagletui("ctl", "small", "resume", "--json").json["changed"] is True
    assert eagletui("ctl", "small", "stop", "--json").json["changed"] is True
    _until(lambda: is_alive(folder, "engine") is None)
    status = _status(eagletui)
    assert status["state"] == "stopped"
    assert 0 < status["samples"]["queued"] < 40


@pytest.mark.slow
def test_ctrl_c_drains_exits_130_and_the_run_goes_on_later(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    config = make_config(prompts=12, max_in_flight=2, faults=SLOW)
    folder = RunFolder(runs / "small")
    process = _headless(config)
    _until(lambda: folder.ledger_path.exists() and _status(eagletui)["samples"]["tokenized"] > 0)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, said
    assert "comes to its end" in said
    status = _status(eagletui)
    assert status["in_flight"] == 0
    assert status["samples"]["queued"] > 0
    assert _none_lives(folder)
    assert eagletui("run", str(config), "--headless").code == 0
    assert _status(eagletui)["samples"]["tokenized"] == 12
    _assert_ledger_agrees_with_books(folder)


@pytest.mark.slow
def test_a_killed_engine_is_named_and_running_again_loses_and_repeats_nothing(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    config = make_config(prompts=12, max_in_flight=3, faults=SLOW)
    folder = RunFolder(runs / "small")
    process = _headless(config)
    _until(lambda: folder.ledger_path.exists() and _status(eagletui)["samples"]["tokenized"] > 1)
    engine = is_alive(folder, "engine")
    assert engine is not None
    os.kill(engine.pid, signal.SIGKILL)
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "go on with: eagletui run small" in said
    before = _status(eagletui)["samples"]["tokenized"]
    assert eagletui("run", str(config), "--headless").code == 0
    status = _status(eagletui)
    assert before < 12 == status["samples"]["tokenized"]
    _assert_ledger_agrees_with_books(folder)


@pytest.mark.slow
def test_a_second_run_of_the_same_name_joins_the_first(eagletui: Command, make_config: MakeConfig, runs: Path) -> None:
    config = str(make_config(prompts=6, max_in_flight=2, faults=SLOW))
    assert eagletui("run", config, "--detach").code == 0
    engine = is_alive(RunFolder(runs / "small"), "engine")
    ended = eagletui("run", config, "--headless")
    assert ended.code == 0, ended.err
    status = _status(eagletui)
    assert status["samples"]["tokenized"] == 6
    assert engine is not None
    assert {worker["pid"] for worker in status["workers"] if worker["role"] == "engine"} == {engine.pid}


@pytest.mark.slow
def test_ctrl_c_of_a_command_that_joined_leaves_the_run_at_work(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    config = make_config(prompts=40, max_in_flight=2, faults=SLOW)
    assert eagletui("run", str(config), "--detach").code == 0
    folder = RunFolder(runs / "small")
    process = _headless(config)
    assert process.stderr is not None
    said = ""
    while "answered |" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert "is at work already" in said
    assert "Stop it with: eagletui ctl small stop" in rest
    assert is_alive(folder, "engine") is not None
    assert _status(eagletui)["state"] == "running"


@pytest.mark.slow
def test_a_command_that_joined_ends_with_3_when_the_run_pauses(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    config = make_config(prompts=40, max_in_flight=2, faults=SLOW)
    assert eagletui("run", str(config), "--detach").code == 0
    process = _headless(config)
    assert process.stderr is not None
    while "answered |" not in process.stderr.readline():
        pass
    assert eagletui("ctl", "small", "pause").code == 0
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 3, said
    assert "Paused (user); its engine waits." in said
    assert is_alive(RunFolder(runs / "small"), "engine") is not None
