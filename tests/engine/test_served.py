"""Answers that others gave than the endpoint asked are filed under who gave them, and pause the run."""

import asyncio
import json

from eagletui.embedded.market import MODEL_SLUG
from tests.engine.conftest import NewRun
from tests.providers.scripted_server import Exchange, scripted_server

BY: dict[str, dict[str, str]] = {
    "own": {"provider": "Maker", "model": MODEL_SLUG},
    "other": {"provider": "Rival Inc.", "model": MODEL_SLUG},
    "swap": {"provider": "Maker", "model": "maker/small"},
}


async def test_an_answer_of_another_endpoint_is_never_filed_under_the_one_asked(new_run: NewRun) -> None:
    routes: list[dict[str, object]] = []

    async def act(exchange: Exchange) -> None:
        if "/endpoints " in exchange.head:
            pricing = {"prompt": "0.000001", "completion": "0.000002", "request": "0"}
            records = [
                {"tag": tag, "provider_name": "Maker", "pricing": pricing, "quantization": bits}
                for tag, bits in (("maker", "fp8"), ("maker/turbo", "fp4"))
            ]
            await exchange.reply(200, json.dumps({"data": {"endpoints": records}}).encode())
        elif "/key " in exchange.head:
            await exchange.reply(200, b'{"data":{"usage":0}}')
        else:
            body = json.loads(exchange.body)
            routes.append(body["provider"])
            answer = {
                "id": f"gen-{len(routes)}",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "Ok."}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 3, "cost": 0.00001},
                **BY[body["messages"][0]["content"]],
            }
            await exchange.reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    async with scripted_server(act) as server:
        provider = {"quantizations": ["fp8"], "ignore": ["elsewhere"]}
        run = new_run(
            server.base_url, list(BY), provider=provider, pace={"stream": "never"}, check={"on_breach": "pause"}
        )
        assert await asyncio.to_thread(run.finish, "--exit-when-paused") == 3, run.log()
    assert run.state() == ("paused", "check")
    for route in routes:
        assert (route["only"], route["ignore"], route["quantizations"]) == (
            ["maker"],
            ["maker/turbo", "elsewhere"],
            ["fp8"],
        )
    with run.reader() as reader:
        rows = {name: reader.sample(f"p{n:04d}") for n, name in enumerate(BY)}
        findings = {finding.kind: finding for finding in reader.findings()}
        known = {row.tag for row in reader.endpoints()}
    labels = {name: sample and (sample.row.endpoint, sample.row.usability) for name, sample in rows.items()}
    swapped = rows["swap"]
    assert swapped is not None
    assert swapped.row.state == "quarantined", "so that neither a rebuild nor an export takes it in"
    usual = labels["own"] and labels["own"][1]
    assert labels == {
        "own": ("maker", usual),
        "other": ("Rival Inc.", usual),
        "swap": ("maker (maker/small)", "model_suspect"),
    }
    assert usual != "model_suspect"
    assert (findings["elsewhere"].endpoint, findings["elsewhere"].affected, findings["elsewhere"].examined) == (
        "maker",
        2,
        3,
    )
    assert known == {"maker", "Rival Inc.", "maker (maker/small)"}
