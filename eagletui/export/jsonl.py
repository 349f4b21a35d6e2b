"""Write a run's training set as JSONL: one object a line with `id`, `input_ids`, `loss_mask` and their evidence.

SpecForge (online) and speculators (`prepare-data`) read these lines without tokenizing anything again; keys beyond
`input_ids` and `loss_mask` are ignored there.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from eagletui.core.errors import RunError
from eagletui.export.replacement import Replacement
from eagletui.export.rows import Census, training_rows
from eagletui.ledger.reader import LedgerReader
from eagletui.runs import RunFolder

FORMAT: Final = "eagletui-tokens-1"
DATA_FILE: Final = "train.jsonl"
MANIFEST_FILE: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    file: Path
    manifest: Path
    bytes: int
    sha256: str
    census: Census


def export_jsonl(folder: RunFolder, out: Path, *, also: Sequence[str] = ()) -> Exported:
    """Write the training set of a run and a manifest beside it.

    Both files appear whole or not at all; an earlier export of the same name is replaced only then.

    Args:
        folder: the run.
        out: the folder for both files; made if needed.
        also: usabilities beyond the default set.

    Raises:
        RunError: there is nothing to export, or the folder cannot be written.
    """
    census = Census()
    data, manifest = out / DATA_FILE, out / MANIFEST_FILE
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        with LedgerReader(folder.ledger_path) as reader, reader.moment(), Replacement(data) as stream:
            digest = hashlib.sha256()
            size = 0
            for row in training_rows(reader, census, also):
                line = msgspec.json.encode(row) + b"\n"
                digest.update(line)
                size += stream.write(line)
            if not census.samples:
                raise RunError(
                    f"Run {folder.name} has no samples to export"
                    + (f": {_listed(census)} are left out." if census.left_out else " yet.")
                )
            described = _describe(reader, census, also, size, digest.hexdigest())
        with Replacement(manifest) as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(described), indent=2) + b"\n")
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error.strerror or error}.") from error
    return Exported(data, manifest, size, digest.hexdigest(), census)


def _describe(reader: LedgerReader, census: Census, also: Sequence[str], size: int, sha256: str) -> dict[str, Any]:
    run = reader.run()
    return {
        "format": FORMAT,
        "file": DATA_FILE,
        "bytes": size,
        "sha256": sha256,
        "run": run.name,
        "model": run.model_id,
        "output_format": run.format,
        "tokenizer_hash": run.tokenizer_hash,
        "template_hash": run.template_hash,
        "also_included": list(also),
        **census_object(census),
        "verdicts": [
            {
                "dataset": verdict.dataset,
                "rule": verdict.rule,
                "accepted_by": verdict.accepted_by,
                "at": verdict.at,
                "mismatched": verdict.mismatched,
                "samples": verdict.samples,
                **msgspec.json.decode(verdict.detail_json),
            }
            for verdict in reader.verdicts()
        ],
        "created_at": time.time(),
    }


def census_object(census: Census) -> dict[str, Any]:
    """Return the figures of a training set as JSON values."""
    return {
        "samples": census.samples,
        "tokens": census.tokens,
        "sampled_tokens": census.sampled_tokens,
        "by_evidence": dict(census.evidence),
        "by_usability": dict(census.usability),
        "by_finish_reason": dict(census.finish_reason),
        "by_dataset": dict(census.dataset),
        "left_out": dict(census.left_out),
    }


def _listed(census: Census) -> str:
    return ", ".join(f"{samples} {reason}" for reason, samples in census.left_out.items())
