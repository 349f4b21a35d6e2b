"""Replies in a spool: flushed before they are reported, read again after a kill, gone once the ledger has them."""

import asyncio
import json
import pickle
from pathlib import Path

import pytest

from eagletui.core.reply import Usage
from eagletui.engine import spool
from eagletui.engine.spool import Spool, keep, read_segment, segments, unkeep
from eagletui.ledger.codecs import unpack_bytes
from eagletui.ledger.orders import AdmitRequest
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import ProviderFailure, RawReply
from tests.engine.conftest import NewRun
from tests.engine.parts import offer_of_maker
from tests.ledger.build import sql
from tests.provider_fixture import ProviderHandle
from tests.providers.scripted_server import Exchange, scripted_server


def raw(body: bytes, cut: ProviderFailure | None = None) -> RawReply:
    return RawReply("sse", body, 200, "gen-1", 10.0, 11.0, 12.0, 15.5, cut)


async def test_entries_are_on_disk_when_put_returns_and_gone_once_all_are_forgotten(tmp_path: Path) -> None:
    replies = Spool(tmp_path / "spool", "receiver-1")
    await asyncio.gather(*(replies.put(keep(number, raw(b"body %d" % number))) for number in range(20)))
    (path,) = segments(tmp_path / "spool")
    assert {kept.attempt_id: unpack_bytes(kept.blob) for kept in read_segment(path)} == {
        number: b"body %d" % number for number in range(20)
    }
    assert segments(tmp_path / "spool", "receiver-2") == []
    replies.forget(range(19))
    await replies.close()
    assert segments(tmp_path / "spool") == [path], "the ledger does not have the last one"
    other = Spool(tmp_path / "spool", "engine")
    await other.put(keep(1, raw(b"x")))
    other.forget([1])
    await other.close()
    assert segments(tmp_path / "spool", "engine") == []


