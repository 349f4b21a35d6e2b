"""Export of the samples that a person picked: what is said before, and `eagletui export` with a file of ids."""

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from eagletui.ledger.async_reader import AsyncReader
from eagletui.ledger.filters import SampleFilter
from eagletui.runs.folder import RunFolder
from eagletui.tui import figures
from eagletui.tui.filter_line import preset_name, write_filter
from eagletui.tui.program import Program
from eagletui.tui.widgets.safe_text import Piece


class Picked(NamedTuple):
    """Which samples are meant."""

    marked: tuple[str, ...]
    """Keys of the marked ones; they go before the filter."""
    wanted: SampleFilter
    listed: int
    """How many fit the filter."""

    @property
    def is_everything(self) -> bool:
        """Tell whether nothing was picked out."""
        return not self.marked and preset_name(self.wanted) == "all"


def export_folder(folder: RunFolder, now: float) -> Path:
    """Name the folder of an export, after the time."""
    return folder.path / "exports" / time.strftime("samples-%Y%m%d-%H%M%S", time.localtime(now))


def export_lines(picked: Picked, out: Path) -> list[str]:
    """Say what will be written, before it is."""
    if picked.marked:
        which = f"{figures.plural(len(picked.marked), 'marked sample')}."
    elif picked.is_everything:
        which = f"All {figures.plural(picked.listed, 'sample')} of the run; mark some with space to pick them."
    else:
        which = f"{figures.plural(picked.listed, 'sample')} of the filter {write_filter(picked.wanted)}."
    return [
        which,
        f"Token ids, loss mask and evidence as JSONL in {out}.",
        "Samples that are not to be trained on are left out and counted.",
    ]


async def export_samples(program: Program, reader: AsyncReader, folder: RunFolder, picked: Picked, out: Path) -> Piece:
    """Write the picked samples and say what came of it."""
    keys: Sequence[str] = picked.marked
    if not keys and not picked.is_everything:
        keys = await reader.sample_keys(picked.wanted)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="eagletui-", suffix=".txt") as ids:
        ids.write("".join(f"{key}\n" for key in keys))
        ids.flush()
        only = ["--only", ids.name] if keys else []
        ran = await program("export", str(folder.path), "--to", "jsonl", "--out", str(out), *only, "--json")
    if ran.code != 0:
        return (f"Not exported: {ran.complaint}", "$error")
    done = json.loads(ran.output)
    left = ", ".join(f"{samples:,} {reason.replace('_', ' ')}" for reason, samples in done["left_out"].items())
    size = f"{figures.plural(done['samples'], 'sample')}, {figures.count(done['tokens'])} tok"
    return (f"Exported {size} to {done['file']}" + (f"; left out: {left}" if left else ""), "$primary")
