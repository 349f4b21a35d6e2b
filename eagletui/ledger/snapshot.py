"""Everything a dashboard or `status` shows, read in one consistent moment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from eagletui.core.lifecycle import WorkerRole
from eagletui.core.money import Books
from eagletui.ledger.rows import EndpointRow, FindingRow, LimitedBy, RunRow

KEY_USAGE: Final = "key_usage"
"""Kind of the finding that the provider's key shows money which the run cannot have spent."""


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """Sums over samples."""

    prompt: int
    """Counted."""
    output: int
    """Counted."""
    billed_prompt: int
    billed_output: int
    trainable: int
    """Output tokens of samples that are usable or resegmented."""


@dataclass(frozen=True, slots=True)
class SpendFigures:
    """The books, and what follows from them."""

    books: Books
    wasted_pico: int
    """Settled costs of attempts without an answer."""
    per_million_usable_pico: int | None
    """Money spent per million trainable output tokens; None while there are none."""


@dataclass(frozen=True, slots=True)
class ThrottleFigures:
    """Requests that an endpoint refused for their number (HTTP 429), among the run's own of the last minute."""

    refused: int
    requests: int
    """All that were begun in the window."""
    window_s: float
    """A minute, or less where so many requests were begun that only the last ones were looked at."""
    last_age_s: float

    @property
    def per_minute(self) -> float:
        """How often."""
        return self.refused * 60 / self.window_s


@dataclass(frozen=True, slots=True)
class EndpointFigures:
    """One endpoint's samples, tokens and money."""

    tag: str
    row: EndpointRow | None
    """None when it answered without having been listed."""
    samples: int
    """Answered through it."""
    failures: int
    """Attempts that asked for it and ended with an error."""
    truncated: int
    """Answers cut by the token limit."""
    in_flight: int
    """Attempts held or sent."""
    billed_output: int
    output: int
    """Counted."""
    drift_tokens: int
    """billed - counted - offset, over the samples where it is known."""
    drift_percent: float | None
    """Of the billed tokens of those samples; None when nothing is known."""
    cost_pico: int
    evidence: Mapping[str, int]
    """Samples by evidence."""
    throttled: ThrottleFigures | None
    """None without an HTTP 429 in the last minute."""


@dataclass(frozen=True, slots=True)
class DriftFigures:
    """Billed against counted over the whole run."""

    tokens: int
    percent: float | None
    """Of billed tokens where drift is known; None when nothing is known."""
    samples: int
    """Samples with drift other than 0."""


@dataclass(frozen=True, slots=True)
class DatasetFigures:
    """One data set's share."""

    name: str
    states: Mapping[str, int]
    evidence: Mapping[str, int]
    usability: Mapping[str, int]
    finish_reasons: Mapping[str, int]
    tokens: TokenFigures
    resegmented: int
    drifting: int
    """Samples with drift other than 0."""
    drift_tokens: int
    extracted: int
    cost_pico: int
    """Known costs of its answers."""

    @property
    def samples(self) -> int:
        """All of them."""
        return sum(self.states.values())


@dataclass(frozen=True, slots=True)
class RateFigures:
    """Pace over the last 10 to 60 s."""

    samples_per_s: float
    output_tokens_per_s: float
    extracted_per_s: float
    pico_per_s: float
    window_s: int


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    """Seconds from request to the end of the answer, over the last answers."""

    p50_s: float
    p95_s: float
    samples: int
    """How many were looked at, at most 500."""


@dataclass(frozen=True, slots=True)
class ExtractFigures:
    """Features."""

    shards: int
    rows: int
    """Tokens in shards, prompts included."""
    bytes: int
    samples: int
    """With features."""
    pending: int
    """Trainable samples that wait for features."""


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """A worker's sign of life."""

    role: WorkerRole
    slot: int
    pid: int
    host: str
    alive: bool
    """It holds its lock."""
    ready: bool
    stopped: bool
    """It ended on purpose."""
    heartbeat_age_s: float
    started_at: float
    detail_json: str
    """Its own figures."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of a run."""

    at: float
    """When it was taken, Unix seconds."""
    run: RunRow
    states: Mapping[str, int]
    """Samples by state; every state is there."""
    extracted: int
    """Samples with features."""
    tokens: TokenFigures
    spend: SpendFigures
    drift: DriftFigures
    endpoints: tuple[EndpointFigures, ...]
    """By name."""
    evidence: Mapping[str, int]
    usability: Mapping[str, int]
    finish_reasons: Mapping[str, int]
    resegmented: int
    attempts: Mapping[str, int]
    """Attempts by state; every state is there."""
    retries: int
    """Attempts beyond the first of a sample."""
    failures: int
    """Attempts that ended with an error."""
    rate: RateFigures | None
    """None without ticks of the last minute."""
    latency: LatencyFigures | None
    """None before the first answer."""
    in_flight: int
    """Samples."""
    limited_by: LimitedBy | None
    extract: ExtractFigures
    workers: tuple[WorkerFigures, ...]
    findings: tuple[FindingRow, ...]
    """Open ones, newest first, at most 100."""
    datasets: tuple[DatasetFigures, ...]
    """By name."""
    last_event_id: int
    """0 when there is none."""

    @property
    def samples(self) -> int:
        """All of them."""
        return sum(self.states.values())

    @property
    def answered(self) -> int:
        """Samples that hold an answer."""
        return self.states["answered"] + self.states["tokenized"] + self.states["quarantined"]

    @property
    def key_excess(self) -> FindingRow | None:
        """The open finding that the provider's key shows more than the run can have spent, if there is one."""
        return next((finding for finding in self.findings if finding.kind == KEY_USAGE), None)
