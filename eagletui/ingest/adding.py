"""Take prompt files into a run: everything in one transaction, or nothing if any line is wrong.

Files are streamed and no prompt is kept, so memory stays flat whatever the size.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Generator
from itertools import groupby, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from eagletui.config.sections import PromptsSection
from eagletui.core.errors import InputError, Problem
from eagletui.core.run_parts import RunPart
from eagletui.ingest.census import Census, Chosen, Problems, chosen_prompts, take_census, walk
from eagletui.ledger.codecs import pack_prompt
from eagletui.ledger.orders import NewPrompt
from eagletui.ledger.writer_ingest import IngestWriter
from eagletui.prompts.canaries import NO_CANARIES, Canaries
from eagletui.prompts.preview import preview

_BATCH: Final = 500
APART_BYTES: Final = 32 * 2**20
"""Prompt files of so many bytes are read in a process of their own."""
_LIVE_BATCH: Final = 100
"""So many a transaction while an engine may wait for the ledger."""
_END_S: Final = 5.0
"""So long a process that closed its pipe may take to end."""


def ingest(
    section: PromptsSection, writer: IngestWriter, part: RunPart | None = None, canaries: Canaries = NO_CANARIES
) -> Census:
    """Add the prompt files of a config to a ledger, all or nothing, in one reading.

    Args:
        section: the files and what is asked of them.
        writer: of the ledger.
        part: which prompts this run takes; they keep the numbers they have in the whole run. None for all.
        canaries: prompts that are asked in addition.

    Raises:
        PromptFileError: with the first 20 problems of all files; nothing was added.
    """
    added = Census()
    problems = Problems()
    sources: dict[Path, int] = {}
    read = _read_apart if _is_worth_a_process(section) else _read
    with writer.in_bulk(), contextlib.closing(read(section, part, canaries)) as events:
        for event in events:
            match event:
                case Problem():
                    problems.take(event)
                case _Batch(path, prompts) if not problems.total:
                    if path not in sources:
                        sources[path] = writer.begin_source(path)
                    writer.add_prompts(prompts, sources[path])
                case _FileEnd(path, sha256, samples) if path in sources:
                    writer.end_source(sources[path], sha256, samples)
                case Census():
                    added = event
        problems.raise_any()
        for path, sha256 in added.sha256.items():
            if not added.by_file[path]:
                writer.add_source(path, sha256, 0)
    return added


class _Batch(NamedTuple):
    """Some prompts of a file, ready to be written."""

    path: Path
    prompts: list[NewPrompt]


class _FileEnd(NamedTuple):
    """A file was read to its end."""

    path: Path
    sha256: str
    samples: int


_Event = Problem | _Batch | _FileEnd | Census


def _read(section: PromptsSection, part: RunPart | None, canaries: Canaries) -> Generator[_Event]:
    """Read the files of a config; the census comes last."""
    counted = Census()
    for path, items in groupby(walk(section, counted, part, canaries), key=_path_of):
        batch: list[NewPrompt] = []
        for item in items:
            if isinstance(item, Problem):
                yield item
                continue
            batch.append(_new_prompt(item, part))
            if len(batch) == _BATCH:
                yield _Batch(path, batch)
                batch = []
        if batch:
            yield _Batch(path, batch)
        if path in counted.sha256:
            yield _FileEnd(path, counted.sha256[path], counted.by_file[path])
    yield counted


def _is_worth_a_process(section: PromptsSection) -> bool:
    """Tell whether reading takes so long that it should not wait for the writing, and another core may do it."""
    sizes = (path.stat().st_size for path in section.path if path.is_file())
    return len(os.sched_getaffinity(0)) > 1 and sum(sizes) >= APART_BYTES


def _read_apart(section: PromptsSection, part: RunPart | None, canaries: Canaries) -> Generator[_Event]:
    """Read the files in another process, while this one writes.

    Raises:
        InputError: what reading raised, or the process ended otherwise before it was through.
    """
    context = multiprocessing.get_context("spawn")
    events, to_us = context.Pipe(duplex=False)
    reader = context.Process(target=_send_events, args=(to_us, section, part, canaries), daemon=True)
    reader.start()
    to_us.close()
    try:
        event: _Event | InputError | None = None
        while not isinstance(event, Census):
            event = events.recv()
            if isinstance(event, InputError):
                raise event
            yield event
    except (EOFError, OSError):
        reader.join(_END_S)
        raise InputError(_why_ended(reader.exitcode)) from None
    finally:
        reader.terminate()
        reader.join()
        events.close()


def _why_ended(exit_code: int | None) -> str:
    what = "The process that reads the prompt files"
    if exit_code is not None and exit_code < 0:
        return f"{what} was killed by signal {-exit_code}. Try again."
    code = "" if exit_code is None else f" (exit code {exit_code})"
    return f"{what} ended by a fault{code}. What it was stands on stderr."


def _send_events(to_writer: Connection, section: PromptsSection, part: RunPart | None, canaries: Canaries) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the writer hears it too, and ends this process
    try:
        for event in _read(section, part, canaries):
            to_writer.send(event)
    except InputError as error:
        to_writer.send(error)


def add_to(section: PromptsSection, writer: IngestWriter) -> tuple[Census, int]:
    """Add prompt files to a run that may be at work: first check every line, then add in short transactions.

    A kill in between leaves the first prompts added; adding the same files again adds the rest.

    Args:
        section: the files and what is asked of them.
        writer: of the ledger.

    Returns:
        What the files hold, and how many samples the run did not have.

    Raises:
        PromptFileError: with the first 20 problems of all files; nothing was added.
    """
    checked = take_census(section)
    added = 0
    for path, items in groupby(chosen_prompts(section), key=lambda item: item.path):
        source_id = writer.add_source(path, checked.sha256[path], checked.by_file[path])
        while batch := [_new_prompt(item, None) for item in islice(items, _LIVE_BATCH)]:
            added += writer.add_prompts(batch, source_id)
    return checked, added


def _path_of(item: Chosen | Problem) -> Path:
    return item.path if isinstance(item, Chosen) else Path(item.file)


def _new_prompt(chosen: Chosen, part: RunPart | None) -> NewPrompt:
    record = chosen.record
    return NewPrompt(
        prompt_key=record.key,
        dataset=record.dataset,
        prompt=pack_prompt(record.prompt),
        preview=preview(record.prompt),
        answers=chosen.answers,
        turns=chosen.turns,
        number=None if part is None else chosen.prompt_number,
        first_sample_number=None if part is None else chosen.first_sample_number,
    )
