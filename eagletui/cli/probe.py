"""What `eagletui plan --probe N` buys: a few small answers of every endpoint, and what they show."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from eagletui.cli.follow import follow, interruptible
from eagletui.cli.output import counted, print_pairs, print_table
from eagletui.cli.run import prepare
from eagletui.cli.workers import last_event, start_workers
from eagletui.config.run_config import RunConfig
from eagletui.config.sampling import SamplingOverride
from eagletui.core.fidelity import EVIDENCE
from eagletui.core.money import format_usd, pico_to_usd_string
from eagletui.core.text import clean_line
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import AttemptRow, SampleRow
from eagletui.runs.claims import Claim
from eagletui.runs.folder import RunFolder, runs_root

if TYPE_CHECKING:
    from eagletui.rebuild.report import Rebuild

PATIENCE_S: Final = 20.0
"""Most costs are known sooner. A bill may come a quarter of an hour late, for which nobody waits before a forecast."""

MAX_TOKENS: Final = 2_048
"""Longest answer of a probe. A longer one would cost more and show the same."""

LEAST_FOR_PROFILE: Final = 20
"""Answers from which whitespace can be told; `profile = "auto"` waits for as many."""

TRAINABLE: Final = ("usable", "resegmented")


@dataclass(slots=True)
class EndpointProbe:
    """What the answers of one endpoint show."""

    requests: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """Requests without an answer, by kind."""
    answers: int = 0
    evidence: Counter[str] = field(default_factory=Counter)
    cost_pico: int = 0
    """Known costs, of failures too."""
    usable_tokens: int = 0
    billed_tokens: int = 0
    """Of answers whose drift is known."""
    drift_tokens: int = 0
    """Sum of absolute drift."""
    prompt_counted: int = 0
    prompt_billed: int = 0
    """Both over the answers where both are known."""
    with_tools: int = 0
    """Answers to prompts that declare tools."""
    latency_s: float = 0.0
    """Sum over the answers."""
    output_tokens: int = 0
    """Billed, of the answers whose latency is known."""
    prompts_off: int = 0
    """Answers whose prompt was billed otherwise than counted."""

    @property
    def rung(self) -> str | None:
        """The best evidence that an answer reached."""
        return next((kind for kind in EVIDENCE if self.evidence[kind]), None)

    @property
    def per_million_usable_pico(self) -> int | None:
        """Price of a million tokens that can be trained on; None where there are none."""
        return self.cost_pico * 1_000_000 // self.usable_tokens if self.usable_tokens else None

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens a second of one answer, its wait included; None where no answer came."""
        return self.output_tokens / self.latency_s if self.latency_s else None

    @property
    def prompt_arrived(self) -> bool | None:
        """Every prompt was billed with as many tokens as counted; None where nothing was billed."""
        return None if not self.prompt_billed else self.prompts_off == 0

    @property
    def drift_percent(self) -> float | None:
        """Drift as a share of the bill; None where it is unknown."""
        return 100.0 * self.drift_tokens / self.billed_tokens if self.billed_tokens else None


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe that has ended."""

    folder: RunFolder
    code: int
    """How its run ended, as an exit code."""
    settled_pico: int
    held_pico: int
    """Not settled yet."""
    endpoints: dict[str, EndpointProbe]
    """By tag."""
    rebuilt: "Rebuild"
    """Profiles, offsets and findings over all answers."""


def probe(config: RunConfig, requests: int) -> Probe:
    """Ask for a few answers and judge them.

    Args:
        config: of the run that is planned; its cap holds.
        requests: at most so many are made.

    Raises:
        EagleError: the run cannot be made or its engine died.
    """
    from eagletui.rebuild.job import rebuild_run

    small = probe_config(config, requests)
    with Claim() as claim:
        folder = prepare(small, None, claim)
        after_event = last_event(folder)
        with interruptible() as interrupts:
            joined = start_workers(folder, small, claim, interrupts, exit_when_paused=True)
            code = follow(folder, small, interrupts, after_event=after_event, joined=joined, patience_s=PATIENCE_S)
    rebuilt = rebuild_run(folder)
    with LedgerReader(folder.ledger_path) as reader:
        books = reader.books()
        rows = reader.page(SampleFilter(), None, requests)
        samples = [sample for row in rows if (sample := reader.sample(row.sample_key))]
    found = _by_endpoint(rows, [attempt for sample in samples for attempt in sample.attempts])
    for sample in samples:
        if sample.row.endpoint is not None and sample.prompt.tools_json is not None:
            found[sample.row.endpoint].with_tools += 1
    return Probe(folder, code, books.settled_pico, books.open_pico, found, rebuilt)


def probe_config(config: RunConfig, requests: int) -> RunConfig:
    """Return a config that asks every endpoint alike, each sample once, for short answers."""
    sampling = config.sampling
    limited = {
        name: override.model_copy(update={"max_tokens": _at_most(override, sampling.max_tokens)})
        for name, override in sampling.overrides.items()
    }
    sections: dict[str, dict[str, Any]] = {
        "run": {"name": _free_name(config.run.name)},
        "prompts": {"limit": requests, "pick": "spread"},
        "sampling": {"max_tokens": min(sampling.max_tokens, MAX_TOKENS), "overrides": limited},
        "pace": {"max_in_flight": min(config.pace.max_in_flight, requests), "max_attempts": 1, "spread": "even"},
        "check": {"on_breach": "warn"},
        "notify": {"on": []},
        "extract": {"when": "off"},
    }
    changed = {name: getattr(config, name).model_copy(update=update) for name, update in sections.items()}
    return config.model_copy(update=changed)


def probe_object(made: Probe) -> dict[str, Any]:
    """Return a probe as JSON values; money as decimal strings."""
    from eagletui.core.json_objects import finding_object

    return {
        "run": made.folder.name,
        "exit_code": made.code,
        "requests": sum(endpoint.requests for endpoint in made.endpoints.values()),
        "spent_usd": pico_to_usd_string(made.settled_pico),
        "held_usd": pico_to_usd_string(made.held_pico),
        "endpoints": [_endpoint_object(made, tag, endpoint) for tag, endpoint in made.endpoints.items()],
        "findings": [finding_object(finding) for finding in made.rebuilt.findings],
    }


def print_probe(made: Probe, quantizations: Mapping[str, str | None]) -> None:
    """Print what a probe showed, endpoint by endpoint.

    Args:
        made: the probe.
        quantizations: as the endpoints state them, by tag.
    """
    from eagletui.cli.reconstruct import print_findings
    from eagletui.core.json_objects import finding_object

    rows = []
    for tag, endpoint in made.endpoints.items():
        reached = ", ".join(f"{kind} {endpoint.evidence[kind]}" for kind in EVIDENCE if endpoint.evidence[kind])
        price = endpoint.per_million_usable_pico
        drift = endpoint.drift_percent
        rows.append(
            (
                tag,
                f"{endpoint.answers} of {endpoint.requests}",
                reached or "-",
                "-" if price is None else format_usd(price, 2),
                "-" if drift is None else f"{drift:.2f} %",
            )
        )
    print_table(("endpoint", "answered", "evidence", "per million usable", "drift"), rows, right=(3, 4))
    print()
    kept = []
    for tag, endpoint in made.endpoints.items():
        speed = endpoint.tokens_per_s
        kept.append(
            (
                tag,
                "-" if speed is None else f"{speed:,.1f}",
                quantizations.get(tag) or "unknown",
                whitespace_words(made, tag),
                arguments_words(made, tag),
                _prompt_words(endpoint),
            )
        )
    print_table(("endpoint", "tokens/s", "weights", "whitespace", "tool arguments", "prompt tokens"), kept, right=(1,))
    print()
    pairs = [("spent", f"{format_usd(made.settled_pico)} in the probe run {made.folder.name}")]
    if made.held_pico:
        asks = f"eagletui run {made.folder.argument} asks for them again"
        pairs.append(("held", f"{format_usd(made.held_pico)} of requests whose costs are not known yet: {asks}"))
    for tag, endpoint in made.endpoints.items():
        choice = made.rebuilt.profiles.get(tag)
        cause = made.rebuilt.causes.get(tag)
        if choice is not None:
            pairs.append((f"profile of {clean_line(tag)}", f"{choice.profile.name}: {choice.reason}"))
        if cause is not None:
            pairs.append((f"offset of {clean_line(tag)}", f"{cause.offset:+d}, {cause.name}"))
        for kind, failures in endpoint.failures.items():
            pairs.append((f"failed at {clean_line(tag)}", f"{counted(failures, 'request')}: {kind}"))
    print_pairs(pairs)
    print_findings([finding_object(finding) for finding in made.rebuilt.findings])


def whitespace_words(made: Probe, tag: str) -> str:
    """Say whether an endpoint keeps outer whitespace, as far as its answers tell."""
    choice = made.rebuilt.profiles.get(tag)
    if choice is None:
        return "-"
    losses = choice.profile.losses(made.rebuilt.format)
    parts = [
        f"{name} {what}"
        for name, what in (("reasoning", losses.reasoning), ("content", losses.content))
        if what != "verbatim"
    ]
    sure = "" if choice.samples >= LEAST_FOR_PROFILE else f", from {counted(choice.samples, 'answer')} only"
    return (", ".join(parts) or "kept") + sure


def arguments_words(made: Probe, tag: str) -> str:
    """Say whether an endpoint writes tool arguments again; "-" where no prompt declared tools."""
    if any(finding.kind == "arguments" and finding.endpoint == tag for finding in made.rebuilt.findings):
        return "rewritten"
    if not made.endpoints[tag].with_tools:
        return "-"
    choice = made.rebuilt.profiles.get(tag)
    written = "verbatim" if choice is None else choice.profile.losses(made.rebuilt.format).arguments
    return "kept" if written == "verbatim" else written


def _by_endpoint(rows: Sequence[SampleRow], attempts: Sequence[AttemptRow]) -> dict[str, EndpointProbe]:
    found: dict[str, EndpointProbe] = {}
    for attempt in attempts:
        endpoint = found.setdefault(attempt.endpoint, EndpointProbe())
        endpoint.requests += 1
        endpoint.cost_pico += attempt.cost_pico or 0
        if attempt.error_kind is not None:
            endpoint.failures[attempt.error_kind] += 1
    for row in rows:
        if row.endpoint is not None:
            _count(found.setdefault(row.endpoint, EndpointProbe()), row)
    return dict(sorted(found.items()))


def _count(endpoint: EndpointProbe, row: SampleRow) -> None:
    endpoint.answers += 1
    if row.evidence is not None:
        endpoint.evidence[row.evidence] += 1
    if row.usability in TRAINABLE:
        endpoint.usable_tokens += row.output_tokens or 0
    if row.latency_s is not None and row.output_tokens is not None:
        endpoint.latency_s += row.latency_s
        endpoint.output_tokens += row.output_tokens if row.billed_output_tokens is None else row.billed_output_tokens
    if row.drift_tokens is not None:
        endpoint.drift_tokens += abs(row.drift_tokens)
        endpoint.billed_tokens += row.billed_output_tokens or 0
    if row.prompt_tokens is not None and row.billed_prompt_tokens is not None:
        endpoint.prompt_counted += row.prompt_tokens
        endpoint.prompt_billed += row.billed_prompt_tokens
        endpoint.prompts_off += row.prompt_tokens != row.billed_prompt_tokens


def _endpoint_object(made: Probe, tag: str, endpoint: EndpointProbe) -> dict[str, Any]:
    rebuilt = made.rebuilt
    price, drift = endpoint.per_million_usable_pico, endpoint.drift_percent
    choice, cause = rebuilt.profiles.get(tag), rebuilt.causes.get(tag)
    return {
        "tag": tag,
        "requests": endpoint.requests,
        "answers": endpoint.answers,
        "failures": dict(endpoint.failures),
        "evidence": {kind: endpoint.evidence[kind] for kind in EVIDENCE if endpoint.evidence[kind]},
        "rung": endpoint.rung,
        "usd_per_million_usable": None if price is None else pico_to_usd_string(price),
        "usable_tokens": endpoint.usable_tokens,
        "drift": {"tokens": endpoint.drift_tokens, "percent": None if drift is None else round(drift, 4)},
        "tokens_per_s": None if endpoint.tokens_per_s is None else round(endpoint.tokens_per_s, 2),
        "prompt_arrived": endpoint.prompt_arrived,
        "whitespace": whitespace_words(made, tag),
        "tool_arguments": arguments_words(made, tag),
        "prompt_tokens": {
            "counted": endpoint.prompt_counted,
            "billed": endpoint.prompt_billed,
            "samples_off": endpoint.prompts_off,
        },
        "profile": None if choice is None else {"profile": choice.profile.name, "reason": choice.reason},
        "offset": None if cause is None else {"offset": cause.offset, "cause": cause.name},
    }


def _prompt_words(endpoint: EndpointProbe) -> str:
    if not endpoint.prompt_billed:
        return "-"
    if not endpoint.prompts_off:
        return f"{endpoint.prompt_counted:,}, as billed"
    return f"{endpoint.prompt_counted:,} counted, {endpoint.prompt_billed:,} billed"


def _at_most(override: SamplingOverride, common: int) -> int:
    return min(common if override.max_tokens is None else override.max_tokens, MAX_TOKENS)


def _free_name(name: str) -> str:
    """Name a probe run; each probe is a run of its own."""
    wanted, number = f"{name}-probe", 1
    while (runs_root() / wanted).exists():
        number += 1
        wanted = f"{name}-probe-{number}"
    return wanted
