"""`eagletui plan`: what a run will need, before the first dollar."""

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagletui.cli.create import check_config, read_config
from eagletui.cli.key_check import look_at_key_and_reasoning
from eagletui.cli.output import bytes_text, counted, duration_text, print_json, print_pairs, print_table, say
from eagletui.cli.run import with_options
from eagletui.cli.wrong_address import unreached, wrong_config
from eagletui.config.run_config import RunConfig
from eagletui.core.errors import ConfigError, EagleError
from eagletui.core.key_preflight import Preflight, RunNeeds, fee_note
from eagletui.core.money import PICO, Price, format_usd, limit_text, pico_to_usd_string
from eagletui.core.text import clean_block
from eagletui.providers.base import ProviderFailure
from eagletui.runs.folder import RunFolder, runs_root

if TYPE_CHECKING:
    from eagletui.core.forecast import Range
    from eagletui.plan import Plan
    from eagletui.providers.base import Endpoint

FOUND = 1
"""A probe's answers show a fault."""
REFUSED = 2
ASSUMED = "assumed, not learned: --probe 50 makes it a forecast"
MOST_REQUESTS = 1_000
"""Of a probe; more is a run."""


def plan(
    config: Annotated[str, typer.Argument(help="A TOML config.", metavar="CONFIG")],
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most N samples.")] = None,
    probe: Annotated[
        int | None,
        typer.Option(
            "--probe", metavar="N", min=1, max=MOST_REQUESTS, help="Buy at most N small answers and judge them."
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Tell what a run will need: samples, tokens, money and disk; exit 2 if it could not start, with the reason.

    Tokenizer and format are audited, prompts are counted, and prices are asked for. Nothing is bought, unless with
    --probe: then at most N small requests go out under the config's cap, as a run of its own called NAME-probe, and
    each endpoint's evidence, price of usable tokens, drift and profile are told; exit 1 when they show a fault.
    """
    try:
        chosen = with_options(read_config(config), limit=limit)
        made = _make(chosen)
    except EagleError as error:
        if not json_:
            raise
        text = clean_block(str(error))
        print_json({"ok": False, "error": text, "refusals": [text]})
        say(f"eagletui: {text}")
        return error.exit_code
    if probe is not None and not made.refusals:
        return _probe(chosen, probe, made, json_=json_)
    if json_:
        print_json(plan_object(made))
    else:
        _print(made)
    return REFUSED if made.refusals else 0


def _probe(config: RunConfig, requests: int, made: "Plan", *, json_: bool) -> int:
    from eagletui.cli.probe import print_probe, probe_object
    from eagletui.cli.probe import probe as run_probe
    from eagletui.plan import renew_outlook

    if not json_:
        _print(made)
        print()
    probed = run_probe(config, requests)
    renew_outlook(made, config, runs_root())
    if json_:
        print_json({**plan_object(made), "probe": probe_object(probed)})
    else:
        print_probe(probed, {endpoint.tag: endpoint.quantization for endpoint in made.endpoints})
        print()
        print_pairs(_likely(made))
    return probed.code or (FOUND if probed.rebuilt.findings else 0)


def plan_object(plan: "Plan") -> dict[str, Any]:
    """Return a plan as JSON values; money as decimal strings."""
    return {
        "ok": not plan.refusals,
        "run": plan.run,
        "refusals": plan.refusals,
        "notes": plan.notes,
        "samples": plan.samples,
        "asked_nowhere": plan.nowhere,
        "by_dataset": {
            name: {
                "samples": share.samples,
                "prompt_tokens": share.prompt_tokens,
                "output_tokens_worst": share.output_tokens_worst,
                "output_tokens_likely": _likely_tokens(plan, name),
            }
            for name, share in plan.by_dataset.items()
        },
        "prompt_tokens": plan.prompt_tokens,
        "output_tokens_worst": plan.output_tokens_worst,
        "endpoints": [
            {
                "tag": endpoint.tag,
                "prompt_usd_per_million": _per_million(endpoint.price.prompt_usd_per_token),
                "completion_usd_per_million": _per_million(endpoint.price.completion_usd_per_token),
                "quantization": endpoint.quantization,
                "logprobs": endpoint.supports_logprobs,
                "stream": endpoint.supports_stream,
                "ids": endpoint.supports_ids,
            }
            for endpoint in plan.endpoints
        ],
        "spend_usd": {
            "worst_case": pico_to_usd_string(plan.worst_case_pico),
            "largest_hold": pico_to_usd_string(plan.largest_hold_pico),
            "stop_at": pico_to_usd_string(plan.stop_at_pico),
            "cap": pico_to_usd_string(plan.cap_pico),
            "full_pace_cap": pico_to_usd_string(plan.full_pace_cap_pico),
        },
        "beyond_stop_at": _overshoot_object(plan),
        "output_tokens": _range(None if plan.outlook is None else plan.outlook.forecast.tokens),
        "likely_usd": _dollars(plan),
        "finish": _finish_object(plan),
        "learned_from": [] if plan.outlook is None else list(plan.outlook.learned_from),
        "in_flight": {"max": plan.max_in_flight, "near_stop_at": plan.in_flight_near_stop_at},
        "disk_bytes": {"ledger": plan.ledger_bytes, "features": plan.features_bytes, "free": plan.free_bytes},
    }


def _range(found: "Range | None") -> dict[str, int] | None:
    return None if found is None else {name: round(value) for name, value in found._asdict().items()}


def _dollars(plan: "Plan") -> dict[str, str] | None:
    if plan.outlook is None:
        return None
    return {name: pico_to_usd_string(round(pico)) for name, pico in plan.outlook.dollars_pico._asdict().items()}


def _overshoot_object(plan: "Plan") -> dict[str, Any] | None:
    over = plan.overshoot
    if over is None:
        return None
    return {
        "requests": over.requests,
        "likely_usd": pico_to_usd_string(over.likely_pico),
        "most_usd": pico_to_usd_string(over.most_pico),
    }


def _likely_tokens(plan: "Plan", dataset: str) -> int | None:
    if plan.outlook is None:
        return None
    return round(plan.by_dataset[dataset].samples * plan.outlook.forecast.by_dataset[dataset].mean)


def _finish_object(plan: "Plan") -> dict[str, Any] | None:
    if plan.outlook is None:
        return None
    return {
        "seconds": round(plan.outlook.finish.seconds, 1),
        "answered": plan.outlook.finish.answered,
        "limited_by": plan.outlook.finish.limited_by,
        "full_pace_seconds": round(plan.outlook.full_pace.seconds, 1),
        "latency_s": round(plan.outlook.latency_s, 3),
    }


def _make(config: RunConfig) -> "Plan":
    from eagletui.plan import make_plan

    check_config(config, key=False)
    missing_key: list[str] = []
    try:
        config.secret()
    except ConfigError as error:  # prompts and tokens can be counted all the same; only the prices are missing
        missing_key.append(str(error))
    made = make_plan(config, [] if missing_key else _endpoints(config), runs_root())
    made.refusals += missing_key
    if config.provider.kind == "openrouter" and not missing_key:
        found = asyncio.run(_look_at_key(config, made))
        made.refusals += found.refusals
        made.notes += found.notes
    if config.provider.kind == "openrouter":
        made.notes.append(fee_note())
    return made


async def _look_at_key(config: RunConfig, made: "Plan") -> Preflight:
    from eagletui.engine.connect import connect

    needs = RunNeeds(
        config.run.name,
        made.cap_pico,
        worst_case_pico=made.worst_case_pico,
        largest_hold_pico=made.largest_hold_pico,
        unlimited_key=config.spend.unlimited_key,
        base_url=config.provider.base_url,
    )
    provider = connect(config, RunFolder(runs_root() / config.run.name))
    try:
        return await look_at_key_and_reasoning(provider, config, needs)
    finally:
        await provider.aclose()


def _endpoints(config: RunConfig) -> "list[Endpoint]":
    """Return who may answer and at what price: the embedded provider's list, or what the provider says now."""
    if config.provider.kind == "embedded" and config.provider.base_url is None:
        return _embedded_endpoints(config)
    from eagletui.engine.connect import connect

    async def ask() -> "list[Endpoint]":
        provider = connect(config, RunFolder(runs_root() / config.run.name))
        try:
            return await provider.endpoints()
        finally:
            await provider.aclose()

    try:
        return asyncio.run(ask())
    except ProviderFailure as failure:
        fault = wrong_config(failure, config) or unreached(failure, config)
        raise (failure if fault is None else fault) from failure


def _embedded_endpoints(config: RunConfig) -> "list[Endpoint]":
    from eagletui.embedded.market import ENDPOINTS, MAX_COMPLETION_TOKENS, matches
    from eagletui.providers.base import Endpoint

    only, ignore = config.provider.only, config.provider.ignore
    longest = config.sampling.longest
    if longest > MAX_COMPLETION_TOKENS:
        raise ConfigError(
            f"[sampling] max_tokens: found {longest}, expected at most {MAX_COMPLETION_TOKENS}, which is as much as an "
            "endpoint of the embedded provider writes."
        )
    return [
        Endpoint(
            tag=offer.tag,
            provider_name=offer.provider_name,
            price=Price(Decimal(offer.prompt_pico) / PICO, Decimal(offer.completion_pico) / PICO, Decimal(0)),
            quantization=offer.quantization,
            max_completion_tokens=MAX_COMPLETION_TOKENS,
            supports_logprobs=offer.logprobs,
            supports_stream=offer.streams,
        )
        for offer in ENDPOINTS
        if (not only or any(matches(slug, offer.tag) for slug in only))
        and not any(matches(slug, offer.tag) for slug in ignore)
    ]


def _print(plan: "Plan") -> None:
    print_table(
        ("data set", "samples", "prompt tokens", "output tokens at most"),
        [
            (name, f"{share.samples:,}", f"{share.prompt_tokens:,}", f"{share.output_tokens_worst:,}")
            for name, share in plan.by_dataset.items()
        ],
        right=(1, 2, 3),
    )
    print()
    if plan.endpoints:
        _print_endpoints(plan)
        print()
    features = "unknown" if plan.features_bytes is None else bytes_text(plan.features_bytes)
    print_pairs(
        [
            ("samples", _samples(plan)),
            *_likely(plan),
            *(_money(plan) if plan.endpoints else [("money", "unknown: no endpoint told its price")]),
            (
                "disk",
                f"ledger about {bytes_text(plan.ledger_bytes)}, features at most {features}; "
                f"{bytes_text(plan.free_bytes)} free",
            ),
        ]
    )
    for note in plan.notes:
        print(f"note: {note}")
    for refusal in plan.refusals:
        print(f"refused: {refusal}")
    if not plan.refusals:
        print("\nnothing is in the way")


def _samples(plan: "Plan") -> str:
    prompts = counted(plan.census.prompts, "prompt")
    if not plan.nowhere:
        return f"{plan.samples:,} from {prompts}"
    return f"{plan.samples:,} of {plan.census.samples:,} from {prompts}; the others can be asked nowhere"


def _print_endpoints(plan: "Plan") -> None:
    print_table(
        ("endpoint", "USD per million in", "out", "weights", "answer at most", "status", "proof it can give"),
        [
            (
                endpoint.tag,
                _per_million(endpoint.price.prompt_usd_per_token),
                _per_million(endpoint.price.completion_usd_per_token),
                endpoint.quantization or "unknown",
                "-" if endpoint.max_completion_tokens is None else f"{endpoint.max_completion_tokens:,}",
                _status(endpoint),
                _proof(endpoint),
            )
            for endpoint in plan.endpoints
        ],
        right=(1, 2, 4),
    )


def _status(endpoint: "Endpoint") -> str:
    if endpoint.status is None and endpoint.uptime_percent is None:
        return "-"
    well = "well" if not endpoint.status else f"degraded ({endpoint.status})"
    return well if endpoint.uptime_percent is None else f"{well}, up {endpoint.uptime_percent:.1f} %"


def _likely(plan: "Plan") -> list[tuple[str, str]]:
    outlook = plan.outlook
    if outlook is None:
        return []
    tokens, dollars = outlook.forecast.tokens, outlook.dollars_pico
    places = 2 if dollars.likely >= PICO else 6
    low, likely, high = (format_usd(round(pico), places) for pico in dollars)
    answers = counted(outlook.forecast.answers, "answer")
    learned = f"learned from {answers} of {', '.join(outlook.learned_from)}" if outlook.learned_from else ASSUMED
    finish, full = outlook.finish, outlook.full_pace
    under = f"{duration_text(finish.seconds)} under this cap"
    if finish.answered < plan.samples:
        under += f", then {finish.answered:,} of {plan.samples:,} samples are answered and a limit is reached"
    elif finish.limited_by == "cap":
        under += f", {duration_text(full.seconds)} if it did not bind"
    return [
        ("output tokens", f"{tokens.likely:,.0f} likely, {tokens.low:,.0f} to {tokens.high:,.0f}; {learned}"),
        ("likely cost", f"{likely}, {low} to {high}{' in 9 of 10 cases' if outlook.learned_from else ''}"),
        ("finish", f"about {under}; an answer takes {outlook.latency_s:.1f} s"),
    ]


def _money(plan: "Plan") -> list[tuple[str, str]]:
    near = plan.in_flight_near_stop_at
    return [
        ("money", f"at most {format_usd(plan.worst_case_pico)} if every answer were cut at max_tokens"),
        ("stop-at", f"{limit_text(plan.stop_at_pico)}: nothing more is asked once this much is settled{_beyond(plan)}"),
        ("cap", f"{limit_text(plan.cap_pico)}: never committed beyond; {_pace(plan, near)}"),
        ("one request", f"at most {format_usd(plan.largest_hold_pico, 6)}"),
    ]


def _beyond(plan: "Plan") -> str:
    over = plan.overshoot
    if over is None:
        return ""
    places = 2 if over.likely_pico >= PICO else 6
    likely, most = format_usd(over.likely_pico, places), format_usd(over.most_pico, places)
    return f"; up to {counted(over.requests, 'request')} under way then still end: likely {likely} more, at most {most}"


def _pace(plan: "Plan", near: int | None) -> str:
    if near is None:
        return "prices are 0, so it never binds"
    if plan.cap_pico >= plan.full_pace_cap_pico:
        return "enough for full pace"
    needed = format_usd(plan.full_pace_cap_pico, 2 if plan.full_pace_cap_pico >= PICO else 6)
    requests = counted(near, "request")
    return f"full pace up to stop-at needs {needed}, under this one {requests} may be in flight near stop-at"


def _proof(endpoint: "Endpoint") -> str:
    if endpoint.supports_ids:
        return "ids"
    if endpoint.supports_logprobs:
        return "logprobs"
    return "stream" if endpoint.supports_stream else "none: text only"


def _per_million(usd_per_token: Decimal) -> str:
    return f"{(usd_per_token * 1_000_000).normalize():f}"
