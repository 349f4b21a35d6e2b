"""The provider as a process of its own: address file, lock, signals, death."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from eagletui.core.errors import LockedError, RunError
from eagletui.embedded.__main__ import provider_lock
from eagletui.ledger.locks import RoleLock
from tests import forked
from tests.embedded.client import AUTH, NO_TLS
from tests.engine.run_folder import until

MODULE = "eagletui.embedded"
MODEL = "huggingfacetb/smollm2-135m-instruct"
_WAIT_S = 30.0


class Role:
    """One provider process, forked; its log is read up to what a test waits for."""

    def __init__(self, run_dir: Path, *flags: str) -> None:
        self.run_dir = run_dir
        file, name = tempfile.mkstemp(".log", dir=run_dir)
        os.close(file)
        self._log = Path(name)
        self.process = forked.start(MODULE, [str(run_dir), "--backend", "replay", *flags], name, os.environ)

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def wait_log(self, text: str) -> None:
        """Wait until the log holds a text."""
        until(lambda: text in self.log or self.process.exitcode is not None, text, _WAIT_S)
        assert text in self.log, f"the process ended: {self.log}"

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    @property
    def address(self) -> Any:
        return json.loads((self.run_dir / "provider" / "address.json").read_text(encoding="utf-8"))

    def body(self, **fields: Any) -> dict[str, Any]:
        return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 40, **fields}

    @property
    def chat_url(self) -> str:
        return f"{self.address['base_url']}/api/v1/chat/completions"

    def books(self) -> Any:
        return httpx.get(f"{self.address['base_url']}/embedded/books", verify=NO_TLS).json()

    def end(self) -> int:
        """Wait for the process to end by itself."""
        self.process.join(_WAIT_S)
        assert self.process.exitcode is not None, f"the process goes on: {self.log}"
        return self.process.exitcode


@pytest.fixture
def roles() -> Iterator[list[Role]]:
    started: list[Role] = []
    yield started
    for role in started:
        role.process.kill()
        role.end()
        role.process.close()


def start(roles: list[Role], run_dir: Path, *flags: str) -> Role:
    role = Role(run_dir, *flags)
    roles.append(role)
    role.wait_log("serving replay")
    return role


def test_the_address_file_is_private_names_the_process_and_goes_with_it(roles: list[Role], tmp_path: Path) -> None:
    role = start(roles, tmp_path)
    path = tmp_path / "provider" / "address.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert role.address["pid"] == role.process.pid
    assert role.address["base_url"].startswith("http://127.0.0.1:")
    assert role.address["model_id"] == MODEL
    role.signal(signal.SIGTERM)
    assert role.end() == 0
    assert not path.exists()


@pytest.mark.slow
def test_a_second_provider_of_a_run_refuses_and_names_the_first(roles: list[Role], tmp_path: Path) -> None:
    first = start(roles, tmp_path)
    second = Role(tmp_path)
    assert second.end() == 1
    assert f'"pid": {first.process.pid}' in second.log
    assert first.address["pid"] == first.process.pid
    assert httpx.get(f"{first.address['base_url']}/embedded/books", verify=NO_TLS).status_code == 200


@pytest.mark.slow
def test_sigterm_finishes_the_stream_in_flight_and_refuses_new_requests(roles: list[Role], tmp_path: Path) -> None:
    role = start(roles, tmp_path, "--latency-s", "0", "--tokens-per-s", "20")
    with httpx.Client(headers=AUTH, timeout=_WAIT_S, verify=NO_TLS) as client:
        with client.stream("POST", role.chat_url, json=role.body(stream=True, seed=1)) as response:
            lines = response.iter_lines()
            assert next(lines) == ": OPENROUTER PROCESSING"
            role.signal(signal.SIGTERM)
            role.wait_log("draining")
            refused = httpx.post(role.chat_url, json=role.body(), headers=AUTH, verify=NO_TLS)
            rest = list(lines)
        assert refused.status_code == 503
        assert "data: [DONE]" in rest
    assert role.end() == 0


@pytest.mark.slow
def test_a_second_sigterm_stops_at_once(roles: list[Role], tmp_path: Path) -> None:
    role = start(roles, tmp_path, "--latency-s", "600")
    with (
        httpx.Client(headers=AUTH, timeout=_WAIT_S, verify=NO_TLS) as client,
        client.stream("POST", role.chat_url, json=role.body(stream=True)) as response,
    ):
        assert next(response.iter_lines()) == ": OPENROUTER PROCESSING"
        role.signal(signal.SIGTERM)
        role.wait_log("draining")
        role.signal(signal.SIGTERM)
        assert role.end() == 0


def test_a_provider_of_a_run_that_was_replaced_holds_the_new_lock_and_makes_no_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run" / "locks" / "provider.lock"
    with pytest.raises(RunError, match="No such file or directory"), provider_lock(path):
        pass
    assert list(tmp_path.iterdir()) == []
    path.parent.parent.mkdir()
    flock, replaced = fcntl.flock, False

    def granted_late(file: int, operation: int) -> None:
        nonlocal replaced
        if not replaced:
            replaced = True
            path.unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", granted_late)
    with provider_lock(path), pytest.raises(LockedError, match="Another provider serves this run"), provider_lock(path):
        pass


def test_a_hangup_is_ignored(roles: list[Role], tmp_path: Path) -> None:
    role = start(roles, tmp_path)
    role.signal(signal.SIGHUP)
    assert httpx.post(role.chat_url, json=role.body(), headers=AUTH, verify=NO_TLS).status_code == 200
    assert role.process.exitcode is None


def test_a_provider_ends_with_its_engine_but_not_before(roles: list[Role], tmp_path: Path) -> None:
    with RoleLock(tmp_path, "engine"):
        role = start(roles, tmp_path, "--end-without-engine", "0.4")
        role.process.join(1.2)
        assert role.process.exitcode is None
    assert role.end() == 0
    assert "draining" in role.log


@pytest.mark.slow
def test_a_provider_whose_engine_never_came_ends_too(roles: list[Role], tmp_path: Path) -> None:
    assert start(roles, tmp_path, "--end-without-engine", "0.2").end() == 0


def test_books_and_generations_survive_kill_9_in_mid_stream(roles: list[Role], tmp_path: Path) -> None:
    role = start(roles, tmp_path, "--latency-s", "0", "--tokens-per-s", "10")
    whole = httpx.post(role.chat_url, json=role.body(max_tokens=2), headers=AUTH, verify=NO_TLS).json()
    with (
        httpx.Client(headers=AUTH, timeout=_WAIT_S, verify=NO_TLS) as client,
        client.stream("POST", role.chat_url, json=role.body(stream=True)) as response,
    ):
        cut_id = response.headers["X-Generation-Id"]
        next(line for line in response.iter_lines() if line.startswith("data: "))
        role.process.kill()
        role.end()

    again = start(roles, tmp_path)
    rows = {row["id"]: row for row in again.books()["rows"]}
    assert rows[whole["id"]]["delivered"] is True
    assert rows[cut_id]["delivered"] is False
    assert again.books()["spent_pico"] == sum(row["cost_pico"] for row in rows.values())
    found = httpx.get(f"{again.address['base_url']}/api/v1/generation?id={cut_id}", headers=AUTH, verify=NO_TLS).json()[
        "data"
    ]
    assert found["native_tokens_completion"] == rows[cut_id]["completion_tokens"]


def test_a_wrong_fault_script_ends_the_command_with_exit_2(tmp_path: Path) -> None:
    script = tmp_path / "faults.toml"
    script.write_text('[[fault]]\nkind = "sloww"\n', encoding="utf-8")
    command = [sys.executable, "-m", MODULE, str(tmp_path), "--backend", "replay", "--faults", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_WAIT_S, check=False)
    assert done.returncode == 2
    assert "faults.toml:1: field kind: found 'sloww', expected 'slow'" in done.stderr
