"""The extraction campaign: kill -9 at random moments, then a disk that fills; the ledger and the files are the witness.

`python -m tests.soak.extract [--kills N] [--seed N]`. A real extraction of a tiny model is killed again and again until
it has died N times, over as many runs as that takes. After each death the shards of the ledger are opened and hashed,
and what was computed and has no row is at most the open shard; at the end of a run every sample has one row and its
states equal a plain forward. The disk is a tmpfs of a few MiB, mounted for the purpose; without the right to mount,
that part says so and is left out. Exit 1 if a promise broke.
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from eagletui.core.features import rows_per_shard
from eagletui.extract.choices import Choices
from eagletui.extract.gather import Progress
from eagletui.extract.run_features import RunExtractor
from eagletui.extract.shards import ShardReader, hash_file
from eagletui.extract.space import DiskSpace
from eagletui.extract.verify import verify
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer_extract import ExtractorWriter
from eagletui.runs.folder import RunFolder
from tests.extract.small_run import Ids, answer_samples, create_run, finish_run
from tests.tiny_models import HIDDEN, random_samples, save_tiny_model

SAMPLES: Final = 160
SHARD_MIB: Final = 1
UNSEALED_SHARDS: Final = 1
"""What a kill can cost: the next one begins when it is committed."""
EARLY_SHARE: Final = 0.2
"""Of deaths that come while the model is loaded; the others at any token of the next shards."""
EARLY_S: Final = 1.0
NEXT_SHARDS: Final = 4
LATER_S: Final = 0.02
"""At most so long after that token: a disk writes while the next samples are computed."""
DISK_BYTES: Final = 64 * 2**20
"""More than all features of a run: what fills it is another program."""
ROOM_AT_FIRST: Final = 4 * 2**20
LEFT_BY_THEFT: Final = 0
LOOKS_BEFORE_THEFT: Final = 25
"""One comes before each record, of which ten fill a shard."""
DEADLINE_S: Final = 120.0


class Broken(Exception):
    """A promise was not kept."""


@dataclass
class Campaign:
    """Figures over all runs that were killed."""

    kills: int = 0
    runs: int = 0
    at: Counter[str] = field(default_factory=Counter)
    """Deaths by how far the extraction was."""
    left_over: int = 0
    """Temporary files and shards without a row that deaths left, all of them removed at the next start."""
    redone_rows: list[int] = field(default_factory=list)
    """Tokens that were computed and not committed, by death."""


def main() -> None:
    """Run the campaign and print its figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--seed", type=int, default=7)
    asked = options.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="soak-extract-") as place:
        model = save_tiny_model(Path(place) / "model", "llama")
        campaign = kill_at_random(Path(place), model, asked.kills, random.Random(asked.seed))
        filled = fill_the_disk(Path(place), model)
    _print(campaign, filled, asked.seed)


def kill_at_random(place: Path, model: Path, kills: int, dice: random.Random) -> Campaign:
    """Kill extractions until so many have died.

    Args:
        place: an empty folder for runs.
        model: the target model.
        kills: deaths wanted.
        dice: chooses the moments.

    Raises:
        Broken: a row is there twice, a shard cannot be read, or more than what was not sealed had to be redone.
    """
    campaign = Campaign()
    while campaign.kills < kills:
        folder = _new_run(place / f"run-{campaign.runs}", model)
        finish_run(folder)
        while campaign.kills < kills and _waiting(folder):
            _live_until(folder, _moment(dice), campaign)
            _look(folder)
        last = _start(folder)
        last.process.join(DEADLINE_S)
        _require(last.process.exitcode == 0, f"an extraction left alone ended with {last.process.exitcode}")
        _whole(folder, model)
        campaign.runs += 1
    return campaign