async def test_a_torn_frame_and_a_damaged_one_end_the_reading(tmp_path: Path) -> None:
    replies = Spool(tmp_path, "engine")
    for number in range(3):
        await replies.put(keep(number, raw(b"body")))
    await replies.close()
    (path,) = segments(tmp_path)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert [kept.attempt_id for kept in read_segment(path)] == list(range(cut * 3 // len(whole)))
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert [kept.attempt_id for kept in read_segment(path)] == [0, 1]


async def test_a_full_segment_is_followed_by_another_and_leaves_when_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SEGMENT_BYTES", 1)
    replies = Spool(tmp_path, "engine")
    for number in range(3):
        await replies.put(keep(number, raw(b"body")))
    assert len(segments(tmp_path)) == 3
    replies.forget([0, 1])
    assert [read_segment(path)[0].attempt_id for path in segments(tmp_path)] == [2]
    replies.forget([2])
    await replies.put(keep(3, raw(b"body")))
    assert [[kept.attempt_id for kept in read_segment(path)] for path in segments(tmp_path)] == [[3]], "used again"
    replies.forget([3])
    await replies.close()
    assert segments(tmp_path) == []


async def test_a_spool_that_cannot_be_written_does_not_hold_up_the_answer(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file where the folder should be")
    replies = Spool(tmp_path / "spool", "engine")
    await replies.put(keep(1, raw(b"body")))
    await replies.close()


def test_a_kept_reply_is_the_same_again_also_where_it_broke_off() -> None:
    cut = ProviderFailure("event_timeout", "No further event within 3 s.", http_status=200)
    again = unkeep(keep(1, raw(b"data: 1\n\n", cut)))
    assert (again.body, again.encoding, again.generation_id) == (b"data: 1\n\n", "sse", "gen-1")
    assert again.started_at == pytest.approx(10.0, abs=0.1)
    assert again.ended_at - again.started_at == pytest.approx(5.5, abs=0.01)
    assert again.cut is not None
    assert (again.cut.kind, again.cut.detail, again.cut.void) == ("event_timeout", cut.detail, False)


def test_a_failure_says_the_same_in_another_process() -> None:
    failure = ProviderFailure(
        "rate_limited", "slow", void=True, retry_after_s=3.0, http_status=429, usage=Usage(1, 2), cost_pico_usd=5
    )
    again = pickle.loads(pickle.dumps(failure))
    assert vars(again) == vars(failure)
    assert again.args == ("slow",)


async def test_spooled_answers_stay_on_disk_when_the_ledger_does_not_take_them(
    new_run: NewRun, replay_provider: ProviderHandle
) -> None:
    run = new_run(replay_provider.api_url, 2)
    with LedgerWriter(run.folder.ledger_path) as writer:
        writer.set_run_state("running")
        (first, _) = writer.claim(2)
        (admission,) = writer.admit([AdmitRequest(first.id, "gone", 10**6, False)])
        assert admission.attempt_id is not None
        writer.mark_sent([admission.attempt_id])
    usage = '{"prompt_tokens": 9, "completion_tokens": 1, "cost": 0.0000001}'
    choice = '{"message": {"role": "assistant", "content": "One"}, "finish_reason": "stop"}'
    body = f'{{"id": "gen-1", "choices": [{choice}], "usage": {usage}}}'.encode()
    replies = Spool(run.folder.spool_dir, "receiver-1")
    await replies.put(keep(admission.attempt_id, RawReply("json", body, 200, "gen-1", 10.0, 11.0, None, 12.0)))
    await replies.close()
    full = "CREATE TRIGGER full BEFORE INSERT ON replies BEGIN SELECT RAISE(ABORT, 'no room'); END"
    sql(run.folder.ledger_path, full)
    assert await asyncio.to_thread(run.finish) == 2, run.log()
    (path,) = segments(run.folder.spool_dir)
    assert [kept.attempt_id for kept in read_segment(path)] == [admission.attempt_id]
    sql(run.folder.ledger_path, "DROP TRIGGER full")
    assert await asyncio.to_thread(run.finish) == 0, run.log()
    assert segments(run.folder.spool_dir) == []
    assert run.attempts()[0].has_answer
    assert len(replay_provider.books()["rows"]) == 1, "the other sample's"


async def test_a_spooled_reply_that_was_cut_keeps_its_hold_until_the_key_shows_what_it_cost(new_run: NewRun) -> None:
    async def act(exchange: Exchange) -> None:
        if "/endpoints " in exchange.head:
            await exchange.reply(200, offer_of_maker("0.000001"))
        elif "/key " in exchange.head:
            await exchange.reply(200, b'{"data":{"usage":0.0000008}}')
        elif "/generation?" in exchange.head:
            await exchange.reply(404, b"{}")
        else:
            choice = {"message": {"role": "assistant", "content": "One"}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 9, "completion_tokens": 1, "cost": 0}
            body = json.dumps({"id": "gen-2", "choices": [{"index": 0, **choice}], "usage": usage}).encode()
            await exchange.reply(200, body, {"Content-Type": "application/json"})

    async with scripted_server(act) as server:
        pace = {"stream": "never", "receivers": 0, "generation_backoff_s": [0.3, 0.3]}
        run = new_run(server.base_url, 1, pace=pace)
        with LedgerWriter(run.folder.ledger_path) as writer:
            writer.set_run_state("running")
            writer.set_key_usage_at_start(0)
            (sample,) = writer.claim(1)
            (admission,) = writer.admit([AdmitRequest(sample.id, "maker", 10**6, True)])
            assert admission.attempt_id is not None
            writer.mark_sent([admission.attempt_id])
            writer.mark_headers(admission.attempt_id, "gen-1", 200)
        replies = Spool(run.folder.spool_dir, "receiver-1")
        cut = ProviderFailure("event_timeout", "No further event within 3 s.", http_status=200)
        await replies.put(keep(admission.attempt_id, raw(b"data: 1\n\n", cut)))
        await replies.close()
        assert await asyncio.to_thread(run.finish) == 0, run.log()
    books = run.snapshot().spend.books
    assert (books.settled_pico, books.open_pico, books.unattributed_pico) == (0, 0, 800_000)
    with run.reader() as reader:
        assert [finding.kind for finding in reader.findings() if finding.kind == "key_usage"] == []
