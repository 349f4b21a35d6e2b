"""Join runs that were bought apart, with all evidence, verdicts and money: the job behind `eagletui merge`.

The joined run is made in a folder of its own and gets its name at the very end, so a kill leaves the runs as they
were. Labels and findings depend on all samples of an endpoint: rebuild the joined run to have those of the whole.
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from eagletui.config.changes import changed_fields
from eagletui.config.run_config import RunConfig, load_config, to_json
from eagletui.config.toml import to_toml
from eagletui.core.errors import InputError, RunError
from eagletui.core.money import pico_to_usd_string
from eagletui.core.run_parts import RunPart
from eagletui.ledger.create import create_ledger
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.merging import Source, lay_together
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import RunRow, ShardRow
from eagletui.ledger.writer import LedgerWriter
from eagletui.runs.folder import RunFolder, runs_root, write_config_file
from eagletui.runs.making import staged
from eagletui.runs.merged import mark_merged, refuse_merged
from eagletui.runs.setting_aside import publish

if TYPE_CHECKING:
    from eagletui.extract.acknowledged import AcknowledgedShard
    from eagletui.extract.storage import Storage

_SAME_IN_RUNS: Final = ("model.id", "model.format", "model.template_kwargs", "sampling.", "provider.kind")
"""Fields of the config that runs must share to be joined; files are compared by their hashes, not their paths."""

_SAME_IN_PARTS: Final = (*_SAME_IN_RUNS, "run.seed", "prompts.turns", "prompts.answers", "prompts.limit")


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge made."""

    folder: RunFolder
    parts: tuple[str, ...]
    """Names of the runs that were joined, in order."""
    missing_parts: tuple[str, ...]
    """Parts of the whole that were not given; empty where the runs are no parts."""
    samples: int
    attempts: int
    shards: int
    settled_pico: int
    unattributed_pico: int
    stop_at_pico: int
    cap_pico: int


class _Joined(NamedTuple):
    """A run that is to be joined, as it stands."""

    folder: RunFolder
    config: RunConfig
    row: RunRow
    sources: frozenset[str]
    """SHA-256 of its prompt files, hex."""
    shards: tuple[ShardRow, ...]

    @property
    def part(self) -> RunPart | None:
        return None if self.config.run.part is None else RunPart.parse(self.config.run.part)


def merge_runs(folders: Sequence[RunFolder], out: str) -> Merged:
    """Join runs into a new one; they are left as they are, with a note of where their samples went.

    Args:
        folders: at least two; no worker of any may be alive, and the cost of each request must be known.
        out: name of the new run.

    Raises:
        InputError: fewer than two runs, or one is given twice.
        LockedError: a worker of one is alive.
        RunError: they overlap, differ in what they sampled or with which tokenizer, or `out` exists.
    """
    final = RunFolder(runs_root() / out)
    if final.path.exists():
        raise RunError(f"--out: {final.path} exists. Choose another name, or remove it first.")
    _refuse_repeated(folders)
    with ExitStack() as stack:
        for folder in folders:
            refuse_merged(folder)
            stack.enter_context(RoleLock(folder.path, "engine"))
            stack.enter_context(RoleLock(folder.path, "extractor"))
        joined = [_read(folder) for folder in folders]
        same_numbers = _are_parts(joined)
        _refuse_different(joined, same_numbers=same_numbers)
        if same_numbers:
            joined.sort(key=lambda one: one.part.number if one.part else 0)
        stage = stack.enter_context(staged(out))
        config = _config(joined, out)
        _copy_surroundings(joined[0].folder, stage, config)
        first = joined[0].row
        create_ledger(
            stage.ledger_path,
            name=out,
            config_json=to_json(config),
            model_id=first.model_id,
            format=first.format,
            stop_at_pico=sum(one.row.stop_at_pico for one in joined),
            cap_pico=sum(one.row.cap_pico for one in joined),
            max_in_flight=max(one.row.max_in_flight for one in joined),
            tokenizer_hash=first.tokenizer_hash,
            template_hash=first.template_hash,
        )
        sources = _sources(joined)
        laid = lay_together(stage.ledger_path, sources, same_numbers=same_numbers)
        _join_features(joined, sources, stage, out)
        names = tuple(one.folder.name for one in joined)
        with LedgerWriter(stage.ledger_path) as writer:
            writer.event("info", "ctl", "merged", f"Made of {', '.join(names)}.")
            books = writer.books()
        for folder in folders:
            mark_merged(folder, final)
        publish(stage, final)
    return Merged(
        folder=final,
        parts=names,
        missing_parts=_missing(joined) if same_numbers else (),
        samples=laid.samples,
        attempts=laid.attempts,
        shards=laid.shards,
        settled_pico=books.settled_pico,
        unattributed_pico=books.unattributed_pico,
        stop_at_pico=books.stop_at_pico,
        cap_pico=books.cap_pico,
    )