def fill_the_disk(place: Path, model: Path) -> dict[str, Any] | None:
    """Let a small disk fill, twice: seen before a write, and between look and write; the open shard waits.

    Args:
        place: a folder for the run and the mount.
        model: the target model.

    Returns:
        figures; None where nothing may be mounted here.

    Raises:
        Broken: something was lost, or the extraction did not pause or go on.
    """
    disk = place / "disk"
    disk.mkdir()
    with _mounted(disk) as is_mounted:
        if not is_mounted:
            return None
        folder = _new_run(place / "run-on-a-full-disk", model, when="live")
        finish_run(folder)
        (disk / "features").mkdir()
        folder.features_dir.symlink_to(disk / "features")
        filler = disk / "filler"
        _fill(filler, leave=ROOM_AT_FIRST)
        life = _start(folder, _Thief(filler, after_looks=LOOKS_BEFORE_THEFT))
        pauses = []
        for pause in (1, 2):
            _until(lambda pause=pause: _events(folder).count("disk_low") == pause, life)  # type: ignore[misc]
            pauses.append(_committed(folder))
            growing = len(list(disk.glob("features/shards/*.tmp")))
            _require(growing <= 1, f"{growing} shards are open at the same time")
            filler.unlink()
        life.process.join(DEADLINE_S)
        _require(life.process.exitcode == 0, f"on a full disk the extraction ended with {life.process.exitcode}")
        _require(life.samples == SAMPLES, f"{life.samples} samples were computed, not {SAMPLES}: work was lost")
        _whole(folder, model)
        return {"shards_at_pauses": pauses, "shards": _committed(folder), "computed_twice": life.samples - SAMPLES}


@dataclass(frozen=True)
class _Life:
    process: BaseProcess
    shared: Any
    """Samples and tokens computed, written by the process."""

    @property
    def samples(self) -> int:
        return int(self.shared[0])

    @property
    def rows(self) -> int:
        return int(self.shared[1])


@dataclass
class _Thief:
    """A disk on which another program takes all room between a look and the write that follows it."""

    filler: Path
    after_looks: int
    looks: int = 0

    def statvfs(self, folder: Path) -> os.statvfs_result:
        seen = os.statvfs(folder)
        self.looks += seen.f_bavail * seen.f_frsize > ROOM_AT_FIRST
        if self.looks == self.after_looks and not self.filler.exists():
            _fill(self.filler, leave=LEFT_BY_THEFT)
        return seen


def _start(folder: RunFolder, thief: _Thief | None = None) -> _Life:
    context = multiprocessing.get_context("fork")
    shared = context.Array(ctypes.c_long, 2, lock=False)
    process = context.Process(target=_extract, args=(folder, shared, thief))
    process.start()
    return _Life(process, shared)


def _extract(folder: RunFolder, shared: Any, thief: _Thief | None) -> None:
    def step(progress: Progress) -> None:
        shared[0], shared[1] = progress.samples, progress.rows

    space = None if thief is None else DiskSpace(thief.filler.parent, 0, thief.statvfs)
    choices = Choices(follow=thief is not None, space=space, step=step)
    with (
        RoleLock(folder, "extractor"),
        LedgerReader(folder.ledger_path) as reader,
        ExtractorWriter(folder.ledger_path) as writer,
    ):
        RunExtractor(folder, reader, writer, choices, threading.Event()).run()


class _Moment(NamedTuple):
    rows: int
    """Computed before."""
    later_s: float


def _moment(dice: random.Random) -> _Moment:
    if dice.random() < EARLY_SHARE:
        return _Moment(0, dice.uniform(0, EARLY_S))
    capacity = rows_per_shard(SHARD_MIB, HIDDEN, "float32")
    return _Moment(dice.randrange(1, NEXT_SHARDS * capacity), dice.uniform(0, LATER_S))


def _live_until(folder: RunFolder, moment: _Moment, campaign: Campaign) -> None:
    """Start an extraction and kill it at a moment; nothing is counted where it ends before."""
    before = _committed(folder)
    life = _start(folder)
    while life.rows < moment.rows and life.process.is_alive():
        life.process.join(0.001)
    life.process.join(moment.later_s)
    if life.process.exitcode is not None:
        _require(life.process.exitcode == 0, f"an extraction ended with {life.process.exitcode}")
        return
    life.process.kill()
    life.process.join()
    after = _committed(folder)
    campaign.kills += 1
    campaign.at["before the first sample" if not life.rows else "at work"] += 1
    redone = life.rows - (after.rows - before.rows)
    campaign.redone_rows.append(redone)
    allowed = UNSEALED_SHARDS * rows_per_shard(SHARD_MIB, HIDDEN, "float32")
    _require(redone <= allowed, f"{redone} tokens are to be redone, more than the open shard of {allowed}")
    shards = folder.features_dir / "shards"
    files = len(list(shards.iterdir())) if shards.is_dir() else 0
    campaign.left_over += files - after.shards
    _require(files - after.shards <= 1, f"{files - after.shards} files without a row: one is open at a time")


class _Committed(NamedTuple):
    shards: int
    rows: int


def _committed(folder: RunFolder) -> _Committed:
    with LedgerReader(folder.ledger_path) as reader:
        shards = reader.shards()
    return _Committed(len(shards), sum(shard.rows for shard in shards))


