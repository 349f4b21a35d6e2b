"""`eagletui ctl` while no engine is alive: what the ledger alone can take, what it cannot, and wrong usage."""

import pytest

from eagletui.cli.ctl import arguments
from eagletui.core.errors import InputError
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.folder import RunFolder
from tests.cli.conftest import Command
from tests.ledger.build import answered_sample, send


def test_the_cap_changes_without_an_engine_and_the_order_is_on_record(eagletui: Command, made_run: RunFolder) -> None:
    ended = eagletui("ctl", made_run.name, "cap", "12.5", "--json")
    assert ended.code == 0
    assert ended.json["changed"] is True
    with LedgerReader(made_run.ledger_path) as reader:
        assert reader.books().cap_pico == 12_500_000_000_000
        order = reader.command(1)
        assert reader.commands_pending() == []
    assert order is not None
    told = "The cap is $12.50. No engine is running; eagletui run {} goes on."
    assert (order.verb, order.changed, order.result) == ("cap", 1, told.format("RUN"))
    assert ended.json["result"] == told.format("small")


def test_a_cap_below_what_is_settled_or_promised_is_taken_and_says_that_nothing_is_sent(
    eagletui: Command, made_run: RunFolder
) -> None:
    with LedgerWriter(made_run.ledger_path) as writer:
        writer.set_run_state("running")
        answered_sample(writer, 1, cost=7_000_000_000)
        send(writer, 2, hold=2_000_000_000)
    lowered = eagletui("ctl", made_run.name, "cap", "0.006")
    assert (lowered.code, lowered.out) == (
        0,
        "The cap is $0.006, below the $0.007 already settled: nothing new is sent. "
        "No engine is running; once the cap is raised, eagletui run small goes on.\n",
    )
    tight = eagletui("ctl", made_run.name, "cap", "0.008").out
    assert "below the $0.009 that requests under way may come to: nothing new is sent until" in tight
    assert eagletui("ctl", made_run.name, "cap", "0.5").out == (
        "The cap is $0.50. It comes before stop-at, $1.00. No engine is running; eagletui run small goes on.\n"
    )
    assert eagletui("ctl", made_run.name, "stop-at", "0.007").out == (
        "Stop-at is $0.007, and $0.007 is settled already: nothing new is sent. "
        "No engine is running; once stop-at is raised, eagletui run small goes on.\n"
    )
    raised = eagletui("ctl", made_run.name, "cap", "0.6").out
    assert "The cap is $0.60. Stop-at, $0.007, is reached as well: to go on, raise it too" in raised
    assert "The cap, $0.60, comes first: raise it too" in eagletui("ctl", made_run.name, "stop-at", "2").out


def test_a_repeated_order_changes_nothing_says_so_and_still_exits_0(eagletui: Command, made_run: RunFolder) -> None:
    assert eagletui("ctl", made_run.name, "stop-at", "0.75", "--json").json["changed"] is True
    again = eagletui("ctl", made_run.name, "stop-at", "0.75", "--json")
    assert (again.code, again.json["changed"]) == (0, False)


def test_pace_and_retries_need_no_engine_either(eagletui: Command, made_run: RunFolder) -> None:
    with LedgerWriter(made_run.ledger_path) as writer:
        writer.set_run_state("running")
        attempt_id = send(writer, 1)
        from eagletui.ledger.orders import Failed, Finished

        writer.finish([Finished(attempt_id, Failed("void", "server_error", "It broke."))])
    assert eagletui("ctl", made_run.name, "in-flight", "3", "--json").json["changed"] is True
    assert eagletui("ctl", made_run.name, "retry", "p0", "--json").json["changed"] is True
    none = eagletui("ctl", made_run.name, "retry", "--json").json
    assert none["changed"] is False
    assert none["result"].startswith("No sample is queued again: none failed or was refused.")
    named = eagletui("ctl", made_run.name, "retry", "p0", "p1")
    assert (named.code, named.out.startswith("No sample is queued again: p0 is queued; p1 is queued.")) == (0, True)
    assert "none is set aside by a quarantine" in eagletui("ctl", made_run.name, "retry", "--suspect").out
    with LedgerReader(made_run.ledger_path) as reader:
        assert reader.run().max_in_flight == 3
        assert reader.snapshot().states["queued"] == 4


