"""`eagletui serve` as a person starts it."""

import signal
import subprocess
import sys
from pathlib import Path

import httpx

from tests.embedded.client import AUTH


def test_serve_prints_where_it_listens_and_logs_each_request(tmp_path: Path) -> None:
    books = tmp_path / "books.jsonl"
    command = [sys.executable, "-c", "from eagletui.cli.app import main; main()", "serve", "--backend", "replay"]
    command += ["--port", "0", "--books", str(books), "--latency-s", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    banner: list[str] = []
    while not banner or "Ctrl-C" not in banner[-1]:
        line = process.stdout.readline()
        assert line, process.communicate()
        banner.append(line)
    url = next(line.split()[-1] for line in banner if "base url" in line)
    body = {"model": "huggingfacetb/smollm2-135m-instruct", "messages": [{"role": "user", "content": "hi"}]}
    reply = httpx.post(f"{url}/chat/completions", json=body, headers=AUTH)
    process.send_signal(signal.SIGHUP)
    _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert reply.json()["id"] in log
    assert reply.json()["id"] in books.read_text(encoding="utf-8")


def test_serve_refuses_an_unreadable_script_with_exit_2(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from eagletui.cli.app import main; main()", "serve", "--backend", "replay"]
    command += ["--script", str(tmp_path / "none.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "none.toml: the fault script cannot be read" in done.stderr
