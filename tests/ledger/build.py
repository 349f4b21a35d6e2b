"""Small ledgers for tests: a clock that moves when told, prompts, and the short ways to each state."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagletui.core.chat import Message, Prompt
from eagletui.ledger.orders import AdmitRequest, Answered, Finished, NewPrompt, TokensResult
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.fresh import fresh_ledger

CAP = 10_000
STOP_AT = 8_000
HOLD = 1_000


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    now: float = 1_000_000.0
    """Unix seconds."""

    def __call__(self) -> float:
        return self.now


def make_ledger(
    path: Path,
    *,
    clock: Clock | None = None,
    stop_at: int = STOP_AT,
    cap: int = CAP,
    make: Callable[..., None] = fresh_ledger,
) -> Path:
    make(
        path,
        name="test-run",
        config_json="{}",
        model_id="huggingfacetb/smollm2-135m-instruct",
        format="smollm2",
        stop_at_pico=stop_at,
        cap_pico=cap,
        max_in_flight=64,
        tokenizer_hash="ab12",
        clock=clock or Clock(),
    )
    return path


def prompt(key: str, dataset: str = "prose", *, answers: int = 1, turns: tuple[int, ...] = (0,)) -> NewPrompt:
    conversation = Prompt((Message("user", f"Tell me about {key}"),))
    return NewPrompt(key, dataset, conversation, f"Tell me about {key}", answers=answers, turns=turns)


def queue(writer: LedgerWriter, *keys: str, dataset: str = "prose", start: bool = True) -> None:
    """Add one sample per key and start the run."""
    with writer.transaction():
        source = writer.add_source(f"{dataset}.jsonl", f"hash of {dataset} {keys}", len(keys))
        writer.add_prompts([prompt(key, dataset) for key in keys], source)
    if start:
        writer.set_run_state("running")


def send(writer: LedgerWriter, sample_id: int, *, hold: int = HOLD, endpoint: str = "alpha") -> int:
    """Admit and send one request, and return its attempt id."""
    (admission,) = writer.admit([AdmitRequest(sample_id, endpoint, hold, streamed=True)])
    assert admission.attempt_id is not None, admission.verdict
    writer.mark_sent([admission.attempt_id])
    return admission.attempt_id


def tokens(
    output: tuple[int, ...] = (5, 6, 7), *, evidence: str = "streamed", usability: str = "usable", drift: int | None = 0
) -> TokensResult:
    return TokensResult(output, "raw text", evidence, usability, prompt_ids=(1, 2), drift=drift)


def answer(
    cost: int | None = 100,
    *,
    endpoint: str = "alpha",
    body: bytes = b'{"id": "gen-1"}',
    result: TokensResult | None = None,
    finish_reason: str = "stop",
    latency_s: float = 1.5,
    billed_output: int | None = 3,
) -> Answered:
    return Answered(
        body,
        "json",
        cost,
        endpoint,
        finish_reason,
        latency_s=latency_s,
        billed_prompt_tokens=2,
        billed_output_tokens=billed_output,
        tokens=result,
    )


def answered_sample(writer: LedgerWriter, sample_id: int, *, endpoint: str = "alpha", cost: int | None = 100) -> int:
    """Bring a queued sample to tokenized, and return the attempt id."""
    attempt_id = send(writer, sample_id, endpoint=endpoint)
    writer.finish([Finished(attempt_id, answer(cost, endpoint=endpoint, result=tokens()))])
    return attempt_id


def sql(path: Path, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Look into the file with a connection of the test's own."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement, parameters).fetchall()
    finally:
        connection.close()
