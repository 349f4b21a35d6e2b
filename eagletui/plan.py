"""What a run will need, before the first dollar: samples, tokens, money and disk, and whether it can start at all."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from eagletui.config.run_config import RunConfig
from eagletui.core.chat import until_turn
from eagletui.core.features import Stored, folder_bytes
from eagletui.core.forecast import Share
from eagletui.core.money import PICO, Price, format_usd, hold_bound, prompt_bound, usd_to_pico
from eagletui.core.quantization import differing
from eagletui.engine.fitness import fits, needs_for, why_none
from eagletui.engine.market import Market
from eagletui.engine.pace import RAMP_PER_S, START_LIMIT
from eagletui.engine.spread import manner
from eagletui.ingest.census import Census, canaries_of, chosen_prompts, take_census
from eagletui.models.identity import stored_hidden_size, stored_quantization, weight_files
from eagletui.outlook import Outlook, Rates, learn, look_ahead
from eagletui.providers.base import Endpoint, Sampling
from eagletui.run_ids import template_kwargs
from eagletui.tokens.formats import load_format
from eagletui.tokens.load import Tokenizer, load_tokenizer
from eagletui.tokens.prompt import render_prompt

LEDGER_SAMPLE_BYTES: Final = 2_048
LEDGER_TOKEN_BYTES: Final = 24
"""Stored per sample and per output token, reply and ids included: measured on runs with logprobs, rounded up."""


@dataclass(slots=True)
class DatasetPlan:
    """One data set's share."""

    samples: int = 0
    prompt_tokens: int = 0
    """Counted with the run's own tokenizer and chat template."""
    output_tokens_worst: int = 0
    """If every answer were cut by `max_tokens`."""
    max_tokens: int = 0
    """Of one answer, at most."""


class Overshoot(NamedTuple):
    """What may be settled beyond stop-at: requests that are under way when it is reached still come to their end."""

    requests: int
    """How many may be under way then."""
    likely_pico: int
    """What as many cost on average."""
    most_pico: int
    """Their bounds."""


