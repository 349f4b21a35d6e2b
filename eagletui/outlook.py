"""What a job will likely take, learned from answers of earlier probes and of the run itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Final

from eagletui.config import RunConfig, load_config
from eagletui.core.errors import EagleError
from eagletui.core.forecast import (
    LEAST_ANSWERS,
    Finish,
    Forecast,
    Observed,
    PaceFacts,
    Range,
    Share,
    finish_time,
    forecast,
)
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import SampleRow
from eagletui.runs import RunFolder

MOST_ANSWERS: Final = 2_000
"""So many of a run are enough to learn from."""
ASSUMED_TOKENS_PER_S: Final = 60.0
ASSUMED_WAIT_S: Final = 1.0
"""Of one stream of a large model at an API, where nothing was measured."""
SLOWEST: Final = 3.0
"""A slow answer takes so many times the mean, where nothing was measured."""


@dataclass(slots=True)
class Learned:
    """What earlier answers say."""

    runs: list[str] = field(default_factory=list)
    """Names of the runs."""
    answers: list[Observed] = field(default_factory=list)
    latencies: list[tuple[float, int]] = field(default_factory=list)
    """Seconds and output tokens of each answer."""
    prompt_counted: int = 0
    prompt_billed: int = 0
    settled_pico: int = 0
    answers_pico: int = 0
    """Of `settled_pico`, what the answers cost."""

    @property
    def prompt_factor(self) -> float:
        """Billed prompt tokens for each that was counted."""
        return self.prompt_billed / self.prompt_counted if self.prompt_counted else 1.0

    @property
    def waste_factor(self) -> float:
        """Money spent for each unit that answers cost: failures are paid for too."""
        return self.settled_pico / self.answers_pico if self.answers_pico else 1.0


@dataclass(frozen=True, slots=True)
class Rates:
    """What a token costs at a mean of the endpoints, in picodollars."""

    prompt_pico: float
    completion_pico: float
    request_pico: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """The likely course of a job."""

    forecast: Forecast
    dollars_pico: Range
    latency_s: float
    """Of a mean answer."""
    finish: Finish
    """Under the given cap."""
    full_pace: Finish
    """If the cap never bound."""
    learned_from: Sequence[str]
    """Runs; empty: assumed."""


def learn(config: RunConfig, runs: Path) -> Learned:
    """Gather the answers of the run and of its probes, where they were asked in the same way.

    Args:
        config: of the job.
        runs: the folder of the runs.
    """
    found = Learned()
    name = config.run.name
    for path in sorted([runs / name, *runs.glob(f"{name}-probe"), *runs.glob(f"{name}-probe-*")]):
        folder = RunFolder(path)
        if not folder.ledger_path.is_file():
            continue
        try:
            if not _asks_alike(load_config(folder.config_path), config):
                continue
            with LedgerReader(folder.ledger_path) as reader:
                rows = reader.page(SampleFilter(), None, MOST_ANSWERS)
                settled_pico = reader.books().settled_pico
        except EagleError:
            continue  # a run that cannot be read teaches nothing; `ls` says what is wrong with it
        if _take(rows, found):
            found.runs.append(folder.name)
            found.settled_pico += settled_pico
    return found


def look_ahead(
    shares: Mapping[str, Share],
    prompt_tokens: int,
    rates: Rates,
    learned: Learned,
    *,
    in_flight: int,
    start: int,
    mean_hold_pico: float,
    cap_pico: int,
    stop_at_pico: int,
) -> Outlook:
    """Work out tokens, money and time of a job.

    Args:
        shares: of the job, by data set.
        prompt_tokens: counted, of all samples.
        rates: at the endpoints as they will be used.
        learned: from `learn`.
        in_flight: limit of simultaneous requests.
        start: requests in flight that the pace starts with.
        mean_hold_pico: reserved for a mean answer.
        cap_pico: never committed beyond.
        stop_at_pico: nothing more is asked once this much is settled.
    """
    made = forecast(shares, learned.answers)
    samples = sum(share.samples for share in shares.values())
    fixed_pico = prompt_tokens * learned.prompt_factor * rates.prompt_pico + samples * rates.request_pico
    dollars = Range(*((fixed_pico + tokens * rates.completion_pico) * learned.waste_factor for tokens in made.tokens))
    mean_tokens = made.tokens.likely / samples if samples else 0.0
    latency_s, longest_s = _latency(learned.latencies, mean_tokens)
    facts = PaceFacts(
        samples=samples,
        in_flight=in_flight,
        start=start,
        latency_s=latency_s,
        longest_s=longest_s,
        cost=dollars.likely / samples if samples else 0.0,
        hold=mean_hold_pico,
        cap=cap_pico,
        stop_at=stop_at_pico,
    )
    unbound = PaceFacts(
        **{name: getattr(facts, name) for name in facts.__slots__ if name not in ("hold", "cap")}, hold=0.0, cap=0.0
    )
    return Outlook(made, dollars, latency_s, finish_time(facts), finish_time(unbound), tuple(learned.runs))


def _asks_alike(theirs: RunConfig, ours: RunConfig) -> bool:
    """Tell whether another run's answers are as long as ours would be."""
    same = theirs.model.id == ours.model.id and theirs.provider.kind == ours.provider.kind
    asked = [(c.sampling.temperature, c.sampling.top_p, c.sampling.top_k, c.sampling.reasoning) for c in (theirs, ours)]
    return same and asked[0] == asked[1]


def _take(rows: Sequence[SampleRow], found: Learned) -> bool:
    before = len(found.answers)
    for row in rows:
        tokens = row.output_tokens if row.billed_output_tokens is None else row.billed_output_tokens
        if tokens is None or row.answered_at is None:
            continue
        found.answers.append(Observed(row.dataset, tokens, row.finish_reason == "length"))
        if row.latency_s is not None:
            found.latencies.append((row.latency_s, tokens))
        if row.prompt_tokens is not None and row.billed_prompt_tokens is not None:
            found.prompt_counted += row.prompt_tokens
            found.prompt_billed += row.billed_prompt_tokens
        found.answers_pico += row.cost_pico or 0
    return len(found.answers) > before


def _latency(measured: Sequence[tuple[float, int]], tokens: float) -> tuple[float, float]:
    """Return seconds of a mean and of a slow answer with so many tokens on average."""
    if len(measured) < LEAST_ANSWERS:
        mean_s = ASSUMED_WAIT_S + tokens / ASSUMED_TOKENS_PER_S
        return mean_s, SLOWEST * mean_s
    seconds, lengths = [s for s, _ in measured], [n for _, n in measured]
    mean_s, mean_tokens = fmean(seconds), fmean(lengths)
    variance = fmean((n - mean_tokens) ** 2 for n in lengths)
    slope = fmean((s - mean_s) * (n - mean_tokens) for s, n in measured) / variance if variance else 0.0
    expected_s = max(1e-3, mean_s + max(0.0, slope) * (tokens - mean_tokens))
    return expected_s, max(seconds) * max(1.0, expected_s / mean_s)
