"""Every assistant turn of a conversation, asked in order on a real server."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from eagletui.core.chat import Message, Prompt
from eagletui.ledger.orders import NewPrompt
from eagletui.ledger.writer import LedgerWriter
from tests.engine.conftest import NewRun
from tests.engine.run_folder import EngineRun


def conversation(key: str, answers: int = 1) -> NewPrompt:
    turns = [Message("user" if n % 2 == 0 else "assistant", f"{key} said {n}") for n in range(5)]
    return NewPrompt(key, "test", Prompt(tuple(turns)), key, answers=answers, turns=(0, 1, 2))


class Server(ThreadingHTTPServer):
    """A direct server that answers "re: LAST (N messages)" and fails where the last message asks for it."""

    daemon_threads = True
    cut: str = ""
    """Answers to a last message with this text are cut by the limit."""
    broken: str = ""
    """Requests with this text in the last message get a 400."""
    asked: list[list[str]]


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(200, {"data": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [message["content"] for message in body["messages"]]
        self.server.asked.append(texts)
        if self.server.broken and self.server.broken in texts[-1]:
            return self._send(400, {"error": {"message": "no"}})
        finish = "length" if self.server.cut and self.server.cut in texts[-1] else "stop"
        message = {"role": "assistant", "content": f"re: {texts[-1]} ({len(texts)})"}
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        return self._send(200, {"id": "x", "choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 9}})

    def _send(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        pass


@contextmanager
def serving() -> Iterator[tuple[Server, str]]:
    server = Server(("127.0.0.1", 0), Handler)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def rows(run: EngineRun) -> dict[str, tuple[str, str | None]]:
    with run.reader() as reader:
        keys = [f"{name}.t{turn}" for name in ("a", "b") for turn in range(3)]
        found = {key: reader.sample(key) for key in keys}
    return {key: (detail.row.state, detail.row.failure_kind) for key, detail in found.items() if detail}


def test_turns_are_asked_in_order_each_after_the_models_own_answers(new_run: NewRun) -> None:
    with serving() as (server, url):
        run = new_run(url, [conversation("a"), conversation("b", answers=2)], provider={"kind": "vllm"})
        assert run.finish() == 0, run.log()
        asked = [texts for texts in server.asked if texts[-1] != "Hi"]
    assert len(asked) == 9
    longest = [texts for texts in asked if len(texts) == 5 and texts[0].startswith("a")]
    assert longest == [
        ["a said 0", "re: a said 0 (1)", "a said 2", "re: a said 2 (3)", "a said 4"],
    ]
    with run.reader() as reader:
        last = reader.sample("a.t2")
    assert last is not None
    assert [message.content for message in last.prompt.messages] == longest[0]


def test_a_turn_that_fails_or_is_cut_ends_its_conversation_alone_and_a_retry_asks_in_order(new_run: NewRun) -> None:
    with serving() as (server, url):
        server.broken, server.cut = "a said 0", "b said 2"
        run = new_run(url, [conversation("a"), conversation("b")], provider={"kind": "vllm"})
        assert run.finish() == 1, run.log()
        assert rows(run) == {
            "a.t0": ("failed", "bad_request"),
            "a.t1": ("failed", "turn_before"),
            "a.t2": ("failed", "turn_before"),
            "b.t0": ("tokenized", None),
            "b.t1": ("tokenized", None),
            "b.t2": ("failed", "turn_before"),
        }
        with run.reader() as reader:
            cut = reader.sample("b.t2")
        assert cut is not None
        assert cut.row.failure_detail == "The answer before ended with length."
        server.broken = server.cut = ""
        server.asked.clear()
        with LedgerWriter(run.folder.ledger_path) as writer:
            assert writer.retry(["b.t2"]) == 0
            assert writer.retry(["a.t1"]) == 2
        assert run.finish() == 1, run.log()
        assert [len(texts) for texts in server.asked if texts[-1] != "Hi"] == [1, 3]
        with LedgerWriter(run.folder.ledger_path) as writer:
            assert writer.retry([]) == 1
        assert run.finish() == 1, run.log()
    assert [state for state, _ in rows(run).values()] == ["tokenized"] * 5 + ["failed"]
