"""Steering a run: states, limits, orders, signs of life."""

import json
import os
import sqlite3
from pathlib import Path
from threading import Thread

import pytest

from eagletui.core.errors import DiskFullError, LedgerError
from eagletui.core.lifecycle import PAUSE_REASONS
from eagletui.ledger import commands
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.orders import Failed, Finished
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import Clock, queue, send, sql


def test_verbs_may_be_repeated_and_say_whether_they_changed_anything(writer: LedgerWriter) -> None:
    assert writer.set_run_state("running") is True
    assert writer.set_run_state("running") is False
    assert writer.set_run_state("paused", "user", "Paused by you.") is True
    assert writer.set_run_state("paused", "user", "Paused by you.") is False
    assert writer.set_run_state("paused", "cap", "The cap is reached: raise it.") is True
    assert writer.set_cap(5) is True
    assert writer.set_cap(5) is False
    assert writer.set_stop_at(6) is True
    assert writer.set_max_in_flight(7) is True
    assert writer.set_max_in_flight(7) is False
    assert writer.set_limited_by("pace") is True
    assert writer.set_limited_by("pace") is False
    assert (writer.run().cap_pico, writer.run().stop_at_pico, writer.run().max_in_flight) == (5, 6, 7)


@pytest.mark.parametrize("reason", PAUSE_REASONS)
def test_each_pause_keeps_its_reason_and_its_way_out_until_the_run_goes_on(writer: LedgerWriter, reason: str) -> None:
    writer.set_run_state("running")
    writer.set_run_state("paused", reason, "What happened. What to do.")  # type: ignore[arg-type]
    assert (writer.run().pause_reason, writer.run().pause_detail) == (reason, "What happened. What to do.")
    writer.set_run_state("running")
    assert (writer.run().pause_reason, writer.run().pause_detail) == (None, None)


def test_a_pause_without_a_reason_is_refused(writer: LedgerWriter) -> None:
    writer.set_run_state("running")
    with pytest.raises(LedgerError):
        writer.set_run_state("paused")
    assert writer.run().state == "running"


def test_a_run_knows_when_it_began_and_ended_and_forgets_the_end_when_it_goes_on(
    writer: LedgerWriter, clock: Clock
) -> None:
    writer.set_run_state("running")
    begun = clock.now
    clock.now += 60
    writer.set_run_state("draining")
    writer.set_run_state("done")
    assert (writer.run().started_at, writer.run().finished_at) == (begun, begun + 60)
    writer.set_run_state("running")
    assert (writer.run().started_at, writer.run().finished_at) == (begun, None)


def test_an_order_is_seen_applied_once_and_answered(writer: LedgerWriter, path: Path) -> None:
    first = commands.issue(path, "cap", {"usd": "12.50"})
    second = commands.issue(path, "pause", {"now": True})
    assert [order.id for order in writer.next_commands()] == [first, second]
    order = writer.next_commands()[0]
    assert (order.verb, json.loads(order.args_json)) == ("cap", {"usd": "12.50"})
    assert order.issued_by.endswith(f":{os.getpid()}")
    writer.apply_command(first, True, "Cap is now $12.50.")
    writer.apply_command(first, False, "Another answer.")
    assert [order.id for order in writer.next_commands()] == [second]
    applied = commands.wait_applied(path, first, timeout_s=0)
    assert applied is not None
    assert (applied.changed, applied.result) == (1, "Cap is now $12.50.")


def test_waiting_for_an_order_ends_when_a_worker_applies_it_or_the_time_is_up(writer: LedgerWriter, path: Path) -> None:
    order = commands.issue(path, "resume")
    assert commands.wait_applied(path, order, timeout_s=0.05) is None
    worker = Thread(target=lambda: writer.apply_command(order, False, "It was running."))
    worker.start()
    applied = commands.wait_applied(path, order, timeout_s=30)
    worker.join()
    assert applied is not None
    assert (applied.changed, applied.result) == (0, "It was running.")


def test_an_order_shows_in_data_version_so_that_a_worker_can_poll_cheaply(path: Path) -> None:
    with LedgerReader(path) as reader:
        before = reader.data_version()
        assert reader.data_version() == before
        commands.issue(path, "stop")
        assert reader.data_version() != before
        assert [order.verb for order in reader.commands_pending()] == ["stop"]


