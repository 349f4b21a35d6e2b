"""Runs whose replies are kept: a real engine's over the replay provider, and copies of their answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eagletui.embedded.server import ServeOptions
from eagletui.ledger.orders import AdmitRequest, Answered, Finished, NewPrompt, TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_samples import StoredTokens, ToRebuild
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.folder import RunFolder
from tests.engine.run_folder import make_run
from tests.provider_fixture import serve_in_thread

HOLD_PICO = 10**9
BATCH = 200


@dataclass(frozen=True)
class Answer:
    """One kept answer, to be put into another ledger."""

    body: bytes
    encoding: Any
    endpoint: str
    finish_reason: str | None
    billed_prompt: int | None
    billed_output: int | None

    @classmethod
    def of(cls, item: ToRebuild) -> "Answer":
        row, reply = item.row, item.reply
        return cls(
            reply.body,
            reply.encoding,
            row.endpoint or "",
            row.finish_reason,
            row.billed_prompt_tokens,
            row.billed_output_tokens,
        )


def answered_run(path: Path, prompts: int, **options: Any) -> RunFolder:
    """Let an engine answer prompts on a provider of recorded replies; nobody works on the run any more."""
    provider = serve_in_thread(ServeOptions(backend="replay", books=path.with_suffix(".books"), latency_s=0.0))
    texts = [f"Say the number {number} in words." for number in range(prompts)]
    run = make_run(path, provider.api_url, texts, **options)
    try:
        assert run.finish() == 0, run.log()
    finally:
        run.end()
        provider.stop()
    return run.folder


def kept(folder: RunFolder) -> list[ToRebuild]:
    """Every kept reply with its stored ids, by sample."""
    items: list[ToRebuild] = []
    with LedgerReader(folder.ledger_path) as reader:
        while page := reader.to_rebuild(items[-1].row.id if items else 0, BATCH):
            items += page
    return items


def stored(folder: RunFolder) -> dict[str, StoredTokens]:
    """The stored ids, by sample key."""
    return {item.row.sample_key: item.tokens for item in kept(folder) if item.tokens is not None}


def run_of(
    path: Path,
    source: Sequence[ToRebuild],
    *,
    times: int = 1,
    change: Callable[[Answer], Answer] = lambda answer: answer,
    **options: Any,
) -> RunFolder:
    """Make a run of kept answers without ids.

    Args:
        path: the folder, not there yet.
        source: answers with their prompts.
        times: how often all of them are taken.
        change: what happens to each answer.
        options: of `make_run`.
    """
    run = make_run(path, "http://127.0.0.1:1/api/v1", [], cap_usd="10000", stop_at_usd="10000", **options)
    items = [item for _ in range(times) for item in source]
    with LedgerWriter(run.folder.ledger_path) as writer:
        writer.set_run_state("running")
        with writer.transaction():
            source_id = writer.add_source("kept.jsonl", "1" * 64, len(items))
            writer.add_prompts(
                [
                    NewPrompt(f"k{number:06d}", item.row.dataset, item.prompt, item.row.preview)
                    for number, item in enumerate(items)
                ],
                source_id,
            )
        for start in range(0, len(items), BATCH):
            answers = [change(Answer.of(item)) for item in items[start : start + BATCH]]
            with writer.transaction(durable=True):
                _answer(writer, answers)
        writer.set_run_state("draining")
        writer.set_run_state("done")
    return run.folder


def _answer(writer: LedgerWriter, answers: Sequence[Answer]) -> None:
    queued = writer.claim(len(answers))
    admissions = writer.admit(
        [
            AdmitRequest(sample.id, answer.endpoint, HOLD_PICO, answer.encoding == "sse")
            for sample, answer in zip(queued, answers, strict=True)
        ]
    )
    ids = [admission.attempt_id for admission in admissions if admission.attempt_id is not None]
    writer.mark_sent(ids)
    writer.finish(
        [
            Finished(
                attempt_id,
                Answered(
                    answer.body,
                    answer.encoding,
                    1_000,
                    answer.endpoint,
                    answer.finish_reason,
                    latency_s=0.5,
                    billed_prompt_tokens=answer.billed_prompt,
                    billed_output_tokens=answer.billed_output,
                ),
            )
            for attempt_id, answer in zip(ids, answers, strict=True)
        ]
    )


def spoil(folder: RunFolder, keys: Sequence[str]) -> None:
    """Store wrong ids for some samples, as an older program with a fault would have."""
    with LedgerWriter(folder.ledger_path) as writer:
        for item in kept(folder):
            if item.row.sample_key in keys and item.tokens is not None:
                writer.store_tokens(item.row.id, _wrong(item.tokens))


def _wrong(tokens: StoredTokens) -> TokensResult:
    assert tokens.output_ids is not None
    return replace(
        TokensResult(tokens.output_ids, tokens.raw, tokens.evidence, "usable"),
        output_ids=[*tokens.output_ids[:-1], 0],
        prompt_ids=tokens.prompt_ids,
    )
