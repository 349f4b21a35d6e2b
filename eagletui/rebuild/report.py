"""What a rebuild made of a run, or would make."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from eagletui.core.drift import Cause
from eagletui.core.findings import Finding
from eagletui.ledger.reader_features import ShardShare
from eagletui.tokens.profiles import ProfileChoice


class Trouble(NamedTuple):
    """A sample that could not be rebuilt and stays as it was."""

    sample_key: str
    why: str


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What a rebuild made, or would make."""

    run: str
    dry_run: bool
    format: str
    profiles: Mapping[str, ProfileChoice]
    """By endpoint, with the reason."""
    samples: int
    """Rebuilt."""
    ids_changed: int
    """Samples with other ids, or with ids for the first time."""
    examples: tuple[str, ...]
    """Keys of the first of them."""
    labels_changed: int
    """Samples with the same ids and other evidence, usability or text."""
    troubles: tuple[Trouble, ...]
    evidence: Mapping[tuple[str, str], int]
    """Samples by (before, now); before is `-` for a sample without ids."""
    usability: Mapping[tuple[str, str], int]
    """The same. Of a quarantined sample it is what shows once it is released."""
    causes: Mapping[str, Cause]
    """Named constants in force, by endpoint."""
    findings: tuple[Finding, ...]
    stale: tuple[ShardShare, ...]
    """Shards with features over ids that changed."""
    encoders_differ: bool
    """The fast encoder was found wrong and not used."""
    processes: int
    seconds: float

    @staticmethod
    def figures(moves: Mapping[tuple[str, str], int], side: Literal[0, 1]) -> Counter[str]:
        """Samples before (0) or now (1)."""
        found: Counter[str] = Counter()
        for move, samples in moves.items():
            found[move[side]] += samples
        return found


def sentence(report: Rebuild) -> str:
    """Say in one sentence what was rebuilt and what that changed."""
    stale = f", {len(report.stale)} shards are stale" if report.stale else ""
    return (
        f"{report.samples:,} samples rebuilt with format {report.format}: {report.ids_changed:,} have other ids, "
        f"{report.labels_changed:,} another label or text, {len(report.troubles):,} could not be rebuilt{stale}."
    )
