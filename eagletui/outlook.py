"""What a job will likely take, learned from answers of earlier probes and of the run itself."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, pvariance
from typing import Final, NamedTuple

from eagletui.config.run_config import RunConfig, load_config
from eagletui.core.errors import EagleError
from eagletui.core.finish import Finish, PaceFacts, finish_time
from eagletui.core.forecast import LEAST_ANSWERS, Forecast, Observed, Range, Share, forecast
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import SampleRow
from eagletui.runs.folder import RunFolder

MOST_ANSWERS: Final = 2_000
"""So many of a run are enough to learn from."""
ASSUMED_TOKENS_PER_S: Final = 60.0
ASSUMED_WAIT_S: Final = 1.0
"""Of one stream of a large model at an API, where nothing was measured."""
LEAST_BEGIN_S: Final = 0.05
"""No reply is taken to begin sooner."""


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


class Latency(NamedTuple):
    """How long an answer takes, in seconds."""

    mean_s: float
    spread_s: float
    """Standard deviation over answers."""
    most_s: float
    """Of one as long as `max_tokens` allows."""
    begin_s: float
    """Until it begins."""


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
    ramp_per_s: float,
    mean_hold_pico: float,
    cap_pico: int,
    stop_at_pico: int,
    streams: bool,
) -> Outlook:
    """Work out tokens, money and time of a job.

    Args:
        shares: of the job, by data set.
        prompt_tokens: counted, of all samples.
        rates: at the endpoints as they will be used.
        learned: from `learn`.
        in_flight: limit of simultaneous requests.
        start: requests in flight that the pace starts with.
        ramp_per_s: how many may be added each second.
        mean_hold_pico: reserved for a mean answer.
        cap_pico: never committed beyond.
        stop_at_pico: nothing more is asked once this much is settled.
        streams: a reply begins before it is whole.
    """
    made = forecast(shares, learned.answers)
    samples = sum(share.samples for share in shares.values())
    fixed_pico = prompt_tokens * learned.prompt_factor * rates.prompt_pico + samples * rates.request_pico
    dollars = Range(*((fixed_pico + tokens * rates.completion_pico) * learned.waste_factor for tokens in made.tokens))
    mean_tokens = made.tokens.likely / samples if samples else 0.0
    most_tokens = max((share.max_tokens for share in shares.values()), default=0)
    variance = sum(
        share.samples * (made.by_dataset[name].spread ** 2 + (made.by_dataset[name].mean - mean_tokens) ** 2)
        for name, share in shares.items()
    )
    spread = math.sqrt(variance / samples) if samples else 0.0
    latency = _latency(learned.latencies, mean_tokens, spread, most_tokens)
    facts = PaceFacts(
        samples=samples,
        in_flight=in_flight,
        start=start,
        ramp_per_s=ramp_per_s,
        begin_s=latency.begin_s if streams else latency.mean_s,
        latency_s=latency.mean_s,
        spread_s=latency.spread_s,
        most_s=latency.most_s,
        cost=dollars.likely / samples if samples else 0.0,
        hold=mean_hold_pico,
        cap=cap_pico,
        stop_at=stop_at_pico,
    )
    unbound = replace(facts, hold=0.0, cap=0.0)
    return Outlook(made, dollars, latency.mean_s, finish_time(facts), finish_time(unbound), tuple(learned.runs))


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


def _latency(measured: Sequence[tuple[float, int]], tokens: float, spread: float, most_tokens: int) -> Latency:
    """Return how long answers take, by how long measured ones took, which may be shorter, as those of probes are.

    Args:
        measured: seconds and output tokens.
        tokens: of a mean answer.
        spread: standard deviation of that over answers.
        most_tokens: that an answer may have.
    """
    if len(measured) < LEAST_ANSWERS:
        mean_s = ASSUMED_WAIT_S + tokens / ASSUMED_TOKENS_PER_S
        most_s = max(mean_s, ASSUMED_WAIT_S + most_tokens / ASSUMED_TOKENS_PER_S)
        return Latency(mean_s, spread / ASSUMED_TOKENS_PER_S, most_s, ASSUMED_WAIT_S)
    seconds, lengths = [s for s, _ in measured], [n for _, n in measured]
    mean_s, mean_tokens, variance = fmean(seconds), fmean(lengths), pvariance(lengths)
    slope = fmean((s - mean_s) * (n - mean_tokens) for s, n in measured) / variance if variance else 0.0
    slope = max(0.0, slope)
    expected_s = max(1e-3, mean_s + slope * (tokens - mean_tokens))
    begin_s = min(expected_s, max(LEAST_BEGIN_S, mean_s - slope * mean_tokens))
    unexplained = max(0.0, pvariance(seconds) - slope**2 * variance)
    most_s = max(*seconds, expected_s, begin_s + slope * most_tokens)
    return Latency(expected_s, math.sqrt((slope * spread) ** 2 + unexplained), most_s, begin_s)
