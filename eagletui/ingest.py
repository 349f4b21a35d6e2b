"""Take prompt files into a run: everything in one transaction, or nothing if any line is wrong.

Files are streamed and no prompt is kept, so memory stays flat whatever the size.
"""

import contextlib
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from eagletui.config.run_config import RunConfig
from eagletui.config.sections import PromptsSection
from eagletui.core.errors import InputError, Problem, PromptFileError
from eagletui.core.fidelity import CANARIES
from eagletui.core.run_parts import RunPart
from eagletui.ledger.codecs import pack_prompt
from eagletui.ledger.orders import NewPrompt
from eagletui.ledger.writer_ingest import IngestWriter
from eagletui.prompts.canaries import NO_CANARIES, Canaries
from eagletui.prompts.jsonl import PromptRecord
from eagletui.prompts.preview import preview
from eagletui.prompts.seen import Place, SeenKeys
from eagletui.prompts.tables import open_prompts

MAX_PROBLEMS: Final = 20
_BATCH: Final = 500
APART_BYTES: Final = 32 * 2**20
"""Prompt files of so many bytes are read in a process of their own."""
_LIVE_BATCH: Final = 100
"""So many a transaction while an engine may wait for the ledger."""
_END_S: Final = 5.0
"""So long a process that closed its pipe may take to end."""


class Chosen(NamedTuple):
    """A prompt to add: a record and what of it fits into the limit."""

    path: Path
    record: PromptRecord
    turns: tuple[int, ...]
    answers: int
    prompt_number: int
    """1-based in the whole run."""
    first_sample_number: int
    """The same, of its first sample."""

    @property
    def samples(self) -> int:
        """Answers to buy."""
        return self.answers * len(self.turns)


@dataclass(slots=True)
class Census:
    """What prompt files hold, after the limit."""

    prompts: int = 0
    """Conversations, of the whole run."""
    unique: int = 0
    """Conversations before the limit."""
    samples: int = 0
    """Answers to buy, of the whole run."""
    by_part: Counter[int] = field(default_factory=Counter)
    """Samples per part of the run, by its number; empty for a run that is not in parts."""
    by_dataset: Counter[str] = field(default_factory=Counter)
    """Samples per data set that are asked here, in the order of first appearance."""
    datasets: set[str] = field(default_factory=set)
    """Names of all data sets in the files, whatever the limit leaves of them."""
    by_file: Counter[Path] = field(default_factory=Counter)
    """Samples per file that are asked here."""
    sha256: dict[Path, str] = field(default_factory=dict)
    """Hex digest per file."""
    repeated: int = 0
    """Prompts without an id whose content came before; they are asked once."""
    dropped: int = 0
    """Given answers that are generated anew."""

    @property
    def samples_here(self) -> int:
        """Answers to buy in this run, which may be a part of the whole."""
        return self.by_dataset.total()

    def sentences(self) -> list[str]:
        """Say what was left out, one sentence each."""
        said = []
        if self.dropped:
            noun = "answer in the files is" if self.dropped == 1 else "answers in the files are"
            said.append(f"{self.dropped} given {noun} not used: the model answers anew.")
        if self.repeated:
            noun = "prompt without an id repeats" if self.repeated == 1 else "prompts without an id repeat"
            said.append(f"{self.repeated} {noun} an earlier one and is asked once.")
        return said


def canaries_of(config: RunConfig) -> Canaries:
    """Return the canaries that a config asks for."""
    every = config.prompts.canary_every
    return Canaries(tuple(config.check.canary), every, config.run.seed) if every else NO_CANARIES


def take_census(section: PromptsSection, part: RunPart | None = None, canaries: Canaries = NO_CANARIES) -> Census:
    """Read every prompt file to its end, add nothing, and count.

    Args:
        section: the files and what is asked of them.
        part: which prompts this run takes; None for all.
        canaries: prompts that are asked in addition.

    Raises:
        PromptFileError: with the first 20 problems of all files.
    """
    counted = Census()
    problems = Problems()
    for _ in problems.without(_walk(section, counted, part, canaries)):
        pass
    problems.raise_any()
    return counted


