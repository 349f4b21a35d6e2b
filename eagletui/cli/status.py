"""`eagletui status`: the figures of a run."""

import json
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from eagletui.cli.output import bytes_text, counted, print_json, print_pairs
from eagletui.cli.standing import standing_line
from eagletui.core.errors import InputError
from eagletui.core.fidelity import EVIDENCE, PROVED
from eagletui.core.hints import for_run
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.core.money import format_usd, limit_text, pico_to_usd_string
from eagletui.core.text import clean_line
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.snapshot import Snapshot
from eagletui.runs.find import find

WATCH_S = 1.0


def status(
    run: Annotated[str, typer.Argument(help="A run's name, folder or ledger.", metavar="RUN")],
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Print again every second until the run ends.")] = False,
) -> int:
    """Print the figures of a run."""
    if watch and json_:
        raise InputError("--watch prints many times and --json one object: choose one.")
    folder = find(run)
    with LedgerReader(folder.ledger_path) as reader:
        snapshot = reader.snapshot()
        if json_:
            print_json(status_object(snapshot))
            return 0
        print_pairs(status_pairs(snapshot, folder.argument))
        version = reader.data_version()
        while watch and _goes_on(snapshot):
            time.sleep(WATCH_S)
            if (now := reader.data_version()) == version:
                continue
            version, snapshot = now, reader.snapshot()
            print()
            print_pairs(status_pairs(snapshot, folder.argument))
    return 0


