"""Notices reach a command and a webhook, whatever their texts hold and whatever goes wrong on the way."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from eagletui.config.run_config import RunConfig, load_config, to_json
from eagletui.config.sections import NotifySection
from eagletui.core.notices import Look, Notice
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.notify import __main__ as watcher
from eagletui.notify import sending
from eagletui.notify.sending import send
from eagletui.runs.folder import RunFolder
from tests.cli.conftest import Command, MakeConfig, eagletui, made_run, make_config, runs

__all__ = ["eagletui", "made_run", "make_config", "runs"]

LOOK = Look("b3", "b3", "paused", True, "cap", "It costs $(touch /tmp/x)", 3, 0, 9, 5_000_000_000, 10_000_000_000)
NASTY = Notice("finding", "b3: finding loop", "`id`; $(id) \x1b]0;x\x07 \"quoted\" 'single'\nnext\x00 line \ud800")


class Hook(HTTPServer):
    """A webhook that keeps what it gets and answers as told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.got: list[dict[str, Any]] = []
        self.answers: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/services/T0SECRET"


class _Answer(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    monkeypatch.setattr(sending, "WEBHOOK_PAUSE_S", 0.0)
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def config(make_config: MakeConfig) -> RunConfig:
    return load_config(make_config(), model_defaults={"tokenizer": "unused"})


def notifying(config: RunConfig, **values: Any) -> RunConfig:
    return config.model_copy(update={"notify": NotifySection(**values)})


def test_a_command_gets_the_notice_by_environment_and_stdin_and_no_shell_reads_it(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-secret")
    line = f'cat > {tmp_path}/stdin; printf %s "$EAGLETUI_TEXT" > {tmp_path}/text; env > {tmp_path}/env'
    (sent,) = send(NASTY, LOOK, notifying(config, command=line), 12.5)
    assert (sent.way, sent.ok) == ("command", True)
    message = json.loads((tmp_path / "stdin").read_text())
    assert message["text"] == (tmp_path / "text").read_text()
    assert message["text"] == "b3: finding loop. `id`; $(id)  \"quoted\" 'single' next line \ufffd"
    assert (message["kind"], message["run"], message["spent_usd"], message["at"]) == ("finding", "b3", "0.005", 12.5)
    assert "sk-or-secret" not in (tmp_path / "env").read_text()


def test_a_command_that_fails_or_hangs_is_reported_and_killed_with_its_children(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (failed,) = send(NASTY, LOOK, notifying(config, command="echo 'no such channel' >&2; exit 3"), 0.0)
    assert (failed.ok, failed.detail) == (False, "exit 3: no such channel")
    monkeypatch.setattr(sending, "COMMAND_TIMEOUT_S", 0.3)
    began = time.monotonic()
    (hung,) = send(NASTY, LOOK, notifying(config, command=f"(sleep 30; touch {tmp_path}/late) & sleep 30"), 0.0)
    assert not hung.ok
    assert "was killed" in hung.detail
    assert time.monotonic() - began < 20


def test_a_webhook_gets_one_json_object_and_is_tried_again_after_a_server_error(config: RunConfig, hook: Hook) -> None:
    hook.answers = [503, 200]
    (sent,) = send(NASTY, LOOK, notifying(config, webhook=hook.url), 0.0)
    assert (sent.ok, sent.detail) == (True, "127.0.0.1 answered 200")
    assert [message["content"] for message in hook.got] == [hook.got[0]["text"]] * 2


@pytest.mark.parametrize(("answers", "posts"), [([404], 1), ([302], 1), ([500, 500, 500], 3)])
def test_a_webhook_that_refuses_is_reported_without_its_secret_path(
    config: RunConfig, hook: Hook, answers: list[int], posts: int
) -> None:
    hook.answers = list(answers)
    (sent,) = send(NASTY, LOOK, notifying(config, webhook=hook.url), 0.0)
    assert not sent.ok
    assert "SECRET" not in sent.detail
    assert len(hook.got) == posts


def test_a_secret_webhook_comes_from_the_environment_and_nobody_there_is_a_failure_too(
    config: RunConfig, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_HOOK", hook.url)
    assert send(NASTY, LOOK, notifying(config, webhook_env="MY_HOOK"), 0.0)[0].ok
    assert "SECRET" not in to_json(notifying(config, webhook_env="MY_HOOK"))
    monkeypatch.setenv("MY_HOOK", "http://127.0.0.1:9/SECRET")
    (sent,) = send(NASTY, LOOK, notifying(config, webhook_env="MY_HOOK"), 0.0)
    assert (sent.ok, sent.detail) == (False, "127.0.0.1: ConnectError")


def test_a_watcher_tells_of_a_pause_and_of_a_dead_engine_and_ends(
    made_run: RunFolder, hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with LedgerReader(made_run.ledger_path) as reader:
        old = reader.run().config_json
    changed = json.loads(old) | {"notify": {"command": "", "webhook": hook.url, "on": ["paused", "dead", "spend"]}}
    monkeypatch.setattr(watcher, "LINGERS_S", 0.0)
    engine = RoleLock(made_run, "engine")
    with LedgerWriter(made_run.ledger_path) as writer:
        writer.set_config(json.dumps(changed))
        writer.set_run_state("running")
        engine.acquire()
        steps = iter(
            [
                lambda: writer.set_run_state("paused", "cap", "The cap is near. Raise it with `ctl RUN cap USD`."),
                lambda: writer.finding("loop", "It loops.", affected=1, examined=2, action="Look.", endpoint="e"),
                lambda: writer.set_run_state("running"),
                engine.release,
            ]
        )

        def wait(_seconds: float) -> bool:
            step = next(steps, None)
            if step is not None:
                step()
            return step is None

        watcher.watch(made_run, wait)
        with LedgerReader(made_run.ledger_path) as reader:
            events = [event for event in reader.events() if event.source == "watcher"]
    assert [message["kind"] for message in hook.got] == ["paused", "dead"]
    assert f"ctl {made_run.path} cap USD" in hook.got[0]["text"], "a command for any folder"
    assert [event.message for event in events] == [
        "paused sent by webhook: 127.0.0.1 answered 200",
        "dead sent by webhook: 127.0.0.1 answered 200",
    ]


def test_notify_test_shows_what_arrived_and_exits_1_where_something_did_not(
    eagletui: Command, make_config: MakeConfig, tmp_path: Path, hook: Hook
) -> None:
    path = make_config()
    text = path.read_text()
    path.write_text(f'{text}\n[notify]\ncommand = "cat > {tmp_path}/got.json"\n')
    ended = eagletui("notify", "--test", str(path))
    assert (ended.code, ended.out) == (0, "command: sent, exit 0\n")
    assert json.loads((tmp_path / "got.json").read_text())["title"] == "small: test notice"
    path.write_text(f'{text}\n[notify]\nwebhook = "{hook.url}"\n')
    hook.answers = [410]
    ended = eagletui("notify", "--test", str(path), "--json")
    assert (ended.code, ended.json["sent"][0]["ok"]) == (1, False)


@pytest.mark.parametrize(
    ("notify", "args", "words"),
    [
        ("", ("--test",), "no way to notify: set command, webhook or webhook_env"),
        ('[notify]\nwebhook_env = "NOT_SET"', ("--test",), "NOT_SET is not set"),
        ('[notify]\nwebhook = "slack.com/x"', ("--test",), "webhook"),
        ('[notify]\non = ["everything"]', ("--test",), "'spend', 'done'"),
        ("", (), "--test sends a test notice"),
    ],
)
def test_what_is_wrong_with_notify_is_said_and_exits_2(
    eagletui: Command, make_config: MakeConfig, notify: str, args: tuple[str, ...], words: str
) -> None:
    path = make_config()
    path.write_text(f"{path.read_text()}\n{notify}\n")
    ended = eagletui("notify", *args, str(path))
    assert ended.code == 2
    assert words in ended.err


def test_notify_without_a_name_takes_the_latest_run_and_says_when_there_is_none(eagletui: Command) -> None:
    ended = eagletui("notify", "--test")
    assert (ended.code, ended.err) == (
        2,
        "eagletui: There is no run yet: name a config, as in `eagletui notify --test my.toml`.\n",
    )
