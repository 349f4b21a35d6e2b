"""A row's own sampling, tools and length decide which endpoints may be asked for it."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable

from eagletui.core.chat import Message, Prompt
from eagletui.engine.admission import HELD_BACK_ROWS, READY_ROWS
from eagletui.engine.pace import Pace
from eagletui.ledger.orders import NewPrompt
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import Sampling
from tests.engine.conftest import NewRun
from tests.providers.scripted_server import Exchange, scripted_server

ANSWER = {
    "id": "gen-1",
    "provider": "Maker",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Fine."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "cost": 0.00001},
}


TOP_K = '{"top_k": 7}'
"""Sampling that `maker/wide` alone takes."""


def test_sampling_names_the_parameters_that_it_sends() -> None:
    plain = {"temperature", "top_p"}
    assert Sampling(1.0, 1.0).parameters == plain
    assert Sampling(1.0, 1.0, top_k=3, seed=0, reasoning="low").parameters == plain | {"top_k", "seed", "reasoning"}


def test_an_endpoint_that_cannot_take_a_request_is_never_chosen_for_it() -> None:
    pace = Pace({"a": 5.0, "b": 1.0}, 1000)
    assert [pace.choose(0.0, never=("a",)) for _ in range(5)] == ["b"] * 5
    pace.lanes["b"].quarantined = True
    assert pace.choose(0.0, never=("a",)) is None
    assert pace.choose(0.0) == "a"


def two_endpoints(asked: dict[str, set[str]]) -> Callable[[Exchange], Awaitable[None]]:
    """Serve `maker/wide`, which takes tools and long prompts, and `maker/narrow`, which takes neither.

    Args:
        asked: by the first word of a prompt: who was asked for it.
    """

    async def act(exchange: Exchange) -> None:
        if "/endpoints " in exchange.head:
            pricing = {"prompt": "0.000001", "completion": "0.000002", "request": "0"}
            lists = {"maker/wide": ["temperature", "top_p", "top_k", "tools"], "maker/narrow": ["temperature", "top_p"]}
            limits = {"maker/wide": {"context_length": 1000}, "maker/narrow": {"max_prompt_tokens": 200}}
            records = [
                {"tag": tag, "provider_name": tag, "pricing": pricing, "supported_parameters": names, **limits[tag]}
                for tag, names in lists.items()
            ]
            await exchange.reply(200, json.dumps({"data": {"endpoints": records}}).encode())
        elif "/key " in exchange.head:
            await exchange.reply(200, b'{"data":{"usage":0}}')
        else:
            body = json.loads(exchange.body)
            asked[body["messages"][0]["content"].split()[0]].add(body["provider"]["only"][0])
            await exchange.reply(200, json.dumps(ANSWER).encode(), {"Content-Type": "application/json"})

    return act


async def test_rows_go_only_where_they_fit_and_fail_unasked_where_they_fit_nowhere(
    new_run: NewRun,
) -> None:
    asked: dict[str, set[str]] = defaultdict(set)
    rows = {"plain": None, "choosy": TOP_K, "seeded": '{"seed": true}'}
    tools = '[{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}]'
    prompts = [
        NewPrompt(f"{name}{n}", "d", Prompt((Message("user", f"{name} {n}"),), sampling_json=row), "")
        for n in range(6)
        for name, row in rows.items()
    ]
    for n in range(6):
        prompts.append(NewPrompt(f"tools{n}", "d", Prompt((Message("user", "tools"),), tools_json=tools), ""))
        prompts.append(NewPrompt(f"long{n}", "d", Prompt((Message("user", "long " * 300),)), ""))
    prompts.append(NewPrompt("endless", "d", Prompt((Message("user", "endless " * 1200),)), ""))
    async with scripted_server(two_endpoints(asked)) as server:
        run = new_run(server.base_url, prompts, pace={"stream": "never"})
        assert await asyncio.to_thread(run.finish) == 1, run.log()
    assert asked["plain"] == {"maker/wide", "maker/narrow"}
    assert asked["choosy"] == {"maker/wide"}
    assert asked["tools"] == {"maker/wide"}
    assert asked["long"] == {"maker/wide"}
    assert asked.keys() == {"plain", "choosy", "tools", "long"}
    with run.reader() as reader:
        sample, endless = reader.sample("seeded0"), reader.sample("endless")
    assert endless is not None
    assert (endless.row.state, endless.attempts) == ("failed", ())
    assert re.fullmatch(
        r"No endpoint can be asked for this prompt of [\d,]+ tokens with max_tokens = 64: maker/narrow takes prompts "
        r"of at most 200 tokens; maker/wide has a context of 1,000 tokens\.",
        endless.row.failure_detail or "",
    )
    assert sample is not None
    assert (sample.row.state, sample.row.failure_kind, sample.attempts) == ("failed", "no_endpoint", ())
    assert sample.row.failure_detail == "No endpoint on offer takes seed, which it sets."


async def test_rows_whose_only_endpoint_is_quarantined_wait_for_it_and_pause_the_run_once_nothing_else_is_left(
    new_run: NewRun,
) -> None:
    asked: dict[str, set[str]] = defaultdict(set)
    many = HELD_BACK_ROWS + READY_ROWS
    choosy = [
        NewPrompt(f"choosy{n}", "d", Prompt((Message("user", "choosy"),), sampling_json=TOP_K), "") for n in range(many)
    ]
    plain = [NewPrompt(f"plain{n}", "d", Prompt((Message("user", "plain"),)), "") for n in range(3)]
    async with scripted_server(two_endpoints(asked)) as server:
        run = new_run(server.base_url, [*choosy, *plain], pace={"stream": "never"})
        with LedgerWriter(run.folder.ledger_path) as writer:
            writer.quarantine("maker/wide")
        assert await asyncio.to_thread(run.finish, "--exit-when-paused") == 3, run.log()
        paused = run.snapshot()
        assert (paused.states["queued"], paused.answered, paused.states["failed"]) == (many, 3, 0)
        assert paused.run.pause_reason == "check"
        assert (paused.run.pause_detail or "").startswith(
            f"{many} samples wait: they fit no endpoint but maker/wide, which is quarantined. `eagletui ctl RUN release"
        )
        assert asked == {"plain": {"maker/narrow"}}
        engine = run.start()
        await asyncio.to_thread(run.order, "release", endpoint="maker/wide")
        await asyncio.to_thread(run.order, "resume")
        assert await asyncio.to_thread(run.wait, engine) == 0, run.log()
    assert asked["choosy"] == {"maker/wide"}
