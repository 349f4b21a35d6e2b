"""What an engine makes of answers that came before it knew how their endpoint counts, cuts and encodes."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

from eagletui.config.run_config import RunConfig
from eagletui.core.chat import Message, Prompt
from eagletui.core.drift import Verdict
from eagletui.embedded.data import tokenizer_dir
from eagletui.engine.answers import AnswerDesk
from eagletui.ledger.orders import QueuedSample
from eagletui.providers.base import RawReply
from eagletui.run_ids import RunIds
from eagletui.tokens.formats import load_format
from eagletui.tokens.load import Tokenizer, load_tokenizer
from tests.engine.conftest import NewRun
from tests.engine.run_folder import EngineRun
from tests.kept_run import kept
from tests.providers.scripted_server import Exchange, scripted_server

SMOLLM2 = load_tokenizer(tokenizer_dir())
VOCABULARY = SMOLLM2.vocabulary
END = VOCABULARY.special_id("<|im_end|>")


def ids_of(*pieces: str) -> list[int]:
    """One token for each piece."""
    found = [VOCABULARY.id_of(piece.encode()) for piece in pieces]
    assert None not in found
    return [token_id for token_id in found if token_id is not None]


def sse(pieces: list[str], billed: int) -> bytes:
    """A stream of these pieces that the model ended itself."""
    events: list[dict[str, object]] = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": None}]})
    events.append({"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": billed}})
    return b"".join(b"data: " + json.dumps({"id": "g", **event}).encode() + b"\n\n" for event in events)


async def run_on(new_run: NewRun, answers: Callable[[int], bytes], count: int) -> EngineRun:
    """Let an engine buy streams from a server that gives these, in order."""
    given = 0

    async def act(exchange: Exchange) -> None:
        nonlocal given
        if exchange.head.startswith("GET"):
            await exchange.reply(200, b'{"data":[]}')
            return
        if b"Say the number" not in exchange.body:  # the engine asks first whether the server gives ids
            await exchange.reply(200, b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}')
            return
        given += 1
        await exchange.reply(200, answers(given - 1), {"Content-Type": "text/event-stream"})

    async with scripted_server(act) as server:
        run = new_run(
            server.base_url,
            count,
            max_in_flight=1,
            provider={"kind": "vllm"},
            pace={"stream": "always"},
            check={"on_breach": "warn"},
        )
        assert await asyncio.to_thread(run.finish) == 0, run.log()
    return run


async def test_streams_that_came_before_their_offset_was_known_are_proved_once_it_is(new_run: NewRun) -> None:
    """Every third answer is cut as no encoder would cut it: only the stream shows it."""
    usual, odd = ["Hello", " there", " friend"], ["Hello", " there", " fri", "end"]
    answers = [odd if number % 3 == 0 else usual for number in range(16)]
    run = await run_on(new_run, lambda number: sse(answers[number], len(answers[number])), 16)
    items = kept(run.folder)
    assert {item.row.evidence for item in items} == {"streamed"}
    assert {item.row.usability for item in items} == {"usable"}
    stored = [list(item.tokens.output_ids or ()) for item in items if item.tokens]
    assert stored == [[*ids_of(*pieces), END] for pieces in answers]
    assert {(item.row.offset_tokens, item.row.drift_tokens) for item in items} == {(-1, 0)}
    with run.reader() as reader:
        told = [event.message for event in reader.last_events(50) if event.kind == "rebuilt"]
    assert any("have other ids or evidence" in message for message in told), told


async def test_streams_that_fit_their_bill_by_chance_lose_their_proof_when_the_others_show_how_they_are_cut(
    new_run: NewRun,
) -> None:
    text = "One could say that numbers are not what they seem to be."
    whole = [VOCABULARY.bytes_of(token_id).decode() for token_id in SMOLLM2.encode(text)]
    typed = [text[at : at + 3] for at in range(0, len(text), 3)]
    run = await run_on(new_run, lambda number: sse(whole if number < 2 else typed, len(whole) + 1), 12)
    rows = [item.row for item in kept(run.folder)]
    assert "streamed" not in {row.evidence for row in rows}
    assert {(row.evidence, row.usability) for row in rows[:2]} == {("conflict", "resegmented")}
    assert "cut_anew" in {finding.kind for finding in run.snapshot().findings}


def reply_with(text: str) -> RawReply:
    body = {
        "choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 31, "completion_tokens": len(SMOLLM2.reference(text)) + 1},
    }
    return RawReply("json", json.dumps(body).encode(), 200, "g", 0.0, 0.0, None, 1.0)


def desk_with(tokenizer: Tokenizer) -> AnswerDesk:
    values: dict[str, dict[str, object]] = {
        "run": {"name": "r"},
        "prompts": {"path": ["p.jsonl"]},
        "model": {"id": "m", "tokenizer": "t", "format": "smollm2"},
        "provider": {"kind": "vllm"},
        "spend": {"stop_at_usd": "1", "cap_usd": "1"},
    }
    return AnswerDesk(RunIds(RunConfig.model_validate(values), tokenizer, load_format("smollm2")))


def queued(number: int) -> QueuedSample:
    prompt = Prompt((Message("user", f"Say {number}."),))
    return QueuedSample(number, f"p{number}", "test", prompt, 0, 0, 0)


async def test_every_hundredth_answer_is_encoded_twice_and_a_difference_ends_the_fast_encoder() -> None:
    """The stand-in here spells one word letter by letter, as an encoder with a fault would."""
    fast = SMOLLM2.encoder

    def faulty(text: str) -> list[int]:
        head, word, tail = text.partition("abnormal")
        return [*fast(head), *ids_of(*word), *fast(tail)] if word else fast(text)

    desk = desk_with(replace(SMOLLM2, encoder=faulty))
    try:
        found = []
        for number, text in enumerate(["fine"] * 50 + ["abnormal"] * 60 + ["fine"]):
            (ready,) = await desk.prepare([queued(number)])
            judged = await desk.judge(reply_with(text), ready, "e", Verdict())
            assert judged.rebuilt is not None
            found.append((judged.encoders_differ, judged.rebuilt.evidence))
    finally:
        desk.close()
    assert [differs for differs, _ in found].index(True) == 100
    assert sum(differs for differs, _ in found) == 1
    assert {evidence for _, evidence in found[50:100]} == {"conflict"}
    assert {evidence for _, evidence in found[100:]} == {"counted"}
