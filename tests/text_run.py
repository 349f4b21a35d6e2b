"""Runs whose answers came as text and a bill alone, as an API without evidence gives them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from eagletui.ledger.orders import AdmitRequest, Answered, Finished
from eagletui.ledger.writer import LedgerWriter
from eagletui.rebuild.job import rebuild_run
from eagletui.runs.folder import RunFolder
from eagletui.tokens.load import Tokenizer
from tests.engine.run_folder import make_run


class Bought(NamedTuple):
    """An answer."""

    text: str
    beyond: int
    """Tokens billed beyond the canonical ones and the end."""


def buy_texts(path: Path, answers: Sequence[Bought], tokenizer: Tokenizer) -> RunFolder:
    """Make a finished run at temperature 1.

    Args:
        path: the folder, not there yet.
        answers: each to a prompt of its own.
        tokenizer: SmolLM2's.
    """
    made = make_run(path, "http://127.0.0.1:1/api/v1", ["Say something."] * len(answers), sampling={"top_p": 1.0})
    with LedgerWriter(made.folder.ledger_path) as writer:
        writer.set_run_state("running")
        queued = writer.claim(len(answers))
        with writer.transaction(durable=True):
            admitted = writer.admit([AdmitRequest(sample.id, "far", 10, False) for sample in queued])
            ids = [one.attempt_id for one in admitted if one.attempt_id is not None]
            writer.mark_sent(ids)
            done = [answered(one, tokenizer) for one in answers]
            writer.finish([Finished(one, answer) for one, answer in zip(ids, done, strict=True)])
        writer.set_run_state("draining")
        writer.set_run_state("done")
    rebuild_run(made.folder)
    return made.folder


def answered(one: Bought, tokenizer: Tokenizer) -> Answered:
    """Return what the engine would file for an answer."""
    billed = len(tokenizer.encode(one.text)) + 1 + one.beyond
    body = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": one.text}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": billed},
    }
    return Answered(json.dumps(body).encode(), "json", 1, "far", "stop", billed_output_tokens=billed)
