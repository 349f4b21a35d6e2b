"""What prompt files hold and what of it a run takes: read, checked and counted, and nothing kept of it.

Files are streamed, so memory stays flat whatever the size.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from eagletui.config.run_config import RunConfig
from eagletui.config.sections import PromptsSection
from eagletui.core.errors import Problem, PromptFileError
from eagletui.core.fidelity import CANARIES
from eagletui.core.run_parts import RunPart
from eagletui.prompts.canaries import NO_CANARIES, Canaries
from eagletui.prompts.jsonl import PromptRecord
from eagletui.prompts.seen import Place, SeenKeys
from eagletui.prompts.tables import open_prompts

MAX_PROBLEMS: Final = 20


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
    for _ in problems.without(walk(section, counted, part, canaries)):
        pass
    problems.raise_any()
    return counted


def chosen_prompts(section: PromptsSection, canaries: Canaries = NO_CANARIES) -> Iterator[Chosen]:
    """Read the prompts that a run would take, after `take_census` has found no problem."""
    return (item for item in walk(section, Census(), None, canaries) if isinstance(item, Chosen))


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


def walk(
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
        total = max(1, sum(1 for item in walk(everything, Census(), None) if isinstance(item, Chosen)))
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