def _refuse_repeated(folders: Sequence[RunFolder]) -> None:
    if len(folders) < 2:
        raise InputError("found one run, expected two or more to join.")
    seen: set[Path] = set()
    for folder in folders:
        path = folder.path.resolve()
        if path in seen:
            raise InputError(f"{folder.name}: given twice; expected each run once. Nothing was merged.")
        seen.add(path)


def _read(folder: RunFolder) -> _Joined:
    """Read what a run is, and refuse one whose money is not known to the last request."""
    LedgerWriter(folder.ledger_path).close()  # brings a ledger of an earlier version to the present one
    with LedgerReader(folder.ledger_path) as reader:
        snapshot, row = reader.snapshot(), reader.run()
        books = snapshot.spend.books
        if books.open_pico or snapshot.states.get("in_flight", 0):
            raise RunError(
                f"{folder.name}: requests are open whose cost is not known yet ({len(reader.open_attempts()):,}). "
                f"Let the run find out and end first: eagletui run {folder.argument} --headless"
            )
        sources = frozenset(source.sha256 for source in reader.sources())
        return _Joined(folder, load_config(folder.config_path), row, sources, tuple(reader.shards()))


def _are_parts(joined: Sequence[_Joined]) -> bool:
    """Tell whether the runs are parts of one whole, and refuse parts that cannot be of the same."""
    parts = [one.part for one in joined]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len({part.of for part in known}) > 1:
        return False
    first = joined[0]
    for one in joined[1:]:
        if one.sources != first.sources:
            raise RunError(
                f"{one.folder.name} and {first.folder.name} are parts of one run by their configs, but were made from "
                "other prompt files (their SHA-256 differ), so the same prompt can stand in both. Nothing was merged."
            )
    for number in sorted({part.number for part in known}):
        owners = [one.folder.name for one in joined if one.part is not None and one.part.number == number]
        if len(owners) > 1:
            raise RunError(f"{' and '.join(owners)} are the same part, {number}/{known[0].of}. Nothing was merged.")
    return True


def _refuse_different(joined: Sequence[_Joined], *, same_numbers: bool) -> None:
    """Refuse runs whose samples do not belong together."""
    first = joined[0]
    for one in joined[1:]:
        pairs: list[tuple[str, object, object]] = [
            ("tokenizer hash", first.row.tokenizer_hash, one.row.tokenizer_hash),
            ("chat template hash", first.row.template_hash, one.row.template_hash),
            ("output format", first.row.format, one.row.format),
        ]
        old, new = first.config.model_dump(), one.config.model_dump()
        asked = _SAME_IN_PARTS if same_numbers else _SAME_IN_RUNS
        for field in changed_fields(first.config, one.config):
            if field.startswith(asked):
                pairs.append((f"[{field.replace('.', '] ', 1)}", _at(old, field), _at(new, field)))
        differing = [f"  {name}: {a} there, {b} here" for name, a, b in pairs if a != b]
        if differing:
            raise RunError(
                f"{one.folder.name} differs from {first.folder.name} in what belongs to every sample:\n"
                + "\n".join(differing)
                + "\nNothing was merged."
            )


def _at(values: object, field: str) -> object:
    for key in field.split("."):
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _missing(joined: Sequence[_Joined]) -> tuple[str, ...]:
    parts = [one.part for one in joined if one.part is not None]
    of = parts[0].of
    return tuple(f"{number}/{of}" for number in range(1, of + 1) if number not in {part.number for part in parts})