def status_object(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as the JSON that scripts rely on; money as decimal strings."""
    books, rate = snapshot.spend.books, snapshot.rate
    per_million = snapshot.spend.per_million_usable_pico
    return {
        "run": snapshot.run.name,
        "state": snapshot.run.state,
        "pause_reason": snapshot.run.pause_reason,
        "samples": dict(snapshot.states),
        "extracted": snapshot.extracted,
        "tokens": {
            "prompt": snapshot.tokens.prompt,
            "output": snapshot.tokens.output,
            "billed_prompt": snapshot.tokens.billed_prompt,
            "billed_output": snapshot.tokens.billed_output,
        },
        "spend_usd": {
            "settled": pico_to_usd_string(books.settled_pico),
            "held": pico_to_usd_string(books.held_pico),
            "unsettled": pico_to_usd_string(books.unsettled_pico),
            "unattributed": pico_to_usd_string(books.unattributed_pico),
            "stop_at": pico_to_usd_string(books.stop_at_pico),
            "cap": pico_to_usd_string(books.cap_pico),
            "per_million_usable": None if per_million is None else pico_to_usd_string(per_million),
        },
        "drift": {
            "tokens": snapshot.drift.tokens,
            "percent": snapshot.drift.percent,
            "by_endpoint": {
                endpoint.tag: {"tokens": endpoint.drift_tokens, "percent": endpoint.drift_percent}
                for endpoint in snapshot.endpoints
            },
        },
        "evidence": dict(snapshot.evidence),
        "usability": dict(snapshot.usability),
        "resegmented": snapshot.resegmented,
        "rate": {
            "samples_per_s": rate.samples_per_s if rate else None,
            "output_tokens_per_s": rate.output_tokens_per_s if rate else None,
        },
        "in_flight": snapshot.in_flight,
        "limited_by": snapshot.limited_by,
        "extract": {
            "shards": snapshot.extract.shards,
            "rows": snapshot.extract.rows,
            "bytes": snapshot.extract.bytes,
        },
        "workers": [
            {
                "role": worker.role,
                "pid": worker.pid,
                "alive": worker.alive,
                "heartbeat_age_s": round(worker.heartbeat_age_s, 3),
            }
            for worker in snapshot.workers
        ],
        "findings": [
            {
                "kind": finding.kind,
                "endpoint": finding.endpoint,
                "sentence": finding.sentence,
                "affected": finding.affected,
                "examined": finding.examined,
                "example": finding.example_key,
                "action": finding.action,
            }
            for finding in snapshot.findings
        ],
        "profiles": profiles_of(snapshot),
    }


def status_pairs(snapshot: Snapshot, argument: str) -> list[tuple[str, str]]:
    """Return a snapshot as lines for people.

    Args:
        snapshot: the run.
        argument: names it in commands.
    """
    run, tokens = snapshot.run, snapshot.tokens
    pairs = [
        ("run", clean_line(run.name)),
        ("state", standing_line(snapshot, argument)),
        ("samples", f"{snapshot.samples:,}: {named(snapshot.states)}"),
        ("exact", exact_text(snapshot)),
        ("usability", named(snapshot.usability) or "-"),
        (
            "other ids",
            f"{counted(snapshot.resegmented, 'sample')} whose ids are not what re-encoding the text gives",
        ),
        ("drift", drift_text(snapshot)),
        ("tokens", f"{tokens.prompt:,} prompt, {tokens.output:,} output"),
        ("dollars", dollars_text(snapshot)),
        ("features", _features_text(snapshot, argument)),
    ]
    profiles = ", ".join(
        f"{clean_line(tag)}: {name}" for tag, name in profiles_of(snapshot).items() if name is not None
    )
    if profiles:
        pairs.append(("loss profiles", profiles))
    if snapshot.rate is not None and run.state not in FINISHED_RUNS:
        pairs.append(
            ("pace", f"{snapshot.rate.samples_per_s:.2f} samples/s, {snapshot.rate.output_tokens_per_s:,.0f} tokens/s")
        )
    share = _stream_share(snapshot)
    if share < 1.0 and run.state not in FINISHED_RUNS:
        pairs.append(("streams", f"about {share:.0%} of the samples: more would take more CPU than there is"))
    if waits := waits_of(snapshot, argument):
        pairs.append(("waits", waits))
    if run.state not in FINISHED_RUNS:
        pairs += [("endpoint", words) for words in _taken_out(snapshot)]
    for worker in snapshot.workers:
        how = "alive" if worker.alive else "ended" if worker.stopped else "gone"
        name = worker.role if worker.slot == 0 else f"{worker.role} {worker.slot}"
        pairs.append((name, f"{how}, pid {worker.pid}, last heard {worker.heartbeat_age_s:,.0f} s ago"))
    for finding in snapshot.findings:
        words = for_run(f"{finding.sentence.rstrip('.')}. {finding.action}", argument)
        pairs.append(("finding", clean_line(words)))
    return pairs


def profiles_of(snapshot: Snapshot) -> dict[str, str | None]:
    """Return the loss profile of every endpoint that answered; None where `auto` has too few answers to choose from."""
    return {
        endpoint.tag: None if endpoint.row is None else endpoint.row.profile
        for endpoint in snapshot.endpoints
        if endpoint.samples
    }


def _engine_detail(snapshot: Snapshot) -> dict[str, Any]:
    """Return what the engine last said of itself."""
    engine = next((worker for worker in snapshot.workers if worker.role == "engine"), None)
    detail: dict[str, Any] = json.loads(engine.detail_json) if engine is not None else {}
    return detail


def waits_of(snapshot: Snapshot, argument: str) -> str:
    """Return why the engine still works although nothing is left to send; '' where it does not wait."""
    if not any(worker.role == "engine" and worker.alive for worker in snapshot.workers):
        return ""
    words = str(_engine_detail(snapshot).get("waits") or "")
    return clean_line(for_run(words, argument), 600)


def _stream_share(snapshot: Snapshot) -> float:
    """Return the part of the samples that the engine streams where it may."""
    return float(_engine_detail(snapshot).get("stream_share", 1.0))


def _taken_out(snapshot: Snapshot) -> list[str]:
    """Say which endpoints the engine has taken out of the rotation because nothing comes of them."""
    return [
        f"{clean_line(tag)} is out of the rotation for {figures['broken_s']:,.0f} s after "
        f"{counted(figures['failures'], 'failure')}; one request looks again in {figures['blocked_s']:,.0f} s"
        for tag, figures in _engine_detail(snapshot).get("endpoints", {}).items()
        if figures.get("broken_s") is not None
    ]


def _features_text(snapshot: Snapshot, argument: str) -> str:
    extract = snapshot.extract
    if not extract.shards and not any(worker.role == "extractor" for worker in snapshot.workers):
        return f"none; {counted(extract.pending, 'sample')} could have them: eagletui extract {argument} --model PATH"
    return (
        f"{counted(extract.samples, 'sample')}, {counted(extract.rows, 'row')},"
        f" {bytes_text(extract.bytes)} in {counted(extract.shards, 'shard')}"
    )


def named(figures: Mapping[str, int]) -> str:
    """Write counts by name, zeros left out: `22 tokenized, 2 failed`."""
    return ", ".join(f"{value:,} {name}" for name, value in figures.items() if value)


def exact_text(snapshot: Snapshot) -> str:
    """Say how many answers are proved and by what, and what is known of the others."""
    answered = sum(snapshot.evidence.values())
    proved = sum(snapshot.evidence.get(kind, 0) for kind in PROVED)
    share = f" ({100 * proved / answered:.1f} %)" if answered else ""
    return f"{proved:,} of {answered:,}{share}: {evidence_text(snapshot.evidence) or '-'}"


def evidence_text(evidence: Mapping[str, int]) -> str:
    """Write samples by evidence, best first: `10 logprobs, 10 streamed; unproved: 3 counted, 1 conflict`."""
    proofs = named({kind: evidence.get(kind, 0) for kind in PROVED})
    others = named({kind: evidence.get(kind, 0) for kind in EVIDENCE if kind not in PROVED})
    return "; ".join(filter(None, (proofs, others and f"unproved: {others}")))


def drift_text(snapshot: Snapshot) -> str:
    """Say how far billed and counted tokens differ."""
    percent = snapshot.drift.percent
    share = "unknown" if percent is None else f"{percent:.3f} %"
    return f"{snapshot.drift.tokens:+,} tokens of {snapshot.tokens.billed_output:,} billed ({share})"


def dollars_text(snapshot: Snapshot) -> str:
    """Write the books on one line, exact where small."""
    books = snapshot.spend.books
    return (
        f"{format_usd(books.settled_pico, 6)} settled, {format_usd(books.held_pico, 6)} held, "
        f"{format_usd(books.unsettled_pico, 6)} unsettled, {format_usd(books.unattributed_pico, 6)} unattributed; "
        f"stop-at {limit_text(books.stop_at_pico)}, cap {limit_text(books.cap_pico)}"
    )


def _goes_on(snapshot: Snapshot) -> bool:
    return snapshot.run.state not in FINISHED_RUNS or any(worker.alive for worker in snapshot.workers)
