"""Carry out orders that concern the ledger alone, where no engine works: the same from `ctl` and from the screens."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

from eagletui.core.errors import LockedError
from eagletui.core.money import cap_text, format_usd, other_limit_text, stop_at_text, usd_to_pico
from eagletui.core.text import clean_line
from eagletui.ledger import commands
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rebuying import Quarantined
from eagletui.ledger.rows import BulkVerb, Verb
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_bulk import Progress

SHOWN_KEYS: Final = 3
_UNFOLLOWED: Final = "the turn before has an answer that cannot be followed"


class Applied(NamedTuple):
    """What an order did."""

    changed: bool
    result: str
    """One sentence; commands in it say RUN for the run."""


def apply_without_engine(ledger: Path, verb: Verb, args: Mapping[str, Any], issued_by: str) -> Applied | None:
    """Carry out an order here, while nobody can start an engine.

    Args:
        ledger: the run's.
        verb: what to do.
        args: checked already.
        issued_by: `ctl` or `app`, for the log.

    Returns:
        What it did; None where the verb needs an engine, or one has started and takes the order.
    """
    if verb not in WITHOUT_ENGINE:
        return None
    try:
        with RoleLock(ledger.parent, "engine"):
            number = commands.issue(ledger, verb, args)
            with LedgerWriter(ledger) as writer:
                applied = _ACTS[verb](writer, number, args)
                applied = applied._replace(result=f"{applied.result}{_what_next(ledger)}")
                writer.apply_command(number, applied.changed, applied.result)
                writer.event("info", issued_by, "command", f"{verb}: {applied.result}")
    except LockedError:
        return None
    return applied


def quarantine_words(endpoint: str, moved: Quarantined) -> str:
    """Say what a quarantine did and what buying again costs."""
    if not moved.samples:
        return f"{clean_line(endpoint, 80)} is not used any more; nothing more of it is set aside."
    words = f"{clean_line(endpoint, 80)} is not used any more; {_samples(moved.samples)} of it set aside"
    if moved.later_turns:
        words += f" ({_samples(moved.later_turns)} of later turns would be bought again with them)"
    low, high = moved.rebuy_low_pico, moved.rebuy_high_pico
    if low is None or high is None:
        price = "what buying them again costs is not known"
    elif low == high:
        price = f"buying them again costs about {format_usd(low)}"
    else:
        price = f"buying them again costs about {format_usd(low)} to {format_usd(high)}, by endpoint"
    return f"{words}. They cost {format_usd(moved.cost_pico)}; {price} (`ctl RUN retry --suspect`)."


def release_words(endpoint: str, moved: Quarantined) -> str:
    """Say what a release did."""
    return f"{clean_line(endpoint, 80)} may be used; {_samples(moved.samples)} as before."


def unknown_endpoint(endpoint: str, known: Mapping[str, object] | list[str]) -> str:
    """Say that a run has no such endpoint."""
    names = ", ".join(clean_line(tag, 60) for tag in sorted(known)) or "none yet"
    return f"No endpoint {clean_line(endpoint, 60)}; this run uses {names}."


def retry_words(reader: LedgerReader, queued: int, keys: Sequence[str], *, suspect: bool) -> str:
    """Say how many samples were queued again; if none, why.

    Args:
        reader: of the run's ledger, after the order.
        queued: how many were.
        keys: the samples that were named; empty for all that failed or were refused.
        suspect: every quarantined one was meant.
    """
    if queued:
        return f"{_samples(queued)} queued again."
    if keys:
        standing = "; ".join(_standing(reader, key) for key in keys[:SHOWN_KEYS])
        more = f"; and {_samples(len(keys) - SHOWN_KEYS)} more" if len(keys) > SHOWN_KEYS else ""
        return f"No sample is queued again: {standing}{more}. Failed, refused and quarantined ones can be."
    if suspect:
        return "No sample is queued again: none is set aside by a quarantine."
    states = reader.snapshot().states
    if states["failed"]:
        return f"No sample is queued again: {_samples(states['failed'])} failed, and {_UNFOLLOWED}."
    return "No sample is queued again: none failed or was refused."


def _standing(reader: LedgerReader, key: str) -> str:
    sample = reader.sample(key)
    name = clean_line(key, 60)
    if sample is None:
        return f"there is no sample {name}"
    state = sample.row.state
    return f"{name} is {state.replace('_', ' ')}" + (f", and {_UNFOLLOWED}" if state == "failed" else "")


def _cap(writer: LedgerWriter, number: int, args: Mapping[str, Any]) -> Applied:
    changed = writer.set_cap(usd_to_pico(Decimal(args["usd"])))
    books = writer.books()
    return Applied(changed, cap_text(books) + other_limit_text(books, "cap"))


def _stop_at(writer: LedgerWriter, number: int, args: Mapping[str, Any]) -> Applied:
    changed = writer.set_stop_at(usd_to_pico(Decimal(args["usd"])))
    books = writer.books()
    return Applied(changed, stop_at_text(books) + other_limit_text(books, "stop_at"))


def _in_flight(writer: LedgerWriter, number: int, args: Mapping[str, Any]) -> Applied:
    requests = "1 request" if args["n"] == 1 else f"{args['n']:,} requests"
    return Applied(writer.set_max_in_flight(args["n"]), f"At most {requests} in flight.")


def _retry(writer: LedgerWriter, number: int, args: Mapping[str, Any]) -> Applied:
    progress = _to_its_end(writer, number, "retry", args)
    with LedgerReader(writer.path) as reader:
        words = retry_words(reader, progress.samples, args["samples"], suspect=args.get("suspect", False))
    return Applied(progress.changed, words)


def _quarantine(writer: LedgerWriter, number: int, args: Mapping[str, Any]) -> Applied:
    endpoint = args["endpoint"]
    if not writer.knows_endpoint(endpoint):
        return Applied(False, unknown_endpoint(endpoint, _tags(writer)))
    progress = _to_its_end(writer, number, "quarantine", args)
    return Applied(progress.changed, quarantine_words(endpoint, writer.quarantined(endpoint, progress)))


def _release(writer: LedgerWriter, number: int, args: Mapping[str, Any]) -> Applied:
    endpoint = args["endpoint"]
    if not writer.knows_endpoint(endpoint):
        return Applied(False, unknown_endpoint(endpoint, _tags(writer)))
    progress = _to_its_end(writer, number, "release", args)
    moved = Quarantined(progress.samples, progress.cost_pico, progress.changed)
    return Applied(moved.changed, release_words(endpoint, moved))


def _to_its_end(writer: LedgerWriter, number: int, verb: BulkVerb, args: Mapping[str, Any]) -> Progress:
    """Do all slices of an order; where this process is killed, the next engine does the rest."""
    while True:
        progress = writer.carry_on(number, verb, args)
        if progress.is_done:
            return progress


_ACTS: Final[dict[Verb, Callable[[LedgerWriter, int, Mapping[str, Any]], Applied]]] = {
    "cap": _cap,
    "stop-at": _stop_at,
    "in-flight": _in_flight,
    "retry": _retry,
    "quarantine": _quarantine,
    "release": _release,
}

WITHOUT_ENGINE: Final = tuple(_ACTS)
"""Verbs that change the ledger alone, and so need no engine."""


def _tags(writer: LedgerWriter) -> list[str]:
    with LedgerReader(writer.path) as reader:
        return [row.tag for row in reader.endpoints()]


def _what_next(ledger: Path) -> str:
    with LedgerReader(ledger) as reader:
        snapshot = reader.snapshot()
    if snapshot.run.state == "done" and not snapshot.states["queued"]:
        return " The run is done: nothing is left to ask."
    books = snapshot.spend.books
    # What is gone leaves room for free requests alone, and those need no budget only while nothing is gone.
    if books.spent_pico and books.spent_pico >= min(books.cap_pico, books.stop_at_pico):
        limit = "the cap" if books.cap_pico < books.stop_at_pico else "stop-at"
        return f" No engine is running; once {limit} is raised, eagletui run RUN goes on."
    return " No engine is running; eagletui run RUN goes on."


def _samples(number: int) -> str:
    return "1 sample" if number == 1 else f"{number:,} samples"
