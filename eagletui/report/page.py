"""The page: what a run bought, what it cost, what is proved, and what is wrong with it.

Pure: a story in, bytes out. Everything is built by `el`, which takes foreign text as text.
"""

from collections.abc import Iterable
from datetime import UTC
from typing import Final
from xml.etree.ElementTree import Element

from eagletui import __version__
from eagletui.core.fidelity import EVIDENCE, PROVED, USABILITY
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.core.money import limit_text
from eagletui.ledger.snapshot import EndpointFigures
from eagletui.report import charts, sections
from eagletui.report.markup import Child, document, el
from eagletui.report.story import Story
from eagletui.report.style import STYLE
from eagletui.report.tables import Column, table
from eagletui.tui import figures
from eagletui.tui.evidence_worth import BASIS, MEASURED

EVIDENCE_WORDS: Final = {
    "served": "proof: the server returned the ids",
    "logprobs": "proof: every sampled token came with its text and bytes",
    "streamed": "proof: one token a stream event, and their number is the bill's",
    "inferred": "the likeliest cut by the model's own weights; no proof",
    "counted": "the text encoded again has as many tokens as were billed; no proof",
    "canonical": "the text encoded again, and no bill to compare; no proof",
    "conflict": "the text encoded again does not have the billed number of tokens",
}
USABILITY_WORDS: Final = {
    "usable": "train on it",
    "resegmented": "the text is right, the cut into tokens is not proved to be the model's; features fit it",
    "text_suspect": "parts of the text may be lost or rewritten; left out of training",
    "model_suspect": "the content does not look like this model's; left out of training",
    "unusable": "encrypted, cut or empty; left out of training",
}
_MOST_DRIFT_PLOTS: Final = 8


def page(story: Story, standing: str) -> bytes:
    """Write the report.

    Args:
        story: the run at one moment.
        standing: how the run stands, one sentence.
    """
    run = story.snapshot.run
    body = el(
        "body",
        _header(story, standing),
        el(
            "main",
            _tiles(story),
            sections.findings(story),
            _exactness(story),
            _drift(story),
            sections.money(story, charts.dollars(story)),
            section("Pace", el("div", charts.throughput(story), charts.latency(story), class_="pair")),
            sections.datasets(story),
            sections.attempts(story),
            sections.features(story),
            sections.settings(story),
            sections.words(),
        ),
        el("footer", f"Written by EagleTUI {__version__} from the run's ledger. It loads nothing and runs nothing."),
    )
    return document(f"{run.name}: EagleTUI report", STYLE, body)


def section(title: str, *children: Child) -> Element:
    """Make a section with its heading."""
    return el("section", el("h2", title), *children)


def _header(story: Story, standing: str) -> Element:
    snapshot, run = story.snapshot, story.snapshot.run
    beats = [worker.heartbeat_age_s for worker in snapshot.workers]
    heard = f"; last sign of a worker {figures.age(min(beats))} before" if beats else ""
    alive = any(worker.alive for worker in snapshot.workers)
    idle = "the run has ended" if run.state in FINISHED_RUNS else "nobody worked on the run"
    age = "the run goes on, so its figures have moved since" if alive else idle
    facts = [
        ("state", standing),
        ("model", run.model_id),
        ("output format", run.format),
        ("started", _utc(run.started_at)),
        ("finished", _utc(run.finished_at)),
        ("read", f"{_utc(snapshot.at)}: {age}{heard}"),
    ]
    pairs = [el("div", el("dt", name), el("dd", value)) for name, value in facts]
    return el("header", el("p", "EagleTUI run report", class_="quiet"), el("h1", run.name), el("dl", *pairs))


def _tiles(story: Story) -> Element:
    snapshot = story.snapshot
    answered = sum(snapshot.evidence.values())
    proved = sum(snapshot.evidence.get(kind, 0) for kind in PROVED)
    trainable = sum(snapshot.usability.get(kind, 0) for kind in ("usable", "resegmented"))
    books, spend = snapshot.spend.books, snapshot.spend
    percent = snapshot.drift.percent
    per_million = spend.per_million_usable_pico
    tiles = [
        ("samples answered", f"{snapshot.answered:,}", f"of {snapshot.samples:,}"),
        ("ids proved", _share(proved, answered), f"{proved:,} of {answered:,} answers"),
        ("trainable", f"{trainable:,}", f"samples, {snapshot.tokens.trainable:,} output tokens"),
        ("other ids", f"{snapshot.resegmented:,}", "samples whose ids re-encoding the text would not give"),
        ("drift", "unknown" if percent is None else f"{percent:+.3f} %", f"{snapshot.drift.tokens:+,} tokens"),
        ("dollars settled", figures.usd(books.spent_pico), f"stop-at {limit_text(books.stop_at_pico)}"),
        (
            "per million usable tokens",
            "unknown" if per_million is None else figures.usd(per_million),
            "USD, everything spent counted",
        ),
        ("wasted", figures.usd(spend.wasted_pico), "USD for attempts without an answer"),
    ]
    return el(
        "section",
        *(
            el("div", el("p", name, class_="quiet"), el("p", value, class_="big"), el("p", note, class_="quiet"))
            for name, value, note in tiles
        ),
        class_="tiles",
    )


