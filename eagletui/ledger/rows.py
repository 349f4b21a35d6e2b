"""Rows of the ledger as frozen dataclasses, named like the tables. `None` is unknown and never 0."""

import json
from dataclasses import dataclass, fields
from typing import Any, Literal

from eagletui.core.lifecycle import AttemptState, PauseReason, RunState, SampleState, WorkerRole

Level = Literal["debug", "info", "warn", "error"]
Verb = Literal["pause", "resume", "stop", "cap", "stop-at", "in-flight", "retry", "quarantine", "release"]
BulkVerb = Literal["retry", "quarantine", "release"]
"""Verbs that may concern many samples, and so are carried out in slices."""
LimitedBy = Literal["cap", "pace", "endpoint", "cpu", "prompts"]
Encoding = Literal["json", "sse"]


def columns(row: type[Any], table: str | None = None) -> str:
    """List the columns that a row dataclass asks for, optionally qualified by the table."""
    prefix = f"{table}." if table else ""
    return ", ".join(f"{prefix}{field.name}" for field in fields(row))


@dataclass(frozen=True, slots=True)
class RunRow:
    """The run itself."""

    name: str
    state: RunState
    pause_reason: PauseReason | None
    """Set while paused."""
    pause_detail: str | None
    """One sentence: what happened and what to do."""
    created_at: float
    """Unix seconds, like every `_at`."""
    started_at: float | None
    finished_at: float | None
    config_json: str
    """The frozen config, without secrets."""
    stop_at_pico: int
    cap_pico: int
    max_in_flight: int
    limited_by: LimitedBy | None
    model_id: str
    format: str
    tokenizer_hash: str | None
    template_hash: str | None
    key_usage_at_start_pico: int | None
    """What the provider's key had spent before the run; None: not read yet, or a provider without accounts."""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One line of the samples browser."""

    id: int
    sample_key: str
    dataset: str
    state: SampleState
    failure_kind: str | None
    failure_detail: str | None
    attempts: int
    not_before: float
    """A queued sample waits until then; 0: never tried."""
    endpoint: str | None
    finish_reason: str | None
    evidence: str | None
    usability: str | None
    prompt_tokens: int | None
    """Counted."""
    output_tokens: int | None
    """Counted."""
    billed_prompt_tokens: int | None
    billed_output_tokens: int | None
    offset_tokens: int | None
    drift_tokens: int | None
    spans: int | None
    cost_pico: int | None
    latency_s: float | None
    answered_at: float | None
    preview: str
    """The prompt's last user turn, shortened."""
    extracted: bool
    """Current features exist."""


@dataclass(frozen=True, slots=True)
class OpinionRow:
    """What the target model said of an answer without proof."""

    sample_id: int
    sample_key: str
    endpoint: str | None
    """The one that answered."""
    question: str
    """Hash of what was asked; a sample whose question is another by now was not asked."""
    model: str
    """xxh3_128 of the model's files, hex."""
    posterior: float
    """Probability of the likeliest cut among all cuts, 0 to 1."""
    margin: float
    """Nats by which that cut is likelier than the ids before."""
    changed: int
    """1: that cut is not the ids before."""
    inferred: int
    """1: the sample was labelled by it."""
    tokens: int
    """Of the ids before; the next three are about them."""
    own: float
    """Their log-probability under the recorded sampling, nats."""
    expected: float
    """What it is on average for tokens that the model samples there."""
    variance: float
    """Of that sum."""
    structure_json: str
    """{special token: lowest log-probability}"""
    asked_at: float


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One HTTP request for a sample."""

    id: int
    sample_id: int
    number: int
    endpoint: str
    """Asked for; the answering one is in the sample."""
    state: AttemptState
    hold_pico: int
    cost_pico: int | None
    released: int
    """1: an unsettled hold covered by an adjustment."""
    has_answer: int
    """1: its reply is the sample's answer."""
    generation_id: str | None
    streamed: int
    http_status: int | None
    error_kind: str | None
    error_detail: str | None
    billed_prompt_tokens: int | None
    billed_output_tokens: int | None
    held_at: float
    sent_at: float | None
    headers_at: float | None
    first_event_at: float | None
    ended_at: float | None
    settled_at: float | None


@dataclass(frozen=True, slots=True)
class EventRow:
    """One line of the log. The message is foreign text: clean it before showing."""

    id: int
    at: float
    level: Level
    source: str
    kind: str
    sample_key: str | None
    message: str


@dataclass(frozen=True, slots=True)
class CommandRow:
    """One order to the worker."""

    id: int
    at: float
    verb: Verb
    args_json: str
    issued_by: str
    """user@host:pid"""
    applied_at: float | None
    changed: int | None
    """1 or 0 once applied."""
    result: str | None
    """One sentence."""


@dataclass(frozen=True, slots=True)
class HeartbeatRow:
    """A sign of life of a worker."""

    role: WorkerRole
    slot: int
    """Which of several receivers; 0 for the others."""
    pid: int
    host: str
    started_at: float
    ready_at: float | None
    beat_at: float
    stopped_at: float | None
    detail_json: str


@dataclass(frozen=True, slots=True)
class ShardRow:
    """A sealed file of features."""

    id: int
    path: str
    """Relative to RUN/features."""
    samples: int
    rows: int
    """Tokens, prompts included."""
    bytes: int
    xxh3: str
    """xxh3_128, hex."""
    sealed_at: float
    verified_at: float | None


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """A provider behind the router, as configured; its figures are in the snapshot."""

    tag: str
    provider_name: str
    quantization: str | None
    state: Literal["open", "quarantined"]
    quarantined_since: float | None
    profile: str | None
    offset_tokens: int | None
    offset_cause: str | None


@dataclass(frozen=True, slots=True)
class PriceRow:
    """What an endpoint asked at a time. Decimal strings, USD per token."""

    id: int
    endpoint: str
    fetched_at: float
    source: Literal["endpoints", "config", "local"]
    prompt_usd: str
    completion_usd: str
    request_usd: str
    max_completion_tokens: int | None
    raw_json: str


@dataclass(frozen=True, slots=True)
class AdjustmentRow:
    """Money booked without an attempt."""

    id: int
    at: float
    kind: Literal["unattributed"]
    amount_pico: int
    attempts: int
    """How many holds it released."""
    detail: str


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A systematic fault: a sentence, a count, an example, what to do."""

    id: int
    kind: str
    endpoint: str
    """'' when it is not an endpoint's."""
    sentence: str
    affected: int
    examined: int
    example_key: str | None
    action: str
    first_at: float
    last_at: float
    closed_at: float | None


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """A person's signature under a data set."""

    id: int
    at: float
    dataset: str
    rule: str
    accepted_by: str
    mismatched: int
    samples: int
    detail_json: str
    """Mismatched samples by kind, the cost of accepting them, and whether they were refused."""

    @property
    def is_refused(self) -> bool:
        """Tell whether the person refused the data set instead of accepting it."""
        return bool(json.loads(self.detail_json).get("refused"))

    @property
    def sentence(self) -> str:
        """Say it as manifests and screens do."""
        did = "refused" if self.is_refused else "accepted"
        counts = f"{self.mismatched} of {self.samples} samples of {self.dataset} mismatched"
        return f"{counts}, {did} by {self.accepted_by}: {self.rule}"


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A prompt file that was ingested."""

    id: int
    path: str
    sha256: str
    samples: int
    added_at: float


@dataclass(frozen=True, slots=True)
class TickRow:
    """Running totals at one second; differences of ticks are the charts."""

    at: int
    answered: int
    output_tokens: int
    settled_pico: int
    held_pico: int
    in_flight: int
    extracted: int