def _look(folder: RunFolder) -> None:
    """Open every committed shard as a trainer would, and look for rows that are there twice."""
    seen: Counter[str] = Counter()
    with LedgerReader(folder.ledger_path) as reader:
        shards = reader.shards()
    for shard in shards:
        file = folder.features_dir / shard.path
        _require(file.is_file(), f"{shard.path} has a row and no file")
        _require((file.stat().st_size, hash_file(file)) == (shard.bytes, shard.xxh3), f"{shard.path} is not whole")
        with ShardReader(file) as opened:
            seen.update(opened.keys)
    _require(not [key for key, times in seen.items() if times > 1], f"samples are there twice: {seen.most_common(3)}")


def _whole(folder: RunFolder, model: Path) -> None:
    """Ask for every sample once, in files that verify finds good, and for nothing else."""
    _look(folder)
    verdict = verify(folder.features_dir, model, device="cpu")
    # The ids are random, and on the small disk the features lie apart from their ledger, which a warning says.
    failed = [check for check in verdict.checks if not check.ok and check.name != "sampled" and check.level != "warn"]
    _require(not failed, f"verify: {failed}")
    _require(verdict.samples == SAMPLES, f"{verdict.samples} samples at the end, not {SAMPLES}")
    _require(not _waiting(folder), f"{_waiting(folder)} samples have no features at the end")


def _waiting(folder: RunFolder) -> int:
    with LedgerReader(folder.ledger_path) as reader:
        return len(reader.to_extract(SAMPLES))


def _events(folder: RunFolder) -> list[str]:
    with LedgerReader(folder.ledger_path) as reader:
        return [event.kind for event in reader.events()]


def _new_run(path: Path, model: Path, *, when: str = "after") -> RunFolder:
    folder = create_run(path, model, shard_mib=SHARD_MIB, when=when)
    dice = random.Random(7)
    lengths = tuple(max(3, min(400, round(dice.lognormvariate(4.3, 0.8)))) for _ in range(SAMPLES))
    ids: list[Ids] = [(row[: len(row) // 3], row[len(row) // 3 :]) for row in random_samples(lengths)]
    answer_samples(folder, ids)
    return folder


@contextmanager
def _mounted(folder: Path) -> Iterator[bool]:
    """Mount a small tmpfs; yields False where that is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "eagletui-soak", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        yield False
        return
    if mounted.returncode:
        print(f"No small disk can be mounted here: {mounted.stderr.strip()}")
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(filler: Path, *, leave: int) -> None:
    """Take all room of a disk but so many bytes."""
    status = os.statvfs(filler.parent)
    filler.write_bytes(bytes(status.f_bavail * status.f_frsize - leave))


def _until(condition: Callable[[], bool], life: _Life) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        _require(life.process.is_alive(), f"the extraction ended with {life.process.exitcode} instead of waiting")
        _require(time.monotonic() < deadline, "the extraction did not come to a pause")
        time.sleep(0.02)


def _require(kept: bool, otherwise: str) -> None:
    if not kept:
        raise Broken(otherwise)


def _print(campaign: Campaign, filled: dict[str, Any] | None, seed: int) -> None:
    capacity = rows_per_shard(SHARD_MIB, HIDDEN, "float32")
    redone = [rows / capacity for rows in campaign.redone_rows]
    at = ", ".join(f"{count} {where}" for where, count in campaign.at.items())
    print(f"{campaign.kills} deaths in {campaign.runs} runs of {SAMPLES} samples (seed {seed}): {at}")
    print("no row was there twice, no shard of the ledger was unreadable, every run ended whole")
    print(
        f"redone after a death, in shards: mean {statistics.mean(redone):.2f}, worst {max(redone):.2f} "
        f"(the open one: {UNSEALED_SHARDS})"
    )
    print(f"files without a row, left by {campaign.left_over} deaths and removed at the next start")
    if filled is None:
        print("the full disk was left out")
    else:
        first, second = filled["shards_at_pauses"]
        print(
            f"full disk: paused after {first.shards} shards, and after {second.shards} when the room was taken between "
            f"look and write; {filled['shards'].shards} at the end, nothing lost, nothing computed twice"
        )
    print(
        json.dumps(
            {
                "name": "extract",
                "kills": campaign.kills,
                "runs": campaign.runs,
                "deaths": campaign.at,
                "duplicates": 0,
                "unreadable": 0,
                "left_over": campaign.left_over,
                "redone_shards": {"mean": round(statistics.mean(redone), 3), "worst": round(max(redone), 3)},
                "full_disk": filled,
            }
        )
    )


if __name__ == "__main__":
    main()
