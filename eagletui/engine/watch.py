"""Watch every endpoint while it answers: named constants, drift, proof; and what a breach of `[check]` does.

Verdicts are a pure function of an endpoint's counts (`core/drift.py`), recomputed after each batch.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from eagletui.config.sections import CheckSection
from eagletui.core.answer_traits import Traits
from eagletui.core.content_findings import CONTENT_KINDS
from eagletui.core.drift import LEAST_SAMPLES, EndpointCounts, Split, Verdict, judge
from eagletui.core.fidelity import PROVED
from eagletui.core.findings import (
    Finding,
    cut_anew_finding,
    elsewhere_finding,
    end_finding,
    endpoint_findings,
    failing_finding,
    leaving_endpoints,
    proved_arguments_finding,
)
from eagletui.core.prompt_counts import PromptCounts, prompt_finding
from eagletui.core.reply import Reply
from eagletui.engine.content_watch import ContentWatch
from eagletui.engine.tally import Faulty, Tally
from eagletui.ledger.reader_counts import CountedGroup
from eagletui.ledger.writer import LedgerWriter
from eagletui.tokens.answer import Rebuilt
from eagletui.tokens.profiles import ENOUGH

BREACHES: Final = ("constant", "counts", "end_token", "drift", "unproven", "elsewhere", *CONTENT_KINDS)
"""Findings that break `[check]`."""

OF_COUNTS: Final = ("constant", "counts", "drift")
"""Those that another loss profile may undo."""

AWAITED: Final = 2 * ENOUGH
"""Answers of an endpoint after which its counts speak even if too few of them ended by themselves to choose from."""

CHECKED_KINDS: Final = (*BREACHES, "cut_anew", "prompt", "arguments", "endpoint", "failures")
"""Findings that the watch opens and closes."""

LEAST_ENDS: Final = 20
FAILING: Final = 0.5
"""Share of them from which an endpoint is failing."""


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

    def __init__(
        self,
        check: CheckSection,
        *,
        doubted: bool = False,
        awaits_profiles: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Start with nothing seen.

        Args:
            check: limits of the config.
            doubted: the format does not fit the tokenizer, so no verdict may make a count count again.
            awaits_profiles: `auto` has yet to choose loss profiles, under which the counts may agree; until `decided`
                is called for an endpoint, what its counts show is a finding and no breach.
            clock: Unix seconds.
        """
        self._content = ContentWatch(clock)
        self._check = check
        self._doubted = doubted
        self._awaits_profiles = awaits_profiles
        self._decided: set[str] = set()
        self._withheld: set[str] = set()
        self._tallies: dict[str, Tally] = {}
        self._touched: set[str] = set()
        self._raised: set[tuple[str, str]] = set()

    def restore(self, groups: Sequence[CountedGroup], standing: Sequence[Finding] = ()) -> None:
        """Take over what the ledger holds. Breaches that stand already are not raised again.

        Args:
            groups: its answers.
            standing: open findings; those of the content stand on until sound answers have come.
        """
        self._content.restore(standing)
        for finding in standing:
            if finding.kind in CONTENT_KINDS:
                self._tallies.setdefault(finding.endpoint, Tally())
            if finding.kind == "elsewhere":
                tally = self._tallies.setdefault(finding.endpoint, Tally())
                tally.elsewhere = Faulty(finding.affected, finding.examined, finding.example)
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

    @property
    def has_news(self) -> bool:
        """Whether answers were counted since the last review."""
        return bool(self._touched)

    def decided(self, endpoint: str, *, anew: bool = False) -> None:
        """Learn that an endpoint's loss profile stands.

        Args:
            endpoint: the one it is for.
            anew: answers are counted again under it, so what was counted is forgotten.
        """
        self._decided.add(endpoint)
        if anew and endpoint in self._tallies:
            self._tallies[endpoint] = self._tallies[endpoint].anew()
        if endpoint in self._tallies:
            self._touched.add(endpoint)

    def see(
        self, endpoint: str, sample_key: str, reply: Reply, rebuilt: Rebuilt, prompt: PromptCounts | None = None
    ) -> None:
        """Count one answer.

        Args:
            endpoint: the one that answered.
            sample_key: names the sample in findings.
            reply: as parsed.
            rebuilt: its ids, before any label was taken back.
            prompt: its prompt's tokens; None where they are not billed or could not be rendered.
        """
        tally = self._tallies.setdefault(endpoint, Tally())
        split = Split(reply.finish_reason or "unknown", bool(reply.reasoning), bool(reply.tool_calls))
        tally.count(split, rebuilt.plain_excess, 1, sample_key)
        tally.samples += 1
        tally.proved += rebuilt.evidence in PROVED
        if rebuilt.drift is not None and rebuilt.billed is not None:
            tally.billed += rebuilt.billed
            if rebuilt.canonical_excess is not None:
                tally.canonical[split.finish if rebuilt.ended else None, rebuilt.canonical_excess] += 1
            if rebuilt.ended:
                tally.drifts[split.finish, rebuilt.drift + (rebuilt.offset or 0)] += 1
            else:
                tally.drifts[None, rebuilt.drift] += 1
        tally.take_faults(sample_key, rebuilt)
        if prompt is not None:
            tally.take_prompt(prompt, sample_key)
        self._touched.add(endpoint)

    def look(self, endpoint: str, sample_key: str, traits: Traits) -> None:
        """Take in what one answer looks like."""
        self._tallies.setdefault(endpoint, Tally())
        self._content.see(endpoint, sample_key, traits)
        self._touched.add(endpoint)

    def served(self, endpoint: str, sample_key: str, by: str | None = None, *, other_model: bool = False) -> None:
        """Take in who answered a request.

        Args:
            endpoint: the one asked.
            sample_key: whose request it was.
            by: what the answer is filed under where another endpoint or model gave it.
            other_model: another model gave it.
        """
        tally = self._tallies.setdefault(endpoint, Tally())
        tally.elsewhere.add(sample_key, by is not None)
        if by is not None:
            tally.served_by, tally.other_model = by, tally.other_model or other_model
            self._touched.add(endpoint)

    def ended(self, endpoint: str, sample_key: str, *, failed: bool) -> None:
        """Take in whether a request failed by a fault of the endpoint."""
        self._tallies.setdefault(endpoint, Tally()).requests.append(sample_key if failed else None)
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
        verdict = judge(EndpointCounts(tally.counts), tally.streams)
        changed = is_stale or not labels_alike(verdict, tally.verdict)
        tally.verdict = verdict
        findings = self._findings(endpoint, tally)
        withheld = self._withholds(endpoint, tally)
        if not changed and findings == tally.findings and (withheld or endpoint not in self._withheld):
            return None
        tally.findings = findings
        self._withheld.discard(endpoint)
        if withheld and any(finding.kind in OF_COUNTS for finding in findings):
            self._withheld.add(endpoint)
        standing = {(f.kind, endpoint) for f in findings if not (withheld and f.kind in OF_COUNTS)}
        self._raised -= {known for known in self._raised if known[1] == endpoint and known not in standing}
        new = standing - self._raised
        breaches = tuple(f for f in findings if f.kind in BREACHES and (f.kind, endpoint) in new)
        self._raised |= standing
        return Review(endpoint, verdict, changed and not self._doubted, findings, breaches)

    def _withholds(self, endpoint: str, tally: Tally) -> bool:
        """Tell whether a loss profile may yet explain what an endpoint's counts show."""
        return self._awaits_profiles and endpoint not in self._decided and tally.samples < AWAITED

    def _findings(self, endpoint: str, tally: Tally) -> tuple[Finding, ...]:
        found = [*endpoint_findings(endpoint, tally.verdict, tally.example), *self._faults(endpoint, tally)]
        found += self._content.findings(endpoint)
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

    def _faults(self, endpoint: str, tally: Tally) -> Iterator[Finding]:
        """Word what the answers of an endpoint show beside its counts."""
        if tally.verdict.cut_anew:
            yield cut_anew_finding(endpoint, tally.streams, tally.refuted)
        prompt = prompt_finding(endpoint, tally.prompts, tally.prompt_example)
        if prompt is not None:
            yield prompt
        failed = [key for key in tally.requests if key is not None]
        if len(tally.requests) >= LEAST_ENDS and len(failed) > FAILING * len(tally.requests):
            yield failing_finding(endpoint, len(failed), len(tally.requests), failed[-1])
        if tally.elsewhere.affected:
            seen = tally.elsewhere
            yield elsewhere_finding(
                endpoint, tally.served_by, seen.affected, seen.examined, seen.example, other_model=tally.other_model
            )
        if tally.ends.is_systematic:
            yield end_finding(endpoint, tally.ends.affected, tally.ends.examined, tally.ends.example)
        if tally.arguments.is_systematic:
            faulty = tally.arguments
            yield proved_arguments_finding(endpoint, faulty.affected, faulty.examined, faulty.example)
        off = {tag: other.off_canonical for tag, other in self._tallies.items()}
        leaving = leaving_endpoints(off, {endpoint: tally.example} if tally.example else {})
        yield from (finding for finding in leaving if finding.endpoint == endpoint)


def labels_alike(one: Verdict, other: Verdict) -> bool:
    """Tell whether two verdicts give every answer the same label."""
    return (one.cause, one.trusted, one.cut_anew) == (other.cause, other.trusted, other.cut_anew)


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
            writer.put_finding(finding)
        for kind in CHECKED_KINDS:
            if all(finding.kind != kind for finding in review.findings):
                writer.close_finding(kind, review.endpoint)
    return relabelled
