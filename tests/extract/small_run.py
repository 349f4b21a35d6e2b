"""Small real runs for the extractor: a ledger whose samples were answered and rebuilt."""

import json
from collections.abc import Sequence
from pathlib import Path

from eagletui.config.run_config import RunConfig, to_json
from eagletui.core.chat import Message, Prompt
from eagletui.ledger.orders import AdmitRequest, Answered, Finished, NewPrompt, TokensResult
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.folder import RunFolder
from tests.ledger.fresh import fresh_ledger

Ids = tuple[tuple[int, ...] | None, tuple[int, ...]]
"""Prompt ids, where known, and output ids."""


def create_run(
    path: Path,
    model: Path | None,
    *,
    dtype: str = "float32",
    shard_mib: int = 1,
    when: str = "live",
    layers: list[int] | None = None,
) -> RunFolder:
    """Make a run folder with an empty, running ledger; None leaves the target model out of its config."""
    path.mkdir(parents=True)
    config = RunConfig.model_validate(
        {
            "run": {"name": path.name},
            "prompts": {"path": [path / "prompts.jsonl"]},
            "model": {"id": "tiny/random", "tokenizer": path / "tokenizer", "format": "smollm2", "weights": model},
            "provider": {"kind": "embedded"},
            "spend": {"stop_at_usd": "1", "cap_usd": "2"},
            "extract": {"when": when, "dtype": dtype, "shard_mib": shard_mib, "device": "cpu", "layers": layers},
        }
    )
    folder = RunFolder(path)
    fresh_ledger(
        folder.ledger_path,
        name=path.name,
        config_json=to_json(config),
        model_id="tiny/random",
        format="smollm2",
        stop_at_pico=10**12,
        cap_pico=2 * 10**12,
        max_in_flight=8,
        tokenizer_hash="00ff",
    )
    with LedgerWriter(folder.ledger_path) as writer:
        writer.set_run_state("running")
    return folder


def answer_samples(folder: RunFolder, ids: Sequence[Ids], *, first: int = 0, usability: str = "usable") -> None:
    """Add samples `s0`, `s1`, ... that were answered and rebuilt to these ids."""
    with LedgerWriter(folder.ledger_path) as writer:
        keys = [f"s{first + number}" for number in range(len(ids))]
        prompt = Prompt((Message("user", "Say something."),))
        with writer.transaction():
            source = writer.add_source(f"prompts-{first}.jsonl", f"{first:064x}", len(ids))
            writer.add_prompts([NewPrompt(key, "tiny", prompt, "Say something.") for key in keys], source)
        by_key = {sample.key: sample.id for sample in writer.claim(10**6)}
        admitted = writer.admit([AdmitRequest(by_key[key], "tiny/endpoint", 1000, False) for key in keys])
        attempts = [admission.attempt_id for admission in admitted if admission.attempt_id is not None]
        assert len(attempts) == len(ids)
        writer.mark_sent(attempts)
        writer.finish(
            [
                Finished(
                    attempt,
                    Answered(
                        body=json.dumps({"id": key}).encode(),
                        encoding="json",
                        cost_pico=10,
                        endpoint="tiny/endpoint",
                        finish_reason="stop",
                        tokens=TokensResult(output_ids, "text", "served", usability, prompt_ids=prompt_ids),
                    ),
                )
                for key, attempt, (prompt_ids, output_ids) in zip(keys, attempts, ids, strict=True)
            ]
        )


def finish_run(folder: RunFolder) -> None:
    """End the run, as the engine does when every sample is done."""
    with LedgerWriter(folder.ledger_path) as writer:
        writer.set_run_state("draining")
        writer.set_run_state("done")