def test_a_quarantine_and_its_release_need_no_engine_price_the_second_purchase_and_undo_each_other(
    eagletui: Command, made_run: RunFolder
) -> None:
    with LedgerWriter(made_run.ledger_path) as writer:
        writer.set_run_state("running")
        for tag, price in (("alpha", "0.000001"), ("beta", "0.000002")):
            writer.upsert_endpoint(tag, tag)
            writer.add_price(tag, prompt_usd=price, completion_usd=price)
        answered_sample(writer, 1, cost=7_000_000_000)
    with LedgerReader(made_run.ledger_path) as reader:
        before = reader.rows([1])
        for verb in ("quarantine", "release"):
            unknown = eagletui("ctl", made_run.name, verb, "gamma")
            assert (unknown.code, unknown.out) == (2, "")
            assert f"{verb}: No endpoint gamma; this run uses alpha, beta." in unknown.err
        ended = eagletui("ctl", made_run.name, "quarantine", "alpha", "--since", "1970-01-02T00:00", "--json")
        assert (ended.code, ended.json["changed"]) == (0, True)
        # 5 tokens at 0.000002.
        assert (
            "1 sample of it set aside. They cost $0.0070; buying them again costs about $0.0000"
            in (ended.json["result"])
        )
        assert reader.snapshot().states["quarantined"] == 1
        assert eagletui("status", made_run.name, "--json").json["usability"]["model_suspect"] == 1
        again = eagletui("ctl", made_run.name, "quarantine", "alpha", "--since", "1970-01-02T00:00", "--json")
        assert again.json["changed"] is False
        assert eagletui("ctl", made_run.name, "release", "alpha", "--json").json["changed"] is True
        assert eagletui("ctl", made_run.name, "release", "alpha", "--json").json["changed"] is False
        assert reader.rows([1]) == before
        eagletui("ctl", made_run.name, "quarantine", "alpha", "--since", "1970-01-02T00:00")
        assert eagletui("ctl", made_run.name, "retry", "--suspect", "--json").json["changed"] is True
        assert reader.snapshot().states["quarantined"] == 0


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
def test_what_only_an_engine_can_do_exits_1_and_leaves_no_order_behind(
    eagletui: Command, made_run: RunFolder, verb: str
) -> None:
    ended = eagletui("ctl", made_run.name, verb)
    assert ended.code == 1
    assert "No engine of run small is alive" in ended.err
    assert ended.out == ""
    with LedgerReader(made_run.ledger_path) as reader:
        assert reader.commands_pending() == []


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
def test_a_run_that_is_done_has_nothing_to_pause_resume_or_stop(
    eagletui: Command, made_run: RunFolder, verb: str
) -> None:
    with LedgerWriter(made_run.ledger_path) as writer:
        for state in ("running", "draining", "done"):
            writer.set_run_state(state)
    ended = eagletui("ctl", made_run.name, verb)
    assert (ended.code, ended.err) == (1, f"eagletui: Run small is done: there is nothing to {verb}.\n")


def test_a_stopped_run_is_resumed_by_running_it(eagletui: Command, made_run: RunFolder) -> None:
    with LedgerWriter(made_run.ledger_path) as writer:
        writer.set_run_state("stopped")
    ended = eagletui("ctl", made_run.name, "resume")
    assert (ended.code, ended.err) == (1, "eagletui: Run small is stopped. Go on with: eagletui run small\n")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("small", "halt"), "No verb is called halt; expected pause, resume"),
        (("small", "cap"), "cap: found nothing, expected one amount"),
        (("small", "cap", "ten"), "expected an amount in dollars"),
        (("small", "cap", "-1"), "cap: found -1, expected an amount of zero or more."),
        (("small", "pause", "--nwo"), "pause: found --nwo, expected no value."),
        (("small", "cap", "1e400"), "more than the ledger can hold"),
        (("small", "in-flight", "0"), "expected a number from 1 to 20000"),
        (("small", "pause", "now"), "pause: found now, expected no value"),
        (("small", "resume", "--now"), "--now goes with pause only"),
        (("small", "cap", "1", "--since", "10:00"), "--since goes with quarantine only"),
        (("small", "quarantine"), "expected one endpoint"),
        (("small", "retry", "p0", "--suspect"), "--suspect goes with retry only, and without samples"),
        (("small", "resume", "--suspect"), "--suspect goes with retry only"),
        (("small", "quarantine", "x", "--since", "noon"), "expected 2026-01-31T18:00"),
        (("small", "quarantine", "x"), "quarantine: No endpoint x; this run uses none yet."),
        (("small", "retry", "p0", "p99"), "retry: run small has no sample p99; nothing was queued."),
        (("smal", "pause"), "Did you mean small?"),
        ((), "Missing argument"),
    ],
)
def test_wrong_usage_exits_2_and_says_what_is_expected(
    eagletui: Command, made_run: RunFolder, args: tuple[str, ...], words: str
) -> None:
    ended = eagletui("ctl", *args)
    assert ended.code == 2
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_a_dollar_sign_is_fine_and_an_amount_below_zero_is_not() -> None:
    assert arguments("cap", ["$12.50"]) == {"usd": "12.50"}
    with pytest.raises(InputError, match="zero or more"):
        arguments("cap", ["-0.01"])


def test_since_is_a_local_time_or_a_clock_time_of_today() -> None:
    from datetime import datetime

    given = arguments("quarantine", ["x"], since="2026-01-31T18:00")["since"]
    assert datetime.fromtimestamp(given).astimezone().strftime("%Y-%m-%d %H:%M") == "2026-01-31 18:00"
    today = arguments("quarantine", ["x"], since="18:00")["since"]
    assert datetime.fromtimestamp(today).astimezone().strftime("%H:%M") == "18:00"
