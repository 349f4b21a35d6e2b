"""What workers hand to the ledger and get back: frozen values, parsed before they arrive here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from eagletui.core.chat import Message, Prompt
from eagletui.core.money import Overcharge
from eagletui.core.tokdiff import Span
from eagletui.ledger.codecs import Packed
from eagletui.ledger.rows import Encoding


class NewPrompt(NamedTuple):
    """A conversation to be added; a tuple, as a million of them may pass."""

    prompt_key: str
    """The given id, else a hash of the content."""
    dataset: str
    prompt: Prompt | bytes
    """Bytes: packed already, by `codecs.pack_prompt`."""
    preview: str
    """Last user turn, cleaned, at most 200 characters."""
    answers: int = 1
    """How many answers are wanted."""
    turns: tuple[int, ...] = (0,)
    """Which assistant turns are to be generated, by how many assistant blocks come before each (`core.chat`)."""
    number: int | None = None
    """1-based in the whole run, of which this is a part; None: the next one."""
    first_sample_number: int | None = None
    """The same, of its first sample."""


@dataclass(frozen=True, slots=True)
class QueuedSample:
    """A sample that may be sent now."""

    id: int
    key: str
    dataset: str
    prompt: Prompt
    """Up to where the answer begins."""
    attempts: int
    """Requests made so far."""
    answer_index: int
    turn: int
    excused: int = 0
    """Of those: not held against `max_attempts`, as people asked for a retry since or the sample was not at fault."""
    whole: Prompt | None = None
    """The conversation as recorded, where later turns of it are to be asked after this one."""


@dataclass(frozen=True, slots=True)
class SpooledFor:
    """What a reply in a spool belongs to."""

    sample: QueuedSample
    endpoint: str
    """Asked for."""
    hold_pico: int
    """Reserved for it."""
    is_known: bool
    """The ledger has the reply already."""


@dataclass(frozen=True, slots=True)
class AdmitRequest:
    """Ask to reserve money for one request."""

    sample_id: int
    endpoint: str
    """Asked for."""
    hold_pico: int
    """The most it can cost."""
    streamed: bool


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer to an `AdmitRequest`."""

    sample_id: int
    attempt_id: int | None
    """Set when admitted."""
    verdict: Literal["admit", "wait", "cap", "stop_at", "not_running", "not_queued"]
    """`not_queued`: the sample is no longer waiting, for example because it was already admitted."""


@dataclass(frozen=True, slots=True)
class TokensResult:
    """The rebuilt ids of an answer."""

    output_ids: Sequence[int] | None
    """None with formats used at text level."""
    raw: str
    """The rebuilt raw text."""
    evidence: str
    usability: str
    prompt_ids: Sequence[int] | None = None
    spans: tuple[Span, ...] = ()
    reason: str = ""
    """Why not a better rung."""
    counted: int | None = None
    """Our count of output tokens; the length of output_ids when not given."""
    offset: int | None = None
    drift: int | None = None
    tail_trimmed: bool = False
    excess: int | None = None
    """billed - counted with nothing undone; None where a count says nothing about these ids."""
    plain_excess: int | None = None
    """The same for the plain reading of the format: what the endpoint is judged by."""
    ended: bool = True
    """The model ended the answer itself, so that an offset of its end token applies."""


@dataclass(frozen=True, slots=True)
class TokensLabel:
    """What is said of stored ids; the fields are those of `TokensResult`."""

    evidence: str
    usability: str
    reason: str
    offset: int | None
    drift: int | None
    excess: int | None
    plain_excess: int | None
    ended: bool


@dataclass(frozen=True, slots=True)
class StoredOpinion:
    """What the target model said of an answer; the fields are those of `OpinionRow`."""

    question: str
    model: str
    posterior: float
    margin: float
    changed: bool
    inferred: bool
    tokens: int
    own: float
    expected: float
    variance: float
    structure_json: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply arrived and is kept."""

    body: bytes | Packed
    """The raw body, byte for byte."""
    encoding: Encoding
    cost_pico: int | None
    """None: the provider has not said yet, the attempt stays unsettled."""
    endpoint: str
    """The one that answered."""
    finish_reason: str | None
    latency_s: float | None = None
    billed_prompt_tokens: int | None = None
    billed_output_tokens: int | None = None
    first_event_at: float | None = None
    generation_id: str | None = None
    """When it was not known from the headers."""
    tokens: TokensResult | None = None
    """None: rebuilding comes later (`store_tokens`)."""
    next_turn: Message | str | None = None
    """The answer as a turn, where later turns follow it; a text says why they cannot, as in `core.turns`."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt brought no answer."""

    attempt_state: Literal["void", "unsettled", "settled"]
    """`void` only if nothing was sent or the server refused before the stream."""
    error_kind: str
    error_detail: str
    """One sentence, without secrets."""
    cost_pico: int | None = None
    """With `settled` only."""
    http_status: int | None = None
    retry_at: float | None = None
    """When the sample may be tried again; None: it is given up."""
    refused: bool = False
    """Given up as refused rather than failed."""
    excused: bool = False
    """Not held against the sample, whatever `max_attempts` allows."""
    generation_id: str | None = None
    """When it was not known from the headers."""
    body: bytes | Packed | None = None
    """What arrived, kept for the record."""
    encoding: Encoding = "json"

    def __post_init__(self) -> None:
        """Refuse a settled failure without its cost and a cost that nothing settles."""
        if (self.attempt_state == "settled") != (self.cost_pico is not None):
            raise ValueError(f"a failure that is {self.attempt_state} cannot cost {self.cost_pico}")


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of one attempt."""

    attempt_id: int
    outcome: Answered | Failed


@dataclass(frozen=True, slots=True)
class Overrun:
    """An attempt that cost more than its bound: the provider broke its own published price or limit."""

    attempt_id: int
    sample_key: str
    endpoint: str
    charge: Overcharge


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a restart found and put right."""

    voided: int
    """Attempts held and never sent."""
    unsettled: int
    """Attempts sent, outcome unknown; their holds stay until the cost is known."""
    requeued: int
    """Samples back in the queue."""


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An attempt whose cost is unknown."""

    id: int
    sample_key: str
    endpoint: str
    hold_pico: int
    generation_id: str | None
    has_answer: bool
    """Its reply is here; only the cost is missing."""
    sent_at: float | None
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class Feature:
    """Where one sample lies in a shard."""

    sample_id: int
    position: int
    """Index into the shard's offsets."""
    rows: int
    """Tokens, prompt included."""
    tokens_revision: int
