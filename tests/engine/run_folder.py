"""A real run folder, a real engine process, and waits on what the ledger says."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from eagletui.config import run_config
from eagletui.config.toml import to_toml
from eagletui.core.chat import Message, Prompt
from eagletui.core.money import usd_to_pico
from eagletui.embedded.data import tokenizer_dir
from eagletui.embedded.market import MODEL_SLUG
from eagletui.ledger import commands
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.orders import NewPrompt
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import AttemptRow, CommandRow, Verb
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.folder import RunFolder
from tests import forked
from tests.ledger.fresh import fresh_ledger

DEADLINE_S = 60.0
POLL_S = 0.02


QUICK: Final[forked.Constants] = {"eagletui.engine.pace": {"BACKOFF_S": 0.05}}
"""Engines of tests ask again sooner after a failure, unless a test says what they wait."""


def until(is_so: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition, or fail with what was waited for."""
    deadline = time.monotonic() + deadline_s
    while not is_so():
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what}"
        time.sleep(POLL_S)


@dataclass
class EngineRun:
    """One run folder and the engines started on it."""

    folder: RunFolder
    processes: list[BaseProcess] = field(default_factory=list)

    @contextmanager
    def reader(self) -> Iterator[LedgerReader]:
        """Open the ledger for looking."""
        with LedgerReader(self.folder.ledger_path) as reader:
            yield reader

    def start(
        self, *args: str, env: dict[str, str] | None = None, constants: forked.Constants | None = None
    ) -> BaseProcess:
        """Start an engine; its output goes to the log of the run."""
        log = str(self.folder.log_path("engine"))
        arguments = [str(self.folder.path), *args]
        process = forked.start(
            "eagletui.engine", arguments, log, {**os.environ, **(env or {})}, {**QUICK, **(constants or {})}
        )
        self.processes.append(process)
        return process

    def finish(self, *args: str, env: dict[str, str] | None = None, deadline_s: float = DEADLINE_S) -> int:
        """Start an engine and wait for its end."""
        return self.wait(self.start(*args, env=env), deadline_s)

    def wait(self, process: BaseProcess, deadline_s: float = DEADLINE_S) -> int:
        """Wait for an engine's end, showing its log when it does not come."""
        process.join(deadline_s)
        assert process.exitcode is not None, f"the engine still runs; its log:\n{self.log()}\n{self.snapshot()}"
        return process.exitcode

    def signal(self, process: BaseProcess, number: int) -> None:
        """Send a signal to an engine."""
        assert process.pid is not None
        os.kill(process.pid, number)

    def signal_pid(self, pid: int, number: int) -> None:
        """Send a signal to a process of the run."""
        os.kill(pid, number)

    def log(self) -> str:
        """The engine's log so far."""
        return self.folder.log_path("engine").read_text()

    def snapshot(self) -> Any:
        """The ledger's present moment."""
        with self.reader() as reader:
            return reader.snapshot()

    def until(self, is_so: Callable[[LedgerReader], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait for something the ledger will say."""
        with self.reader() as reader:
            try:
                until(lambda: is_so(reader), what, deadline_s)
            except AssertionError as error:
                raise AssertionError(f"{error}; the engine's log:\n{self.log()}") from None

    def state(self) -> tuple[str, str | None]:
        """State and pause reason of the run."""
        run = self.snapshot().run
        return run.state, run.pause_reason

    def until_state(self, state: str, reason: str | None = None) -> None:
        """Wait for a state of the run."""
        self.until(
            lambda reader: (reader.run().state, reader.run().pause_reason) == (state, reason), f"{state} {reason}"
        )

    def order(self, verb: Verb, **args: object) -> CommandRow:
        """Give an order and wait until it is applied."""
        command_id = commands.issue(self.folder.ledger_path, verb, args)
        applied = commands.wait_applied(self.folder.ledger_path, command_id, 10.0)
        assert applied is not None, f"{verb} was not applied\n{self.log()}"
        return applied

    def attempts(self) -> list[AttemptRow]:
        """Every attempt, by sample."""
        with self.reader() as reader:
            rows = reader.page(SampleFilter(), None, 10_000)
            details = [reader.sample(row.sample_key) for row in rows]
        return [attempt for detail in details if detail for attempt in detail.attempts]

    def end(self) -> None:
        """Kill what still runs."""
        for process in self.processes:
            process.kill()
            process.join(10)
            process.close()


def make_run(
    path: Path,
    base_url: str,
    prompts: Sequence[str | NewPrompt],
    *,
    cap_usd: str = "1.00",
    stop_at_usd: str = "1.00",
    max_in_flight: int = 8,
    **sections: dict[str, Any],
) -> EngineRun:
    """Make a run folder with a ledger, as `eagletui run` does.

    Args:
        path: the folder, not there yet.
        base_url: of an OpenRouter-shaped API.
        prompts: one user turn each, or a conversation of its own.
        cap_usd: never committed beyond.
        stop_at_usd: admission ends once this much is settled.
        max_in_flight: limit of simultaneous requests.
        sections: keys of the config to set, by section.
    """
    folder = RunFolder(path)
    for part in ("logs", "locks", "features", "provider", "exports"):
        (path / part).mkdir(mode=0o700, parents=True)
    shutil.copytree(tokenizer_dir(), folder.tokenizer_dir)
    values: dict[str, dict[str, Any]] = {
        "run": {"name": path.name},
        "prompts": {"path": [Path("prompts.jsonl")]},
        "model": {"id": MODEL_SLUG, "tokenizer": folder.tokenizer_dir, "format": "smollm2"},
        "provider": {"kind": "embedded", "base_url": base_url},
        "sampling": {"max_tokens": 64},
        "spend": {"stop_at_usd": Decimal(stop_at_usd), "cap_usd": Decimal(cap_usd)},
        "pace": {"max_in_flight": max_in_flight, "generation_backoff_s": [0.05, 0.1, 0.2, 0.4]},
        "check": {"on_breach": "warn"},
    }
    for section, changes in sections.items():
        values[section] = {**values[section], **changes}
    chosen = run_config.RunConfig.model_validate(values)
    folder.config_path.write_text(to_toml(chosen))
    folder.log_path("engine").touch(0o600)
    fresh_ledger(
        folder.ledger_path,
        name=path.name,
        config_json=run_config.to_json(chosen),
        model_id=chosen.model.id,
        format=chosen.model.format,
        stop_at_pico=usd_to_pico(chosen.spend.stop_at_usd),
        cap_pico=usd_to_pico(chosen.spend.cap_usd),
        max_in_flight=chosen.pace.max_in_flight,
    )
    with LedgerWriter(folder.ledger_path) as writer, writer.transaction():
        source = writer.add_source("prompts.jsonl", "0" * 64, len(prompts))
        writer.add_prompts(
            [
                text
                if isinstance(text, NewPrompt)
                else NewPrompt(f"p{number:04d}", "test", Prompt((Message("user", text),)), text[:200])
                for number, text in enumerate(prompts)
            ],
            source,
        )
    return EngineRun(folder)
