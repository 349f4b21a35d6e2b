"""`profile = "auto"` while a run answers: 20 answers of an endpoint choose, and those before them are made again."""

import asyncio
import json
import re
import signal
import sqlite3
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from eagletui.cli.status import status_object
from eagletui.embedded.data import tokenizer_dir
from eagletui.tokens.load import load_tokenizer
from tests.engine.conftest import NewRun
from tests.engine.run_folder import EngineRun
from tests.kept_run import kept
from tests.providers.scripted_server import Exchange, scripted_server

SMOLLM2 = load_tokenizer(tokenizer_dir())
FORMAT = """\
name = "thinker"
title = "A thinking model over SmolLM2's vocabulary"
state = "from documentation"
source = "this test"
specials = ["<|im_end|>"]
[end]
stop = "<|im_end|>"
[reasoning]
opened_by = "prompt"
open = "<think>"
close = "</think>"
before_close = "\\n"
after_close = "\\n\\n"
"""


def texts(number: int) -> tuple[str, str]:
    return f"They want the number {number}", f"It is {number * 7919}, and no other."


def whole(number: int) -> str:
    thought, content = texts(number)
    return f"{thought}\n</think>\n\n{content}"


def body(number: int, *, strips: bool) -> bytes:
    """An answer of a server that takes the glue off the fields, or leaves it there."""
    thought, content = texts(number)
    message = {"content": content, "reasoning": thought}
    if not strips:
        message = {"content": f"\n\n{content}", "reasoning": f"{thought}\n"}
    answer = {
        "id": "g",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 40, "completion_tokens": len(SMOLLM2.encode(whole(number))) + 1},
    }
    return json.dumps(answer).encode()


async def answered(
    new_run: NewRun,
    folder: Path,
    prompts: int,
    *,
    strips: bool,
    in_flight: int = 1,
    stop_after: int | None = None,
    profile: str = "auto",
) -> EngineRun:
    """Let an engine buy answers; with `stop_after`, a first one is told to end after so many and a second goes on."""
    path = folder / "thinker.toml"
    path.write_text(FORMAT)
    given = 0
    first: list[BaseProcess] = []

    async def act(exchange: Exchange) -> None:
        nonlocal given
        if exchange.head.startswith("GET"):
            await exchange.reply(200, b'{"data":[]}')
            return
        asked = json.loads(exchange.body)["messages"][-1]["content"].split()
        if asked[:3] != ["Say", "the", "number"]:  # the engine asks first whether the server gives ids
            await exchange.reply(200, body(0, strips=strips))
            return
        given += 1
        if given == stop_after:
            run.signal(first[0], signal.SIGTERM)
        await exchange.reply(200, body(int(asked[3]), strips=strips))

    async with scripted_server(act) as server:
        run = new_run(
            server.base_url,
            prompts,
            max_in_flight=in_flight,
            model={"id": "thinker", "tokenizer": folder, "format": str(path), "profile": profile},
            provider={"kind": "vllm"},
            check={"on_breach": "pause" if profile == "auto" else "warn"},
        )
        if stop_after is not None:
            first.append(run.start())
            await asyncio.to_thread(run.wait, first[0])
        assert await asyncio.to_thread(run.finish, "--exit-when-paused") == 0, run.log()
    return run


def events(run: EngineRun, kind: str) -> list[str]:
    with run.reader() as reader:
        return [event.message for event in reader.last_events(200) if event.kind == kind]


def assert_made_under_the_stripping_profile(run: EngineRun, prompts: int) -> None:
    items = kept(run.folder)
    assert [item.tokens.raw for item in items if item.tokens] == [f"{whole(n)}<|im_end|>" for n in range(prompts)]
    assert {(item.row.evidence, item.row.usability, item.row.drift_tokens) for item in items} == {
        ("counted", "usable", 0)
    }
    snapshot = run.snapshot()
    assert snapshot.findings == ()
    assert status_object(snapshot)["profiles"] == {"vllm": "trimmed"}
    (told,) = events(run, "profile")
    assert "loss profile trimmed" in told
    assert "in only 0 of 20 samples" in told
    assert any("now that its loss profile is another" in message for message in events(run, "rebuilt"))


async def test_twenty_stripped_answers_choose_the_profile_and_the_earlier_ones_are_made_again(
    new_run: NewRun, tmp_path: Path
) -> None:
    assert_made_under_the_stripping_profile(await answered(new_run, tmp_path, 60, strips=True, in_flight=12), 60)


async def test_answers_of_an_engine_before_count_among_the_twenty_and_are_made_again(
    new_run: NewRun, tmp_path: Path
) -> None:
    assert_made_under_the_stripping_profile(await answered(new_run, tmp_path, 21, strips=True, stop_after=12), 21)


@pytest.mark.slow
async def test_a_choice_whose_engine_died_before_it_had_made_the_answers_again_is_made_by_the_next(
    new_run: NewRun, tmp_path: Path
) -> None:
    """The ledger as such a death leaves it: everything answered as it came, no profile written, the run not ended."""
    run = await answered(new_run, tmp_path, 21, strips=True, profile="kept")
    assert {item.row.evidence for item in kept(run.folder)} == {"conflict"}
    config_path = run.folder.config_path
    config_path.write_text(config_path.read_text().replace('profile = "kept"', 'profile = "auto"'))
    with closing(sqlite3.connect(run.folder.ledger_path)) as connection, connection:
        connection.execute("UPDATE endpoints SET profile = NULL")
        connection.execute("UPDATE run SET state = 'running', pause_reason = NULL")

    async def act(exchange: Exchange) -> None:
        await exchange.reply(200, b'{"data":[]}' if exchange.head.startswith("GET") else body(0, strips=True))

    async with scripted_server(act) as server:
        config_path.write_text(re.sub(r'base_url = ".*"', f'base_url = "{server.base_url}"', config_path.read_text()))
        assert await asyncio.to_thread(run.finish) == 0, run.log()
    assert_made_under_the_stripping_profile(run, 21)


@pytest.mark.slow
async def test_nineteen_choose_nothing_and_what_their_counts_show_is_told_without_a_pause(
    new_run: NewRun, tmp_path: Path
) -> None:
    run = await answered(new_run, tmp_path, 19, strips=True)
    assert events(run, "profile") == []
    assert status_object(run.snapshot())["profiles"] == {"vllm": None}
    assert {item.row.evidence for item in kept(run.folder)} == {"conflict"}
    assert {finding.kind for finding in run.snapshot().findings} >= {"constant"}


@pytest.mark.slow
async def test_whitespace_that_is_kept_changes_nothing_and_is_said(new_run: NewRun, tmp_path: Path) -> None:
    run = await answered(new_run, tmp_path, 21, strips=False)
    (told,) = events(run, "profile")
    assert "loss profile kept" in told
    assert events(run, "rebuilt") == []
    assert {item.row.evidence for item in kept(run.folder)} == {"counted"}
