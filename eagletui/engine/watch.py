"""Watch every endpoint while it answers: named constants, drift, proof; and what a breach of `[check]` does.

Verdicts are a pure function of an endpoint's counts (`core/drift.py`), recomputed after each batch.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from eagletui.config import CheckSection
from eagletui.core.drift import LEAST_SAMPLES, EndpointCounts, Split, Verdict, judge
from eagletui.core.fidelity import PROVED
from eagletui.core.findings import Finding, endpoint_findings
from eagletui.core.reply import Reply
from eagletui.ledger.reader_counts import CountedGroup
from eagletui.ledger.writer import LedgerWriter
from eagletui.tokens.answer import Rebuilt

CHECKED_KINDS: Final = ("constant", "counts", "drift", "unproven")
"""Findings that the watch opens and closes."""


@dataclass(slots=True)
class Tally:
    """What is known of one endpoint."""

    counts: dict[Split, dict[int, int]] = field(default_factory=dict)
    """Samples by billed - counted, for each kind of answer."""
    samples: int = 0
    proved: int = 0
    billed: int = 0
    """Billed output tokens where drift is known."""
    drifts: Counter[tuple[str | None, int]] = field(default_factory=Counter)
    """Samples by finish reason (None where the model did not end the answer) and drift with no constant undone."""
    example: str | None = None
    """A sample that is off."""
    verdict: Verdict = field(default_factory=Verdict)
    findings: tuple[Finding, ...] = ()
    """As last reviewed."""

    def count(self, split: Split, excess: int | None, samples: int, example: str) -> None:
        """Add samples that differ from their bill by as much."""
        if excess is None:
            return
        row = self.counts.setdefault(split, {})
        row[excess] = row.get(excess, 0) + samples
        if excess:
            self.example = example

    @property
    def off(self) -> int:
        """Sum of the absolute drift under the verdict, whatever was known when each answer came."""
        return sum(
            samples * abs(drift - self.verdict.offset(finish)) for (finish, drift), samples in self.drifts.items()
        )


@dataclass(frozen=True, slots=True)
class Review:
    """What changed at one endpoint."""

    endpoint: str
    verdict: Verdict
    """In force now."""
    relabels: bool
    """Labels on disk must be made again."""
    findings: tuple[Finding, ...]
    """Open ones."""
    breaches: tuple[Finding, ...]
    """Findings that are new since the last review and break `[check]`."""


class Watch:
    """Keeps the tallies of a run."""

    def __init__(self, check: CheckSection, *, doubted: bool = False) -> None:
        """Start with nothing seen.

        Args:
            check: limits of the config.
            doubted: the format does not fit the tokenizer, so no verdict may make a count count again.
        """
        self._check = check
        self._doubted = doubted
        self._tallies: dict[str, Tally] = {}
        self._touched: set[str] = set()
        self._raised: set[tuple[str, str]] = set()

    def restore(self, groups: Sequence[CountedGroup]) -> None:
        """Take over what the ledger holds. Breaches that stand already are not raised again."""
        for group in groups:
            tally = self._tallies.setdefault(group.endpoint, Tally())
            finish = group.finish_reason or "unknown"
            split = Split(finish, reasoning=False, tools=finish == "tool_calls")
            tally.count(split, group.excess, group.samples, group.example_key)
            tally.samples += group.samples
            tally.proved += group.proved
            tally.billed += group.billed
            if group.drift is not None:
                tally.drifts[finish if group.ended else None, group.drift] += group.samples
            self._touched.add(group.endpoint)
        for endpoint, tally in self._tallies.items():
            tally.verdict = judge(EndpointCounts(tally.counts))
            tally.findings = self._findings(endpoint, tally)
            self._raised |= {(finding.kind, endpoint) for finding in tally.findings}

    def verdict(self, endpoint: str) -> Verdict:
        """Return what an endpoint's answers said at the last review."""
        tally = self._tallies.get(endpoint)
        return Verdict() if tally is None else tally.verdict

    def see(self, endpoint: str, sample_key: str, reply: Reply, rebuilt: Rebuilt) -> None:
        """Count one answer."""
        tally = self._tallies.setdefault(endpoint, Tally())
        split = Split(reply.finish_reason or "unknown", bool(reply.reasoning), bool(reply.tool_calls))
        tally.count(split, rebuilt.plain_excess, 1, sample_key)
        tally.samples += 1
        tally.proved += rebuilt.evidence in PROVED
        if rebuilt.drift is not None and rebuilt.billed is not None:
            tally.billed += rebuilt.billed
            if rebuilt.ended:
                tally.drifts[split.finish, rebuilt.drift + (rebuilt.offset or 0)] += 1
            else:
                tally.drifts[None, rebuilt.drift] += 1
        self._touched.add(endpoint)

    def review(self, stale: Collection[str] = ()) -> list[Review]:
        """Judge the endpoints that answered since the last review; those with nothing new are left out.

        Args:
            stale: endpoints whose labels must be written again, because some were made before their constant was known.
        """
        touched, self._touched = self._touched | set(stale), set()
        reviews = (self._review(tag, self._tallies[tag], tag in stale) for tag in sorted(touched))
        return [review for review in reviews if review is not None]

    def _review(self, endpoint: str, tally: Tally, is_stale: bool) -> Review | None:
        verdict = judge(EndpointCounts(tally.counts))
        changed = is_stale or not labels_alike(verdict, tally.verdict)
        tally.verdict = verdict
        findings = self._findings(endpoint, tally)
        if not changed and findings == tally.findings:
            return None
        tally.findings = findings
        standing = {(finding.kind, endpoint) for finding in findings}
        self._raised -= {known for known in self._raised if known[1] == endpoint and known not in standing}
        breaches = tuple(finding for finding in findings if (finding.kind, endpoint) not in self._raised)
        self._raised |= standing
        return Review(endpoint, verdict, changed and not self._doubted, findings, breaches)

    def _findings(self, endpoint: str, tally: Tally) -> tuple[Finding, ...]:
        found = endpoint_findings(endpoint, tally.verdict, tally.example)
        if tally.samples < LEAST_SAMPLES:
            return tuple(found)
        drift_percent = 100.0 * tally.off / tally.billed if tally.billed else 0.0
        if drift_percent > self._check.max_drift_percent:
            sentence = (
                f"On endpoint {endpoint}, billed and counted tokens differ by {tally.off:,} of {tally.billed:,} "
                f"({drift_percent:.2f} %), above max_drift_percent = {self._check.max_drift_percent:g}"
            )
            action = f"Open the example; quarantine {endpoint} or correct its format or profile and rebuild."
            found.append(Finding("drift", sentence, tally.off, tally.billed, tally.example, action, endpoint))
        unproven = tally.samples - tally.proved
        unproven_percent = 100.0 * unproven / tally.samples
        if unproven_percent > self._check.max_unproven_percent:
            sentence = (
                f"On endpoint {endpoint}, the ids of {unproven:,} of {tally.samples:,} answers are not proved "
                f"({unproven_percent:.1f} %), above max_unproven_percent = {self._check.max_unproven_percent:g}"
            )
            action = f"Quarantine {endpoint} or use endpoints that stream or give logprobs."
            found.append(Finding("unproven", sentence, unproven, tally.samples, None, action, endpoint))
        return tuple(found)


def write_finding(finding: Finding, writer: LedgerWriter) -> bool:
    """Put a finding into the ledger, and say whether it is new or was closed."""
    return writer.finding(
        finding.kind,
        finding.sentence,
        affected=finding.affected,
        examined=finding.examined,
        action=finding.action,
        endpoint=finding.endpoint,
        example_key=finding.example,
    )


def labels_alike(one: Verdict, other: Verdict) -> bool:
    """Tell whether two verdicts give every answer the same label."""
    return (one.cause, one.trusted) == (other.cause, other.trusted)


def write_review(writer: LedgerWriter, review: Review) -> int:
    """Put a review into the ledger: the offset and its labels, findings opened and closed.

    Returns:
        How many samples have another label.
    """
    relabelled = 0
    with writer.transaction():
        if review.relabels:
            relabelled = writer.relabel_endpoint(review.endpoint, review.verdict)
        for finding in review.findings:
            write_finding(finding, writer)
        for kind in CHECKED_KINDS:
            if all(finding.kind != kind for finding in review.findings):
                writer.close_finding(kind, review.endpoint)
    return relabelled