def chosen_prompts(section: PromptsSection, canaries: Canaries = NO_CANARIES) -> Iterator[Chosen]:
    """Read the prompts that a run would take, after `take_census` has found no problem."""
    return (item for item in _walk(section, Census(), None, canaries) if isinstance(item, Chosen))


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
    for path, items in groupby(_walk(section, counted, part, canaries), key=_path_of):
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


@dataclass(slots=True)
class Problems:
    """What is wrong with prompt files: the first ones, and how many."""

    first: list[Problem] = field(default_factory=list)
    total: int = 0

    def without(self, items: Iterable[Chosen | Problem]) -> Iterator[Chosen]:
        """Take the problems out of what was read."""
        for item in items:
            if isinstance(item, Chosen):
                yield item
                continue
            self.take(item)

    def take(self, problem: Problem) -> None:
        """Take in one."""
        self.total += 1
        if len(self.first) < MAX_PROBLEMS:
            self.first.append(problem)

    def raise_any(self) -> None:
        """Raise what was taken.

        Raises:
            PromptFileError: there was any.
        """
        if self.first:
            raise PromptFileError(self.first, self.total)


def _path_of(item: Chosen | Problem) -> Path:
    return item.path if isinstance(item, Chosen) else Path(item.file)


def _walk(
    section: PromptsSection, counted: Census, part: RunPart | None, canaries: Canaries = NO_CANARIES
) -> Iterator[Chosen | Problem]:
    """Read every file, yield what to add and what is wrong, and count along."""
    takes = _picker(section)
    seen = SeenKeys()
    asked = 0
    for index, path in enumerate(section.path):
        if path in section.path[:index]:
            yield Problem(str(path), None, None, "a file that is listed twice", "each file once")
            continue
        file = open_prompts(path, section.turns)
        here = 0
        for record in file:
            if isinstance(record, Problem):
                yield record
                continue
            counted.datasets.add(record.dataset)
            earlier = seen.first(record.key, Place(index, record.line, record.has_id))
            if earlier is not None and (earlier.given or record.has_id):
                known = f'"{record.key}", which {section.path[earlier.file]}:{earlier.line} has too'
                yield Problem(str(path), record.line, "id", known, "an id of its own")
            elif earlier is not None:
                counted.repeated += 1
            elif takes(counted):
                due = [record]
                if canaries.texts:
                    due += canaries.after(asked, record.line)
                    asked += 1
                for item in due:
                    if item is not record and seen.first(item.key, Place(index, record.line, True)) is not None:
                        yield Problem(str(path), None, "id", f'"{item.key}"', "another id: canaries have these")
                        continue
                    chosen = _choose(path, item, section, counted)
                    if chosen is None:
                        break
                    place = counted.prompts
                    counted.prompts += 1
                    samples = chosen.samples
                    counted.samples += samples
                    if part is not None:
                        counted.by_part[part.number_of(place)] += samples
                        if not part.takes(place):
                            continue
                    counted.by_dataset[item.dataset] += samples
                    here += samples
                    counted.dropped += item.dropped
                    yield chosen
        if here:
            counted.by_file[path] += here
        if file.sha256 is not None:
            counted.sha256[path] = file.sha256


def _picker(section: PromptsSection) -> Callable[[Census], bool]:
    """Return what counts a conversation and tells whether the limit reaches it."""
    wanted = total = 1
    if section.pick == "spread" and section.limit is not None:
        everything = section.model_copy(update={"limit": None, "pick": "first"})
        total = max(1, sum(1 for item in _walk(everything, Census(), None) if isinstance(item, Chosen)))
        wanted = min(total, -(-section.limit // section.answers))

    def takes(counted: Census) -> bool:
        before, counted.unique = counted.unique, counted.unique + 1
        return counted.unique * wanted // total > before * wanted // total

    return takes


def _choose(path: Path, record: PromptRecord, section: PromptsSection, before: Census) -> Chosen | None:
    """Cut a prompt's answers to what the limit leaves; None when nothing is left."""
    numbers = before.prompts + 1, before.samples + 1
    answers = 1 if record.dataset == CANARIES else section.answers
    if section.limit is None:
        return Chosen(path, record, record.turns, answers, *numbers)
    left = section.limit - before.samples
    if left <= 0:
        return None
    turns = record.turns[: max(1, left // answers)]
    return Chosen(path, record, turns, min(answers, left), *numbers)


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