@dataclass(slots=True)
class Plan:
    """What a run will need. Money in picodollars."""

    run: str
    endpoints: tuple[Endpoint, ...]
    census: Census
    by_dataset: dict[str, DatasetPlan] = field(default_factory=dict)
    nowhere: int = 0
    """Samples that no endpoint can be asked for; they are in the census and in no other figure."""
    why_nowhere: str = ""
    """Of the first of them."""
    held_pico: float = 0.0
    """Sum of the bounds at the endpoints as they will be used: what a mean request reserves, times the samples."""
    outlook: Outlook | None = None
    """The likely course; None without endpoints."""
    worst_case_pico: int = 0
    """Every answer at its bound, at the dearest endpoint."""
    longest_prompt: int = 0
    """Tokens of the longest prompt."""
    longest_whole: int = 0
    """Tokens of the longest prompt and its answer at `max_tokens`."""
    largest_hold_pico: int = 0
    """The bound of the dearest single request."""
    stop_at_pico: int = 0
    cap_pico: int = 0
    max_in_flight: int = 0
    ledger_bytes: int = 0
    """About."""
    features_bytes: int | None = None
    """At most; 0 without extraction, None where the model's width is unknown."""
    features_least_bytes: int = 0
    """Of the prompts alone, whatever the answers' lengths."""
    free_bytes: int = 0
    """On the disk of the runs."""
    refusals: list[str] = field(default_factory=list)
    """Why the run would not start or would stop at once, one sentence each."""
    notes: list[str] = field(default_factory=list)
    """What to know, one sentence each."""

    @property
    def samples(self) -> int:
        """Answers to buy: those that some endpoint can be asked for."""
        return self.census.samples - self.nowhere

    @property
    def prompt_tokens(self) -> int:
        """Over all samples."""
        return sum(share.prompt_tokens for share in self.by_dataset.values())

    @property
    def output_tokens_worst(self) -> int:
        """Over all samples."""
        return sum(share.output_tokens_worst for share in self.by_dataset.values())

    @property
    def full_pace_cap_pico(self) -> int:
        """The cap that lets `max_in_flight` requests run until stop-at is reached."""
        return self.stop_at_pico + min(self.max_in_flight, self.samples) * self.largest_hold_pico

    @property
    def in_flight_near_stop_at(self) -> int | None:
        """How many requests the cap lets run when stop-at is nearly reached; None: no limit, the price is 0."""
        if self.largest_hold_pico == 0:
            return None
        return min(self.max_in_flight, max(0, self.cap_pico - self.stop_at_pico) // self.largest_hold_pico)

    @property
    def overshoot(self) -> Overshoot | None:
        """What may be settled beyond stop-at; None where nothing can, or the likely course is not known."""
        requests = min(self.in_flight_near_stop_at or 0, self.samples)
        if not requests or self.outlook is None:
            return None
        likely_pico = round(self.outlook.dollars_pico.likely / self.samples * requests)
        most_pico = requests * self.largest_hold_pico
        return Overshoot(requests, min(likely_pico, most_pico), most_pico)


def make_plan(
    config: RunConfig, endpoints: Sequence[Endpoint], runs_folder: Path, step: Callable[[int], None] = lambda _: None
) -> Plan:
    """Work a config out.

    Args:
        config: the run's config.
        endpoints: that may answer, with their prices.
        runs_folder: where runs lie, for the free space.
        step: told after each prompt how many samples were counted.

    Raises:
        EagleError: prompts, tokenizer or format cannot be used.
    """
    tokenizer = load_tokenizer(config.model.tokenizer)
    plan = Plan(
        run=config.run.name,
        endpoints=tuple(endpoints),
        census=take_census(config.prompts, canaries=canaries_of(config)),
        stop_at_pico=usd_to_pico(config.spend.stop_at_usd),
        cap_pico=usd_to_pico(config.spend.cap_usd),
        max_in_flight=config.pace.max_in_flight,
        free_bytes=_free_bytes(runs_folder),
    )
    config.sampling.require_known(plan.census.datasets | plan.census.by_dataset.keys())
    _count(plan, config, tokenizer, _weights(config, endpoints), step)
    renew_outlook(plan, config, runs_folder)
    plan.ledger_bytes = plan.samples * LEDGER_SAMPLE_BYTES + plan.output_tokens_worst * LEDGER_TOKEN_BYTES
    # `auto` is decided when the model loads: the wider type bounds from above, the shorter one from below.
    plan.features_bytes = _features_bytes(config, plan.prompt_tokens + plan.output_tokens_worst, auto="float32")
    plan.features_least_bytes = _features_bytes(config, plan.prompt_tokens, auto="bfloat16") or 0
    plan.notes += [*_endpoint_notes(plan), *plan.census.sentences(), *tokenizer.notes, *_extraction_notes(plan, config)]
    plan.refusals += _refusals(plan, config)
    return plan


def renew_outlook(plan: Plan, config: RunConfig, runs_folder: Path) -> None:
    """Work the likely course out again, from what the runs there have taught by now."""
    if plan.endpoints:
        plan.outlook = _outlook(plan, config, _weights(config, plan.endpoints), runs_folder)


def _weights(config: RunConfig, endpoints: Sequence[Endpoint]) -> dict[str, float]:
    """Return the share of the samples that each endpoint will get."""
    market = Market(config.pace.stream, config.pace.spread)
    market.take(list(endpoints))
    weights = market.weights()
    total = sum(weights.values())
    return {tag: weight / total for tag, weight in weights.items()}


def _outlook(plan: Plan, config: RunConfig, weights: Mapping[str, float], runs_folder: Path) -> Outlook:
    def mean_pico(rate: Callable[[Price], Decimal]) -> float:
        return float(sum(Decimal(weights[e.tag]) * rate(e.price) for e in plan.endpoints)) * PICO

    return look_ahead(
        {name: Share(share.samples, share.max_tokens) for name, share in plan.by_dataset.items()},
        plan.prompt_tokens,
        Rates(
            mean_pico(lambda price: price.prompt_usd_per_token),
            mean_pico(lambda price: price.completion_usd_per_token),
            mean_pico(lambda price: price.request_usd),
        ),
        learn(config, runs_folder),
        in_flight=plan.max_in_flight,
        start=int(START_LIMIT) * len(plan.endpoints),
        ramp_per_s=RAMP_PER_S,
        mean_hold_pico=plan.held_pico / max(1, plan.samples),
        cap_pico=plan.cap_pico,
        stop_at_pico=plan.stop_at_pico,
        streams=any(manner(endpoint, config.pace.stream).stream for endpoint in plan.endpoints),
    )


def _count(
    plan: Plan, config: RunConfig, tokenizer: Tokenizer, weights: Mapping[str, float], step: Callable[[int], None]
) -> None:
    fmt = load_format(config.model.format)
    counted = 0
    for chosen in chosen_prompts(config.prompts, canaries_of(config)):
        sampling = config.sampling.drawn_for(chosen.record.dataset, chosen.record.prompt.sampling_json)
        kwargs, max_tokens = template_kwargs(config, fmt, sampling.reasoning), sampling.max_tokens
        drawn = Sampling(
            sampling.temperature, sampling.top_p, sampling.top_k, 0 if sampling.seed else None, sampling.reasoning
        )
        is_lost = False
        for earlier, turn in enumerate(chosen.turns):
            prompt = until_turn(chosen.record.prompt, turn)
            tokens = len(render_prompt(prompt, tokenizer, fmt, kwargs).ids)
            # Earlier turns will be the model's own, each of up to max_tokens.
            most = prompt_bound(tokens + earlier * max_tokens)
            holds = {e.tag: hold_bound(most, max_tokens, e.price) for e in plan.endpoints}
            hold = max(holds.values(), default=0)
            plan.longest_prompt = max(plan.longest_prompt, tokens)
            plan.longest_whole = max(plan.longest_whole, tokens + max_tokens)
            needs = needs_for(prompt, drawn, tokens, max_tokens)
            if is_lost or (plan.endpoints and not any(fits(endpoint, needs) for endpoint in plan.endpoints)):
                # Turns after one that nobody can be asked for are not asked either.
                is_lost = True
                plan.nowhere += chosen.answers
                plan.why_nowhere = plan.why_nowhere or why_none({e.tag: e for e in plan.endpoints}, needs)
                continue
            share = plan.by_dataset.setdefault(chosen.record.dataset, DatasetPlan())
            share.samples += chosen.answers
            share.max_tokens = max(share.max_tokens, max_tokens)
            plan.held_pico += chosen.answers * sum(weights[tag] * pico for tag, pico in holds.items())
            share.prompt_tokens += chosen.answers * tokens
            share.output_tokens_worst += chosen.answers * max_tokens
            plan.worst_case_pico += chosen.answers * hold
            plan.largest_hold_pico = max(plan.largest_hold_pico, hold)
        counted += chosen.samples
        step(counted)


class Bounds(NamedTuple):
    """What the requests of a run can cost."""

    worst_case_pico: int | None
    """Every answer at its bound, at the dearest endpoint; None: too many prompts to count them first."""
    largest_hold_pico: int | None
    """The bound of the dearest single request; where prompts are not counted, of the longest answer alone."""


def bounds_of(config: RunConfig, endpoints: Sequence[Endpoint], at_most: int) -> Bounds:
    """Work out what requests can cost, for a look at the key before a run.

    Args:
        config: the run's config.
        endpoints: that may answer, with their prices.
        at_most: samples to be counted; of more, the longest answer at the cheapest endpoint bounds a hold from below.

    Raises:
        EagleError: prompts, tokenizer or format cannot be used.
    """
    prompts = chosen_prompts(config.prompts, canaries_of(config))
    if sum(chosen.samples for chosen in islice(prompts, at_most + 1)) > at_most:
        longest = config.sampling.longest
        return Bounds(None, min((hold_bound(0, longest, e.price) for e in endpoints), default=0))
    plan = Plan(config.run.name, tuple(endpoints), Census())
    _count(plan, config, load_tokenizer(config.model.tokenizer), _weights(config, endpoints), lambda _: None)
    return Bounds(plan.worst_case_pico, plan.largest_hold_pico)


def _features_bytes(config: RunConfig, tokens: int, *, auto: Stored) -> int | None:
    if config.extract.when == "off":
        return 0
    if config.model.weights is None:
        return None
    weight_files(config.model.weights)
    hidden_size = stored_hidden_size(config.model.weights)
    if hidden_size is None:
        return None
    return folder_bytes(tokens, hidden_size, auto if config.extract.dtype == "auto" else config.extract.dtype)


def _extraction_notes(plan: Plan, config: RunConfig) -> list[str]:
    """Say what extraction may run into: a full disk, and answers sampled from other weights than its own."""
    weights = config.model.weights
    if config.extract.when == "off" or weights is None:
        return []
    notes = []
    most = plan.ledger_bytes + (plan.features_bytes or 0)
    if most > plan.free_bytes:
        notes.append(
            f"Features need up to {plan.features_bytes or 0:,} bytes if every answer is cut at max_tokens, and the "
            f'disk has {plan.free_bytes:,}: extraction then waits for room. [extract] dtype = "fp8" takes half, '
            "and extract --token-budget a subset."
        )
    ours = stored_quantization(weights)
    others = differing({endpoint.tag: endpoint.quantization for endpoint in plan.endpoints}, ours)
    if others:
        named = ", ".join(f"{tag} ({name})" for tag, name in sorted(others.items()))
        notes.append(
            f"Features are computed with weights stored as {ours or 'plain floating point'}, but {named} would answer "
            "with others: [provider] quantizations or only can keep to endpoints with the same."
        )
    return notes


def _endpoint_notes(plan: Plan) -> list[str]:
    """Say which endpoints some of the requests do not fit, or are not well now."""
    notes = []
    for endpoint in plan.endpoints:
        context, prompt = endpoint.context_tokens, endpoint.max_prompt_tokens
        if context is not None and context < plan.longest_whole:
            notes.append(
                f"{endpoint.tag} has a context of {context:,} tokens, and the longest prompt with max_tokens needs "
                f"{plan.longest_whole:,}: such prompts go to others, or fail where none takes them. Lower max_tokens."
            )
        elif prompt is not None and prompt < plan.longest_prompt:
            notes.append(
                f"{endpoint.tag} takes prompts of at most {prompt:,} tokens, and the longest has "
                f"{plan.longest_prompt:,}: such prompts go to others, or fail where none takes them. Shorten them."
            )
        if endpoint.status is not None and endpoint.status < 0:
            notes.append(f"{endpoint.tag} is degraded now: the router gives it the status {endpoint.status}.")
    return notes


def _refusals(plan: Plan, config: RunConfig) -> list[str]:
    found = []
    if plan.nowhere:
        found.append(
            f"{plan.nowhere:,} of {plan.census.samples:,} samples can be asked nowhere and are in no other figure. "
            f"{plan.why_nowhere} Lower [sampling] max_tokens, allow more endpoints in [provider], or leave such "
            "prompts out: in a run they fail, unbought, and the others are asked."
        )
    if plan.largest_hold_pico > plan.cap_pico:
        found.append(
            f"The cap of {format_usd(plan.cap_pico)} cannot hold one request of at most "
            f"{format_usd(plan.largest_hold_pico, 6)}: raise [spend] cap_usd or lower [sampling] max_tokens."
        )
    if plan.stop_at_pico == 0 and plan.largest_hold_pico > 0:
        found.append("[spend] stop_at_usd is 0: nothing would be asked.")
    if config.extract.when != "off" and config.model.weights is None:
        found.append(f'[extract] when = "{config.extract.when}" needs [model] weights: a folder or a .gguf file.')
    if config.extract.when != "off" and config.extract.engine in ("vllm", "sglang") and config.extract.server is None:
        found.append(f'[extract] engine = "{config.extract.engine}" needs the address of its server: set server.')
    needed = plan.ledger_bytes + plan.features_least_bytes
    if needed > plan.free_bytes:
        found.append(
            f"The disk of the runs has {plan.free_bytes:,} bytes free and the run needs {needed:,}: "
            "set EAGLETUI_RUNS to a larger disk, or extract later."
        )
    return found


def _free_bytes(folder: Path) -> int:
    folder = folder.resolve()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