def _exactness(story: Story) -> Element:
    snapshot = story.snapshot
    answered = sum(snapshot.evidence.values())
    rows: list[str] = [kind for kind in EVIDENCE if snapshot.evidence.get(kind, 0)]

    def worth(kind: str) -> str:
        measured = MEASURED.get(kind)
        return "not measured" if measured is None else f"{measured.right} of {measured.of}"

    by_evidence = table(
        (
            Column("evidence", lambda kind: el("span", kind, class_=f"key {charts.EVIDENCE_CLASSES[kind]}")),
            Column("what it says", lambda kind: EVIDENCE_WORDS[kind]),
            Column("samples", lambda kind: f"{snapshot.evidence[kind]:,}", right=True),
            Column("share", lambda kind: _share(snapshot.evidence[kind], answered), right=True),
            Column("right, where measured", worth, right=True),
        ),
        rows,
        "No answer yet.",
    )
    usable: list[str] = [kind for kind in USABILITY if snapshot.usability.get(kind, 0)]
    by_usability = table(
        (
            Column[str]("usability", str),
            Column("what to do", lambda kind: USABILITY_WORDS[kind]),
            Column("samples", lambda kind: f"{snapshot.usability[kind]:,}", right=True),
        ),
        usable,
    )
    if not rows:
        return section("Exactness", by_evidence)
    return section(
        "Exactness",
        charts.evidence("all answers", dict(snapshot.evidence)),
        by_evidence,
        el("p", f"Right, where measured: {BASIS}. Other models differ.", class_="quiet"),
        by_usability,
        _worth_a_look(story),
    )


def _worth_a_look(story: Story) -> Element | None:
    rows = [one for one in story.attention if one.sample_key is not None and one.kind != "finding"]
    if not rows:
        return None
    listed = table(
        (
            Column("sample", lambda one: el("code", one.sample_key)),
            Column("why", lambda one: one.kind),
            Column("what", lambda one: one.text),
        ),
        rows,
    )
    return el("details", el("summary", f"{figures.plural(len(rows), 'sample')} worth a look"), listed)


def _drift(story: Story) -> Element:
    endpoints = [one for one in story.snapshot.endpoints if one.samples]
    off = sorted(
        (one for one in endpoints if story.drifts.get(one.tag)), key=lambda one: -sum(story.drifts[one.tag].values())
    )
    listed = table(
        (
            Column("endpoint", lambda one: el("code", one.tag)),
            Column("state", _endpoint_state),
            Column("answers", lambda one: f"{one.samples:,}", right=True),
            Column("billed", lambda one: f"{one.billed_output:,}", right=True),
            Column("counted", lambda one: f"{one.output:,}", right=True),
            Column("offset", lambda one: sections.offset(one), right=False),
            Column("drift", lambda one: figures.signed(one.drift_tokens), right=True),
            Column(
                "of billed",
                lambda one: "unknown" if one.drift_percent is None else f"{one.drift_percent:+.3f} %",
                right=True,
            ),
            Column("evidence", lambda one: charts.evidence(one.tag, dict(one.evidence)) or ""),
        ),
        endpoints,
        "No answer yet.",
    )
    plots: Iterable[Element] = (charts.drift(story, one.tag) for one in off[:_MOST_DRIFT_PLOTS])
    note = "Output tokens. Drift is billed minus counted minus the named constant (offset) of the endpoint."
    return section("Billed against counted", el("p", note, class_="quiet"), listed, el("div", *plots, class_="pair"))


def _endpoint_state(endpoint: EndpointFigures) -> str:
    row = endpoint.row
    if row is None or row.quarantined_since is None:
        return "open" if row is not None else "unknown"
    return f"quarantined since {_utc(row.quarantined_since)}"


def _share(part: int, whole: int) -> str:
    return figures.percent(figures.share(part, whole)) if whole else "unknown"


def _utc(at: float | None) -> str:
    return "not yet" if at is None else f"{figures.date_time(at, UTC)} UTC"