def test_failed_and_refused_samples_are_queued_again_by_key_or_all(writer: LedgerWriter, reader: LedgerReader) -> None:
    queue(writer, *"abc")
    for sample, refused in ((1, False), (2, True), (3, False)):
        writer.finish([Finished(send(writer, sample), Failed("void", "http_400", "no", refused=refused))])
    assert writer.retry(["a", "a", "nobody"]) == 1
    assert [row.state for row in reader.rows([1, 2, 3])] == ["queued", "refused", "failed"]
    assert reader.rows([1])[0].failure_kind is None
    assert writer.retry([]) == 2
    assert writer.retry([]) == 0
    assert [(sample.attempts, sample.excused) for sample in writer.claim(5)] == [(1, 1)] * 3


def test_attempts_that_were_no_fault_of_the_sample_are_excused_and_others_are_not(writer: LedgerWriter) -> None:
    queue(writer, "a")
    for excused in (False, True):
        failed = Failed("void", "x", "no", retry_at=1.0, excused=excused)
        writer.finish([Finished(send(writer, 1), failed)])
    send(writer, 1)
    writer.recover()
    (sample,) = writer.claim(5)
    assert (sample.attempts, sample.excused) == (3, 2)


def test_a_heartbeat_is_ready_once_and_stays_so(writer: LedgerWriter, reader: LedgerReader, clock: Clock) -> None:
    writer.beat("engine")
    assert reader.heartbeats()[0].ready_at is None
    clock.now += 1
    writer.beat("engine", ready=True, detail={"queue": 5})
    clock.now += 1
    writer.beat("engine")
    (beat,) = reader.heartbeats()
    assert (beat.pid, beat.ready_at, beat.beat_at) == (os.getpid(), clock.now - 1, clock.now)
    assert json.loads(beat.detail_json) == {"queue": 5}


def test_a_worker_that_took_over_starts_anew_and_the_old_one_cannot_end_it(
    writer: LedgerWriter, reader: LedgerReader, path: Path, clock: Clock
) -> None:
    writer.beat("engine", ready=True)
    _as_pid(path, os.getpid() + 1)
    writer.stop_beat("engine")
    assert reader.heartbeats()[0].stopped_at is None
    clock.now += 5
    writer.beat("engine")
    (beat,) = reader.heartbeats()
    assert (beat.pid, beat.started_at, beat.ready_at) == (os.getpid(), clock.now, None)
    writer.stop_beat("engine")
    assert reader.heartbeats()[0].stopped_at == clock.now


def _as_pid(path: Path, pid: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE heartbeats SET pid = ?", (pid,))
    connection.close()


def test_a_worker_is_alive_while_it_holds_its_lock_whatever_its_last_heartbeat_says(
    writer: LedgerWriter, reader: LedgerReader, path: Path, clock: Clock
) -> None:
    with RoleLock(path.parent, "engine"):
        writer.beat("engine", ready=True)
        clock.now += 41
        (worker,) = reader.snapshot().workers
        assert (worker.alive, worker.ready, worker.stopped, worker.heartbeat_age_s) == (True, True, False, 41.0)
    (worker,) = reader.snapshot().workers
    assert (worker.alive, worker.stopped) == (False, False)


def test_events_are_read_forward_and_backward(writer: LedgerWriter, reader: LedgerReader) -> None:
    for number in range(6):
        writer.event("warn" if number % 2 else "info", "engine", "kind", f"message {number}", sample_key="a")
    assert [event.message for event in reader.events(after_id=4)] == ["message 4", "message 5"]
    assert [event.message for event in reader.events(limit=2)] == ["message 0", "message 1"]
    assert [event.message for event in reader.last_events(2)] == ["message 4", "message 5"]
    assert [event.message for event in reader.last_events(2, ("warn",))] == ["message 3", "message 5"]
    assert [event.message for event in reader.last_events(2, before_id=5)] == ["message 2", "message 3"]
    assert reader.snapshot().last_event_id == 6


def test_a_full_disk_is_told_apart_and_leaves_what_was_committed(writer: LedgerWriter, path: Path) -> None:
    queue(writer, "a")
    connection = writer._transactions.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFullError, match="the disk is full"):
        writer.event("info", "engine", "kind", "x" * 10_000_000)
    assert writer.books().committed_pico == 0
    connection.execute("PRAGMA max_page_count = 1000000")
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]
    assert send(writer, 1) == 1
