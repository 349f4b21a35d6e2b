"""Commands as a person gives them, over runs in a folder of their own."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eagletui.cli.app import main
from eagletui.runs.claims import Claim
from eagletui.runs.folder import RunFolder


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        (line,) = self.out.splitlines()
        return json.loads(line)


Command = Callable[..., Ended]
MakeConfig = Callable[..., Path]

CONFIG = """\
[run]
name = "{name}"

[prompts]
path = "prompts.jsonl"

[model]
id = "huggingfacetb/smollm2-135m-instruct"
format = "smollm2"

[provider]
kind = "embedded"
backend = "replay"
{provider}

[sampling]
max_tokens = 96
temperature = {temperature}

[spend]
stop_at_usd = "{stop_at}"
cap_usd = "{cap}"

[pace]
max_in_flight = {max_in_flight}
generation_backoff_s = [0.1, 0.2, 0.4, 0.8]
"""


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that holds the runs."""
    root = tmp_path / "runs"
    monkeypatch.setenv("EAGLETUI_RUNS", str(root))
    return root


@pytest.fixture
def eagletui(runs: Path, capfd: pytest.CaptureFixture[str], forked_workers: None) -> Command:
    """Run a command in this process and return its exit code and output."""

    def run(*args: str) -> Ended:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main(args)
        out, err = capfd.readouterr()
        return Ended(int(end.value.code or 0), out, err)

    return run


@pytest.fixture
def make_config(tmp_path: Path) -> MakeConfig:
    """Write a config for the embedded provider with recorded replies, and its prompts."""

    def make(
        *,
        name: str = "small",
        prompts: int = 4,
        stop_at: str = "1.00",
        cap: str = "1.00",
        max_in_flight: int = 8,
        temperature: float = 1.0,
        faults: str = "",
    ) -> Path:
        lines = [json.dumps({"id": f"p{number}", "prompt": f"Question {number}?"}) for number in range(prompts)]
        (tmp_path / "prompts.jsonl").write_text("".join(line + "\n" for line in lines))
        provider = ""
        if faults:
            (tmp_path / "faults.toml").write_text(faults)
            provider = 'faults = "faults.toml"'
        path = tmp_path / "config.toml"
        path.write_text(
            CONFIG.format(
                name=name,
                stop_at=stop_at,
                cap=cap,
                max_in_flight=max_in_flight,
                temperature=temperature,
                provider=provider,
            )
        )
        return path

    return make


@pytest.fixture
def made_run(make_config: MakeConfig, runs: Path) -> RunFolder:
    """A run of four queued samples, without workers."""
    from eagletui.cli.create import create_run, read_config

    with Claim() as claim:
        folder, _ = create_run(read_config(str(make_config())), claim)
    return folder
