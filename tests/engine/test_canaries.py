"""Canaries in a run: wrong answers are a finding of their endpoint, and none of them is trained on."""

import asyncio
import json
from pathlib import Path

from eagletui.config.sections import PromptsSection
from eagletui.core.fidelity import CANARIES
from eagletui.export.jsonl import export_jsonl
from eagletui.export.rows import ALSO_POSSIBLE
from eagletui.ingest.adding import ingest
from eagletui.ledger.writer import LedgerWriter
from eagletui.prompts.canaries import Canaries
from tests.engine.conftest import NewRun
from tests.providers.scripted_server import Exchange, scripted_server

ASKED = "What is 17 * 23? Answer with the number only."


async def test_missed_known_answers_are_a_finding_of_the_endpoint_and_no_canary_is_exported(
    new_run: NewRun, tmp_path: Path
) -> None:
    asked: list[tuple[str, float]] = []

    async def act(exchange: Exchange) -> None:
        if "/endpoints " in exchange.head:
            pricing = {"prompt": "0.000001", "completion": "0.000002", "request": "0"}
            record = {"tag": "maker/one", "provider_name": "Maker", "pricing": pricing}
            await exchange.reply(200, json.dumps({"data": {"endpoints": [record]}}).encode())
        elif "/key " in exchange.head:
            await exchange.reply(200, b'{"data":{"usage":0}}')
        else:
            body = json.loads(exchange.body)
            asked.append((body["messages"][0]["content"], body["temperature"]))
            message = {"role": "assistant", "content": f"It may be {len(asked)}."}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 30, "completion_tokens": 6, "cost": 0}
            answer = {"id": f"gen-{len(asked)}", "model": body["model"], "provider": "Maker"}
            answer |= {"choices": [choice], "usage": usage}
            await exchange.reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    path = tmp_path / "p.jsonl"
    path.write_text("".join(f'{{"id": "p{n}", "prompt": "Tell me about number {n}."}}\n' for n in range(24)))
    async with scripted_server(act) as server:
        run = new_run(
            server.base_url,
            [],
            check={"canary": {ASKED: r"\b391\b"}, "on_breach": "warn"},
            pace={"stream": "never"},
            max_in_flight=1,
        )
        with LedgerWriter(run.folder.ledger_path) as writer:
            ingest(PromptsSection(path=[path]), writer, canaries=Canaries((ASKED,), every=2, seed=7))
        assert await asyncio.to_thread(run.finish) == 0, run.log()
    with run.reader() as reader:
        (finding,) = [finding for finding in reader.findings() if finding.kind == "canary"]
        usability = reader.snapshot().usability
    assert "answers to canary prompts miss what they must hold" in finding.sentence
    assert finding.endpoint == "maker/one"
    canaries = [temperature for text, temperature in asked if text == ASKED]
    assert set(canaries) == {0}
    assert usability["unusable"] == len(canaries) < len(asked)
    exported = export_jsonl(run.folder, tmp_path / "out", also=ALSO_POSSIBLE)
    assert exported.census.samples == len(asked) - len(canaries)
    assert exported.census.dataset[CANARIES] == 0