def _config(joined: Sequence[_Joined], out: str) -> RunConfig:
    """The first run's config, under the new name and with all the money."""
    first = joined[0].config
    spend = {
        "stop_at_usd": Decimal(pico_to_usd_string(sum(one.row.stop_at_pico for one in joined))),
        "cap_usd": Decimal(pico_to_usd_string(sum(one.row.cap_pico for one in joined))),
    }
    return first.model_copy(
        update={
            "run": first.run.model_copy(update={"name": out, "part": None}),
            "spend": first.spend.model_copy(update=spend),
        }
    )


def _copy_surroundings(first: RunFolder, stage: RunFolder, config: RunConfig) -> None:
    shutil.copytree(first.tokenizer_dir, stage.tokenizer_dir)
    shutil.copyfile(first.vocabulary_path, stage.vocabulary_path)
    write_config_file(stage, to_toml(config))


def _sources(joined: Sequence[_Joined]) -> list[Source]:
    """Name each ledger, and number the shards through."""
    sources: list[Source] = []
    number = 0
    for one in joined:
        paths: dict[str, str] = {}
        for shard in one.shards:
            paths[shard.path] = f"shards/{number:06d}.safetensors"
            number += 1
        sources.append(Source(one.folder.name, one.folder.ledger_path, paths))
    return sources


def _join_features(joined: Sequence[_Joined], sources: Sequence[Source], stage: RunFolder, out: str) -> None:
    """Bring the shards, by hard link where the disk is the same, and write their manifest and list.

    What a trainer has acknowledged stays acknowledged: it is deleted, and computed again it would be read twice.
    """
    if not any(one.shards for one in joined):
        return
    from eagletui.extract.acknowledged import is_removed, read_acknowledged, write_acknowledged
    from eagletui.extract.ledger_source import describe_shard
    from eagletui.extract.manifest import ListedShard, read_manifest, require_same, write_manifest, write_shard_list
    from eagletui.extract.shards import MARK
    from eagletui.extract.storage import open_storage

    manifest = None
    listed: list[ListedShard] = []
    acknowledged: list[AcknowledgedShard] = []
    (stage.features_dir / "shards").mkdir(mode=0o700, exist_ok=True)
    for one, source in zip(joined, sources, strict=True):
        if not one.shards:
            continue
        theirs = read_manifest(one.folder.features_dir)
        storage = open_storage(one.folder.features_dir, theirs.storage)
        theirs = replace(theirs, source=f"run {out}", storage=None)
        if manifest is None:
            manifest = theirs
        require_same(one.folder.features_dir, manifest, theirs)
        gone = read_acknowledged(one.folder.features_dir)
        for shard in one.shards:
            path = source.shard_paths[shard.path]
            if is_removed(one.folder.features_dir, shard.path):
                gone[shard.path] = describe_shard(one.folder.ledger_path, shard.path)
            if shard.path in gone:
                acknowledged.append(replace(gone[shard.path], path=path))
                continue
            _bring(storage, stage.features_dir / path, shard)
            if (one.folder.features_dir / f"{shard.path}{MARK}").exists():
                (stage.features_dir / f"{path}{MARK}").touch(mode=0o600)
            listed.append(ListedShard(path, shard.samples, shard.rows, shard.bytes, shard.xxh3))
    if manifest is not None:
        write_acknowledged(stage.features_dir, acknowledged)
        write_manifest(stage.features_dir, manifest)
        write_shard_list(stage.features_dir, listed)


def _bring(storage: "Storage", new: Path, shard: ShardRow) -> None:
    """Link or copy one shard, and see that it is what its ledger says.

    Raises:
        RunError: it is missing, or has another size or, where it had to be copied, another hash.
    """
    size = storage.size(shard.path)
    if size is None:
        raise RunError(f"{shard.path}: is not there, and the ledger counts on it. Nothing was merged.")
    if size != shard.bytes:
        raise RunError(f"{shard.path}: found {size:,} bytes, expected {shard.bytes:,}. Nothing was merged.")
    with storage.fetched(shard.path) as old:
        if storage.url is None:
            with suppress(OSError):  # another disk: copy
                os.link(old, new)
                return
        from eagletui.extract.shards import hash_file

        shutil.copyfile(old, new)
    if (found := hash_file(new)) != shard.xxh3:
        raise RunError(f"{shard.path}: found xxh3 {found}, expected {shard.xxh3}. Nothing was merged.")
