"""What came out of a rebuild otherwise than it is stored, and the writing of it in short transactions."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final, NamedTuple

from eagletui.config.run_config import RunConfig, to_json
from eagletui.config.toml import to_toml
from eagletui.core.features import FAULTY_FEATURES
from eagletui.core.likelihood import KINDS
from eagletui.ledger.orders import TokensLabel
from eagletui.ledger.writer import LedgerWriter
from eagletui.rebuild.remake import Remade, Spool, unpack
from eagletui.rebuild.report import Rebuild, sentence
from eagletui.runs.folder import RunFolder, write_config_file
from eagletui.tokens.formats import AUTO
from eagletui.tokens.judge import Judgement
from eagletui.tokens.live_check import DIFFERENCE
from eagletui.tokens.profiles import ENOUGH

BATCH: Final = 200
"""Samples written in one transaction."""

UNFINISHED: Final = "rebuild"
"""Kind of the finding that stands while samples wait to be written."""

CHECKED: Final = ("drift", "unproven", "elsewhere")
"""Kinds of findings that the engine opens and closes as `[check]` asks."""


class Change(NamedTuple):
    """A sample to be written, with its final label."""

    remade: Remade
    label: TokensLabel


def _labelled(made: Mapping[int, Remade], judgement: Judgement) -> Iterator[Change]:
    """Pair every rebuilt sample with its final label."""
    rebuilt = (one for one in made.values() if one.sample is not None)
    for one, sample in zip(rebuilt, judgement.samples, strict=True):
        final = sample.rebuilt
        yield Change(
            one,
            TokensLabel(
                evidence=final.evidence,
                usability=final.usability,
                reason=final.reason,
                offset=final.offset,
                drift=final.drift,
                excess=final.excess,
                plain_excess=final.plain_excess,
                ended=final.ended,
            ),
        )


def changes_of(made: Mapping[int, Remade], judgement: Judgement) -> Iterator[Change]:
    """Yield the samples that are to be written."""
    for change in _labelled(made, judgement):
        if change.remade.packed is not None or change.remade.before != change.label:
            yield change


def moves(
    made: Mapping[int, Remade], judgement: Judgement, of: Callable[[TokensLabel], str]
) -> Mapping[tuple[str, str], int]:
    """Count samples by what `of` their label is, before and now; before is `-` for a sample without ids."""
    return Counter(
        ("-" if change.remade.before is None else of(change.remade.before), of(change.label))
        for change in _labelled(made, judgement)
    )


def write(folder: RunFolder, config: RunConfig, report: Rebuild, changes: Sequence[Change], spool: Spool) -> None:
    """Write what changed; the finding stands from the first batch to the last."""
    if to_toml(config) != folder.config_path.read_text(encoding="utf-8"):
        write_config_file(folder, to_toml(config))
    with LedgerWriter(folder.ledger_path) as writer:
        with writer.transaction(durable=True):
            writer.set_format(config.model.format, to_json(config))
            for endpoint, choice in report.profiles.items():
                cause = report.causes.get(endpoint)
                writer.set_endpoint_rules(
                    endpoint,
                    profile=None if config.model.profile == AUTO and choice.samples < ENOUGH else choice.profile.name,
                    offset=None if cause is None else cause.offset,
                    cause=None if cause is None else cause.name,
                )
            if changes:
                _open_unfinished(writer, changes)
        for start in range(0, len(changes), BATCH):
            with writer.transaction():
                for change in changes[start : start + BATCH]:
                    _store(writer, change, spool)
        with writer.transaction(durable=True):
            writer.replace_findings(report.findings, keep=(*CHECKED, *KINDS, FAULTY_FEATURES))
            if report.encoders_differ:
                writer.event("warn", "ctl", "encoder", f"{DIFFERENCE}.")
            writer.event("info", "ctl", "rebuild", sentence(report))


def _open_unfinished(writer: LedgerWriter, changes: Sequence[Change]) -> None:
    writer.finding(
        UNFINISHED,
        f"A rebuild has begun and not ended: up to {len(changes):,} samples may be as they were before",
        affected=len(changes),
        examined=len(changes),
        action="Run it again: eagletui rebuild RUN",
        example_key=changes[0].remade.key,
    )


def _store(writer: LedgerWriter, change: Change, spool: Spool) -> None:
    sample_id, label = change.remade.sample_id, change.label
    packed = spool.get(sample_id)
    if packed is None:
        writer.store_label(sample_id, label)
    else:
        writer.store_tokens(sample_id, replace(unpack(packed), **asdict(label)))
