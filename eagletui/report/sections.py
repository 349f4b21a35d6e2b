"""The sections of a report that are mostly tables."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC
from decimal import Decimal
from typing import Any, Final
from xml.etree.ElementTree import Element

from eagletui.core.billing import EndpointBill, priced
from eagletui.core.fidelity import PROVED
from eagletui.core.money import format_usd, limit_text
from eagletui.core.verdicts import WORDS
from eagletui.ledger.rows import FindingRow, VerdictRow
from eagletui.ledger.snapshot import DatasetFigures, EndpointFigures
from eagletui.report.markup import el
from eagletui.report.story import Story
from eagletui.report.tables import Column, pairs, table
from eagletui.tui import figures

SETTINGS: Final[tuple[tuple[str, str], ...]] = (
    ("sampling", "temperature"),
    ("sampling", "top_p"),
    ("sampling", "top_k"),
    ("sampling", "max_tokens"),
    ("sampling", "reasoning"),
    ("model", "profile"),
    ("provider", "kind"),
    ("provider", "only"),
    ("provider", "ignore"),
    ("provider", "quantizations"),
    ("prompts", "turns"),
    ("prompts", "answers"),
    ("pace", "max_in_flight"),
    ("check", "max_drift_percent"),
    ("check", "max_unproven_percent"),
    ("check", "on_breach"),
    ("extract", "engine"),
    ("extract", "dtype"),
)
"""What of the config is shown: nothing that may hold a secret, an address or a path."""

WORDS_TOLD: Final = (
    ("sample", "one prompt to be answered once; an attempt is one HTTP request for it"),
    ("proved", "the ids are those the model sampled: served, logprobs or streamed evidence"),
    ("counted / billed", "tokens by our own tokenizer / tokens on the provider's bill"),
    ("offset", "a named, proved constant between the two, such as an end token that is not billed"),
    ("drift", "billed minus counted minus offset, in output tokens: what has no explanation"),
    ("other ids", "same bytes, but another cut into tokens than encoding the text again gives"),
    ("mismatched", "samples whose ids differ from the rebuilt ones, or that nothing speaks for; a verdict counts them"),
    (
        "settled",
        "known cost, as billed; held: worst case of what is in flight; unsettled: worst case of what ended"
        " without a known cost; unattributed: what the provider's key shows for requests that tell no cost",
    ),
    ("stop-at / cap", "nothing more is asked once stop-at is settled / settled and worst cases never pass the cap"),
)


def findings(story: Story) -> Element:
    """What is systematically wrong, open ones first."""
    opened = [finding for finding in story.findings if finding.closed_at is None]
    closed = [finding for finding in story.findings if finding.closed_at is not None]
    shown = [_finding(story, finding) for finding in (*reversed(opened), *reversed(closed))]
    if not shown:
        shown = [el("div", el("p", "No systematic fault was found."), class_="finding fine")]
    return el("section", el("h2", f"Findings ({len(opened)} open, {len(closed)} closed)"), *shown)


def _finding(story: Story, finding: FindingRow) -> Element:
    where = f"{finding.endpoint}: " if finding.endpoint else ""
    example = f", for example {finding.example_key}" if finding.example_key else ""
    seen = f"first seen {_utc(finding.first_at)}, last {_utc(finding.last_at)}"
    ended = f", closed {_utc(finding.closed_at)}" if finding.closed_at is not None else ""
    return el(
        "div",
        el("p", el("strong", f"{where}{finding.sentence}")),
        el("p", finding.action),
        el(
            "p",
            f"{finding.affected:,} of {finding.examined:,} examined{example}; {seen}{ended}",
            class_="quiet",
        ),
        class_="finding" if finding.closed_at is None else "finding closed",
    )


def money(story: Story, plot: Element) -> Element:
    """The books, the prices and their source, and three prices of the same answers."""
    books, spend = story.snapshot.spend.books, story.snapshot.spend
    per_million = spend.per_million_usable_pico
    rows = [
        ("settled", format_usd(books.settled_pico, 6), "USD, known costs as the provider billed them"),
        ("held", format_usd(books.held_pico, 6), "USD, worst case of what is in flight"),
        ("unsettled", format_usd(books.unsettled_pico, 6), "USD, worst case of requests without a known cost"),
        (
            "unattributed",
            format_usd(books.unattributed_pico, 6),
            "USD, shown by the key for requests that tell no cost",
        ),
        ("wasted", format_usd(spend.wasted_pico, 6), "USD, settled for attempts that brought no answer"),
        ("stop-at", limit_text(books.stop_at_pico), "USD settled, after which nothing more is asked"),
        ("cap", limit_text(books.cap_pico), "USD that settled and worst cases together never pass"),
        (
            "per million usable",
            "unknown" if per_million is None else format_usd(per_million, 4),
            "USD per million trainable output tokens, everything spent counted",
        ),
    ]
    return el(
        "section",
        el("h2", "Money"),
        el("div", plot, el("div", pairs(rows)), class_="pair"),
        el("h3", "Prices by endpoint"),
        _prices(story),
        el("h3", "The bill against our own count"),
        _bills(story.bills),
    )


def _prices(story: Story) -> Element:
    by_tag = {one.tag: one for one in story.snapshot.endpoints}

    def asked(tag: str, field: str) -> str:
        price = story.prices.get(tag)
        return "unknown" if price is None else f"${Decimal(getattr(price, field)) * 1_000_000:.4f}"

    def source(tag: str) -> str:
        price = story.prices.get(tag)
        return "no price seen" if price is None else f"{price.source}, {_utc(price.fetched_at)}"

    def figure(tag: str, name: str) -> int:
        return int(getattr(by_tag[tag], name)) if tag in by_tag else 0

    return table(
        (
            Column("endpoint", lambda tag: el("code", tag)),
            Column("prompt, USD per 1M", lambda tag: asked(tag, "prompt_usd"), right=True),
            Column("output, USD per 1M", lambda tag: asked(tag, "completion_usd"), right=True),
            Column("source and time", source),
            Column("answers", lambda tag: f"{figure(tag, 'samples'):,}", right=True),
            Column("failures", lambda tag: f"{figure(tag, 'failures'):,}", right=True),
            Column("cut", lambda tag: f"{figure(tag, 'truncated'):,}", right=True),
            Column("cost, USD", lambda tag: format_usd(figure(tag, "cost_pico"), 6), right=True),
        ),
        sorted(by_tag.keys() | story.prices.keys()),
        "No endpoint is known yet.",
    )


def _bills(bills: Sequence[EndpointBill]) -> Element:
    rows = [(bill, found) for bill in bills if (found := priced(bill)) is not None]
    return table(
        (
            Column("endpoint", lambda row: el("code", row[0].endpoint)),
            Column("provider's bill", lambda row: format_usd(row[1].provider_pico, 6), right=True),
            Column("billed tokens at list price", lambda row: format_usd(row[1].ledger_pico, 6), right=True),
            Column("our count at list price", lambda row: format_usd(row[1].counted_pico, 6), right=True),
            Column("difference", lambda row: format_usd(row[1].difference_pico, 6), right=True),
            Column("of it drift", lambda row: format_usd(row[1].drift_pico, 6), right=True),
            Column("of it offset", lambda row: format_usd(row[1].offset_pico, 6), right=True),
            Column("of it no answer", lambda row: format_usd(row[1].unanswered_pico, 6), right=True),
            Column("of it other prices", lambda row: format_usd(row[1].other_prices_pico, 6), right=True),
        ),
        rows,
        "Nothing is billed at a known price yet.",
    )


def offset(endpoint: EndpointFigures) -> str:
    """Write the named constant of an endpoint."""
    row = endpoint.row
    if row is None or not row.offset_tokens:
        return "none"
    return f"{row.offset_tokens:+} ({row.offset_cause})"


def datasets(story: Story) -> Element:
    """Data sets, what a verdict on each rests on, and who signed."""
    figures_of = {one.name: one for one in story.snapshot.datasets}

    def mismatched(name: str) -> str:
        basis = story.bases.get(name)
        return "not read" if basis is None else f"{basis.mismatched:,} of {basis.samples:,}"

    def why(name: str) -> str:
        basis = story.bases.get(name)
        return "" if basis is None else "; ".join(f"{count:,} {WORDS[kind]}" for kind, count in basis.by_kind.items())

    def tokens(name: str) -> str:
        basis = story.bases.get(name)
        if basis is None:
            return "unknown"
        return f"{'at least ' if basis.is_lower_bound else ''}{basis.tokens_percent:.3f} %"

    def signed(name: str) -> str:
        own = [verdict for verdict in story.verdicts if verdict.dataset == name]
        return _signature(own[-1]) if own else "by nobody yet"

    listed = table(
        (
            Column[str]("data set", str),
            Column("samples", lambda name: f"{figures_of[name].samples:,}", right=True),
            Column("answered", lambda name: f"{sum(figures_of[name].evidence.values()):,}", right=True),
            Column("proved", lambda name: f"{_proved(figures_of[name]):,}", right=True),
            Column("mismatched", mismatched, right=True),
            Column("output tokens that differ", tokens, right=True),
            Column("in what way", why),
            Column("cost, USD", lambda name: format_usd(figures_of[name].cost_pico, 6), right=True),
            Column("verdict", signed),
        ),
        sorted(figures_of),
        "No prompt was added yet.",
    )
    history = [el("li", f"{verdict.dataset}: {_signature(verdict)}") for verdict in reversed(story.verdicts)]
    all_of_them = el("details", el("summary", "Every signature, the last first"), el("ul", *history))
    return el("section", el("h2", "Data sets and verdicts"), listed, all_of_them if history else None)


def _proved(dataset: DatasetFigures) -> int:
    return sum(dataset.evidence.get(kind, 0) for kind in PROVED)


def _signature(verdict: VerdictRow) -> str:
    did = "refused" if verdict.is_refused else "accepted"
    counts = f"{verdict.mismatched:,} of {verdict.samples:,} mismatched"
    return f"{did} by {verdict.accepted_by}, {_utc(verdict.at)}, at {counts}: {verdict.rule}"


def attempts(story: Story) -> Element:
    """Samples and attempts by state, and how answers ended."""
    snapshot = story.snapshot
    return el(
        "section",
        el("h2", "Requests"),
        _counts("samples by state", snapshot.states),
        _counts("attempts by state", snapshot.attempts),
        _counts("answers by finish reason", snapshot.finish_reasons),
        el(
            "p",
            f"{figures.plural(snapshot.failures, 'attempt')} ended with an error, {snapshot.retries:,} were retries.",
            class_="quiet",
        ),
    )


def _counts(name: str, counts: Mapping[str, int]) -> Element:
    parts = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in counts.items() if count)
    return el("p", el("strong", f"{name}: "), parts or "none")


def features(story: Story) -> Element:
    """Hidden states: shards, their size and when they were verified."""
    extract = story.snapshot.extract
    if not extract.shards:
        return el("section", el("h2", "Features"), el("p", f"None yet; {extract.pending:,} samples could have them."))
    verified = [shard.verified_at for shard in story.shards if shard.verified_at is not None]
    rows = [
        ("shards", f"{extract.shards:,}", "sealed files"),
        ("samples", f"{extract.samples:,}", f"with current features; {extract.pending:,} wait"),
        ("rows", f"{extract.rows:,}", "tokens, prompts included"),
        ("size", figures.size(extract.bytes), "on the disk"),
        ("verified", f"{len(verified):,}", f"shards, last {_utc(max(verified, default=None))}"),
    ]
    return el("section", el("h2", "Features"), pairs(rows))


def settings(story: Story) -> Element:
    """Settings that figures depend on, and what was read."""
    try:
        config: dict[str, Any] = json.loads(story.snapshot.run.config_json)
    except ValueError:
        # A config that is no JSON has no settings to show; the ledger keeps it as it is.
        config = {}
    rows = [
        (f"{part}.{name}", _setting(config[part][name]))
        for part, name in SETTINGS
        if isinstance(config.get(part), dict) and name in config[part]
    ]
    listed = table((Column("setting", lambda row: row[0]), Column("value", lambda row: row[1])), rows)
    sources = table(
        (
            Column("prompt file", lambda source: source.path.rsplit("/", 1)[-1]),
            Column("samples", lambda source: f"{source.samples:,}", right=True),
            Column("sha256", lambda source: el("code", source.sha256[:16])),
            Column("added", lambda source: _utc(source.added_at)),
        ),
        story.sources,
        "No prompt file was read yet.",
    )
    run = story.snapshot.run
    tokenizer, template = ((found or "unknown")[:16] for found in (run.tokenizer_hash, run.template_hash))
    hashes = f"Hashes: tokenizer {tokenizer}, chat template {template}"
    return el("section", el("h2", "Settings"), sources, listed, el("p", hashes, class_="quiet"))


def _setting(value: object) -> str:
    if value is None or value == []:
        return "not set"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def words() -> Element:
    """What the words of the report mean."""
    told = [el("div", el("dt", name), el("dd", meaning)) for name, meaning in WORDS_TOLD]
    return el("section", el("h2", "What the words mean"), el("dl", *told, class_="words"))


def _utc(at: float | None) -> str:
    return "never" if at is None else f"{figures.date_time(at, UTC)} UTC"
