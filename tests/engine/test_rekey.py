"""A run that stands still for its key goes on with another one, in the engine and in its receivers."""

import asyncio
import errno
import json
import os
import signal
from pathlib import Path

import pytest

from eagletui.engine.rekey import is_other_key, rebase, remember_key
from eagletui.engine.spool import Spool, keep
from eagletui.ledger.orders import AdmitRequest
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import KeyStatus, RawReply
from eagletui.runs.folder import RunFolder
from tests.engine.accounts import HOLD_PICO, make_ledger, money
from tests.engine.conftest import NewRun
from tests.engine.parts import offer_of_maker
from tests.providers.scripted_server import Exchange, scripted_server

ANSWER = {
    "id": "gen-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Fine."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "cost": 0.5},
}
OLD, NEW = "sk-test-the-old-key", "sk-test-the-new-key"


async def test_a_resume_reads_the_key_again_and_the_books_go_on(new_run: NewRun, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(OLD)
    file.chmod(0o600)
    answered = {OLD: 0, NEW: 0}
    usage = {OLD: 3, NEW: 40}

    async def act(exchange: Exchange) -> None:
        key = exchange.head.lower().split("bearer ")[1].split("\r\n")[0] if "bearer" in exchange.head.lower() else ""
        if "/endpoints " in exchange.head:
            await exchange.reply(200, offer_of_maker("0.01"))
        elif "/key " in exchange.head:
            known = key in usage
            body = {"data": {"usage": usage[key] + answered[key] / 2}} if known else {"error": "no such key"}
            await exchange.reply(200 if known else 401, json.dumps(body).encode())
        elif key == NEW or (key == OLD and answered[OLD] < 2):
            answered[key] += 1
            await exchange.reply(200, json.dumps(ANSWER).encode(), {"Content-Type": "application/json"})
        else:
            await exchange.reply(401, b'{"error":{"message":"Key disabled.","code":401}}')

    def order_to_go_on() -> tuple[bool, str]:
        row = run.order("resume")
        return bool(row.changed), row.result or ""

    async with scripted_server(act) as server:
        run = new_run(
            server.base_url,
            [f"Number {number}." for number in range(6)],
            provider={"api_key_file": str(file)},
            pace={"stream": "never", "receivers": 1},
            sampling={"max_tokens": 50},
            max_in_flight=1,
            stop_at_usd="20.00",
            cap_usd="30.00",
        )
        engine = run.start()
        await asyncio.to_thread(run.until_state, "paused", "key_limit")
        file.write_text("sk-test-of-nobody")
        changed, told = await asyncio.to_thread(order_to_go_on)
        assert not changed
        assert "The other key does not work: HTTP 401: no such key" in told
        assert run.state() == ("paused", "key_limit")
        file.write_text(NEW)
        changed, told = await asyncio.to_thread(order_to_go_on)
        assert (changed, told) == (True, "Resumed. Another key is used from here on.")
        assert await asyncio.to_thread(run.wait, engine) == 0, run.log()
    assert answered == {OLD: 2, NEW: 4}
    assert (run.folder.path / "logs" / "receiver-1.log").exists()
    snapshot = run.snapshot()
    assert snapshot.run.key_usage_at_start_pico == 39 * 10**12
    assert snapshot.spend.books.settled_pico == 3 * 10**12
    everything = b"".join(path.read_bytes() for path in run.folder.path.rglob("*") if path.is_file())
    assert OLD.encode() not in everything
    assert NEW.encode() not in everything


async def test_a_resume_says_that_the_environment_of_an_engine_does_not_change(new_run: NewRun) -> None:
    async def act(exchange: Exchange) -> None:
        if "/endpoints " in exchange.head:
            await exchange.reply(200, offer_of_maker("0.000001"))
        elif "/key " in exchange.head:
            await exchange.reply(200, b'{"data":{"usage":0}}')
        else:
            await exchange.reply(401, b"no")

    async with scripted_server(act) as server:
        run = new_run(server.base_url, ["Hello."], pace={"stream": "never"})
        run.start()
        await asyncio.to_thread(run.until_state, "paused", "key_limit")
        row = await asyncio.to_thread(run.order, "resume")
        assert row.changed
        assert "does not see another environment" in (row.result or "")
        await asyncio.to_thread(run.order, "stop")


async def test_a_start_with_another_key_begins_its_cross_check_anew(new_run: NewRun, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(OLD)
    file.chmod(0o600)
    usage = {OLD: 3, NEW: 4000}

    async def act(exchange: Exchange) -> None:
        key = exchange.head.lower().split("bearer ")[1].split("\r\n")[0]
        if "/endpoints " in exchange.head:
            await exchange.reply(200, offer_of_maker("0.000001"))
        elif "/key " in exchange.head:
            await exchange.reply(200, json.dumps({"data": {"usage": usage[key]}}).encode())
        elif key == OLD:
            await exchange.reply(401, b"no")
        else:
            free = {**ANSWER, "usage": {"prompt_tokens": 9, "completion_tokens": 3, "cost": 0}}
            await exchange.reply(200, json.dumps(free).encode(), {"Content-Type": "application/json"})

    async with scripted_server(act) as server:
        run = new_run(server.base_url, ["Hello."], provider={"api_key_file": str(file)}, pace={"stream": "never"})
        assert await asyncio.to_thread(run.finish, "--exit-when-paused") == 3, run.log()
        assert run.snapshot().run.key_usage_at_start_pico == 3 * 10**12
        await asyncio.to_thread(run.start)
        await asyncio.to_thread(run.until_state, "paused", "key_limit")
        assert run.snapshot().run.key_usage_at_start_pico == 3 * 10**12, "the same key goes on"
        await asyncio.to_thread(run.signal, run.processes[-1], signal.SIGTERM)
        await asyncio.to_thread(run.wait, run.processes[-1])
        file.write_text(NEW)
        engine = run.start()
        await asyncio.to_thread(run.order, "resume")
        assert await asyncio.to_thread(run.wait, engine) == 0, run.log()
    assert run.snapshot().run.key_usage_at_start_pico == 4000 * 10**12


def test_what_the_old_key_may_still_bill_is_booked_at_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    make_ledger(path, ["gen-1", None])
    with LedgerWriter(path) as writer:
        writer.set_key_usage_at_start(0)
        start_pico, booked = rebase(KeyStatus(70_000_000, None, None), writer)
        assert (start_pico, booked) == (70_000_000 - 2 * HOLD_PICO, [1, 2])
        assert money(path) == (0, 0, 2 * HOLD_PICO)
        assert writer.run().key_usage_at_start_pico == start_pico
        writer.settle(1, 300_000)
    assert money(path) == (300_000, 0, 2 * HOLD_PICO - 300_000), "a late bill moves to its attempt"


async def test_a_key_is_not_changed_while_requests_of_the_old_one_are_under_way(
    new_run: NewRun, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(OLD)
    file.chmod(0o600)
    usage = {OLD: 3, NEW: 40}
    asked: list[Exchange] = []
    go_on, is_under_way = asyncio.Event(), asyncio.Event()

    async def act(exchange: Exchange) -> None:
        key = exchange.head.lower().split("bearer ")[1].split("\r\n")[0]
        if "/endpoints " in exchange.head:
            await exchange.reply(200, offer_of_maker("0.01"))
        elif "/key " in exchange.head:
            await exchange.reply(200, json.dumps({"data": {"usage": usage[key]}}).encode())
        elif key == NEW:
            await exchange.reply(200, json.dumps(ANSWER).encode(), {"Content-Type": "application/json"})
        else:
            asked.append(exchange)
            if len(asked) == 1:
                is_under_way.set()
                await go_on.wait()
                await exchange.reply(200, json.dumps(ANSWER).encode(), {"Content-Type": "application/json"})
            else:
                await is_under_way.wait()
                await exchange.reply(401, b'{"error":{"message":"Key disabled.","code":401}}')

    async with scripted_server(act) as server:
        run = new_run(
            server.base_url,
            ["One.", "Two."],
            provider={"api_key_file": str(file)},
            pace={"stream": "never", "receivers": 0},
            sampling={"max_tokens": 50},
            max_in_flight=2,
            stop_at_usd="20.00",
            cap_usd="30.00",
        )
        engine = run.start()
        await asyncio.to_thread(run.until_state, "paused", "key_limit")
        file.write_text(NEW)
        row = await asyncio.to_thread(run.order, "resume")
        assert not row.changed
        assert "Requests with the old key are still under way" in (row.result or "")
        go_on.set()
        answered = "the reply to the old key is kept"
        await asyncio.to_thread(run.until, lambda reader: reader.snapshot().in_flight == 0, answered)
        for _ in range(100):  # its end is filed a moment later
            row = await asyncio.to_thread(run.order, "resume")
            if row.changed:
                break
        assert row.result == "Resumed. Another key is used from here on."
        assert await asyncio.to_thread(run.wait, engine) == 0, run.log()
    assert run.snapshot().run.key_usage_at_start_pico == 40 * 10**12 - 5 * 10**11


async def test_replies_that_the_old_key_paid_for_are_filed_at_their_cost_before_a_start_with_another(
    new_run: NewRun, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(NEW)
    file.chmod(0o600)

    async def act(exchange: Exchange) -> None:
        if "/endpoints " in exchange.head:
            await exchange.reply(200, offer_of_maker("0.01"))
        else:
            await exchange.reply(200, b'{"data":{"usage":40}}')

    async with scripted_server(act) as server:
        provider, pace = {"api_key_file": str(file)}, {"stream": "never", "receivers": 0}
        run = new_run(server.base_url, 1, provider=provider, pace=pace, stop_at_usd="20.00", cap_usd="30.00")
        remember_key(run.folder, OLD)
        with LedgerWriter(run.folder.ledger_path) as writer:
            writer.set_run_state("running")
            writer.set_key_usage_at_start(3 * 10**12)
            (sample,) = writer.claim(1)
            (admission,) = writer.admit([AdmitRequest(sample.id, "maker", 2 * 10**12, False)])
            assert admission.attempt_id is not None
            writer.mark_sent([admission.attempt_id])
        replies = Spool(run.folder.spool_dir, "receiver-1")
        whole = RawReply("json", json.dumps(ANSWER).encode(), 200, "gen-1", 10.0, 11.0, None, 12.0)
        await replies.put(keep(admission.attempt_id, whole))
        await replies.close()
        assert await asyncio.to_thread(run.finish) == 0, run.log()
    snapshot = run.snapshot()
    books = snapshot.spend.books
    assert (books.settled_pico, books.open_pico, books.unattributed_pico) == (5 * 10**11, 0, 0)
    assert snapshot.run.key_usage_at_start_pico == 40 * 10**12 - 5 * 10**11
    assert not is_other_key(run.folder, NEW)


def test_the_mark_of_a_key_holds_where_the_run_was_moved_to(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    remember_key(RunFolder(tmp_path / "one"), OLD)
    (tmp_path / "one").rename(tmp_path / "other")
    moved = RunFolder(tmp_path / "other")
    assert not is_other_key(moved, OLD)
    assert is_other_key(moved, NEW)
    assert [path.name for path in moved.path.iterdir()] == ["key.mark"]


def test_a_mark_of_no_known_shape_is_not_taken_for_another_key(tmp_path: Path) -> None:
    for text in ("", "12345678", "zz:12345678"):
        (tmp_path / "key.mark").write_text(text)
        assert not is_other_key(RunFolder(tmp_path), OLD)


def test_a_mark_that_cannot_be_written_leaves_the_old_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    remember_key(folder, OLD)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        remember_key(folder, NEW)
    assert not is_other_key(folder, OLD)
    assert [path.name for path in tmp_path.iterdir()] == ["key.mark"]
