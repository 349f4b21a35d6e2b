"""Check a features folder: files, ids, values, and the streams against the model they claim to come from."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import torch

from eagletui.core.checks import Check, Faults, Verdict
from eagletui.core.errors import RunError
from eagletui.core.features import sampled_mask
from eagletui.extract import widened
from eagletui.extract.acknowledged import gone_shards
from eagletui.extract.checks import Comparing, judge, spread_over, worth_comparing
from eagletui.extract.manifest import (
    SHARD_LIST,
    ListedShard,
    Manifest,
    first_difference,
    read_manifest,
    read_shard_list,
)
from eagletui.extract.shards import Record, ShardReader, hash_file
from eagletui.extract.source_file import SourceFile, find_source
from eagletui.extract.storage import open_storage
from eagletui.extract.target_tokenizer import compare_tokenizer
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_features import FeaturesReader, StoredFeature
from eagletui.ledger.rows import RunRow
from eagletui.models.load import TargetModel, load_target
from eagletui.runs.folder import RunFolder

_SEED: Final = 7

_UNHELD: Final = "ids were held to no other record of them"


def features_folder(given: Path) -> Path:
    """Return the features folder of a path that may be a run folder."""
    inside = given / "features"
    return inside if inside.is_dir() and not (given / "manifest.json").exists() else given


def run_of(folder: Path) -> RunFolder | None:
    """Return the run whose features folder this is, also where that is a link; None where it is no run's.

    A folder that was moved aside in a run, or made there of a file, is not held to the ledger: that counts others.
    """
    for parent in dict.fromkeys((folder.absolute().parent, folder.resolve().parent)):
        run = RunFolder(parent)
        if run.ledger_path.is_file() and run.features_dir.is_dir() and run.features_dir.samefile(folder):
            return run
    return None


def verify(
    folder: Path,
    model: Path,
    *,
    compared: int | None = None,
    device: str = "auto",
    on_shard: Callable[[int, int], None] = lambda _done, _of: None,
) -> Verdict:
    """Check every file and value, and the streams of some samples.

    Args:
        folder: the features folder. Where it is a run's, the ledger beside it is the truth about shards and ids.
        model: the target model.
        compared: how many samples to run a fresh forward over, spread over the shards; None: see `worth_comparing`.
        device: where to run it.
        on_shard: told after each shard: how many are read, out of how many.

    Raises:
        RunError: it is not a features folder.
        ModelError: the model does not load.
    """
    manifest = read_manifest(folder)
    target = load_target(model, dtype=manifest.dtype, device=device)
    same_sizes = (target.hidden_size, target.num_layers) == (manifest.hidden_size, manifest.num_layers)
    with ExitStack() as stack:
        comparing: Comparing | None = None
        if same_sizes:
            comparing = stack.enter_context(
                closing(Comparing(target, manifest.layers, was_fp8=manifest.stored == "fp8"))
            )
            comparing.capture.widens = comparing.capture.widens and widened.SAID in manifest.capture
        of_run = run_of(folder)
        run: RunRow | None = None
        if of_run is not None:
            with LedgerReader(of_run.ledger_path) as reader:
                run = reader.run()
                listed = tuple(ListedShard(s.path, s.samples, s.rows, s.bytes, s.xxh3) for s in reader.shards())
        else:
            listed = read_shard_list(folder)
        gone = gone_shards(folder, (shard.path for shard in listed))
        listed = tuple(shard for shard in listed if shard.path not in gone)
        reading = _Reading(folder, manifest, comparing, gone)
        reading.positions = target.positions
        if of_run is None:
            reading.source = find_source(folder, manifest)
        else:
            reading.ledger = stack.enter_context(FeaturesReader(of_run.ledger_path))
            reading.compare_list(listed)
            reading.count_waiting(reading.ledger.waiting())
        total = sum(shard.samples for shard in listed)
        count = worth_comparing(total, len(listed)) if compared is None else min(compared, total)
        picked = spread_over([shard.samples for shard in listed], count, _SEED)
        before = 0
        for done, shard in enumerate(listed, 1):
            reading.read(shard, {number - before for number in picked})
            before += shard.samples
            on_shard(done, len(listed))
    checks = [
        *reading.checks(listed),
        _manifest(manifest, target, run),
        *_tokenizer(manifest, target, of_run or RunFolder(folder.absolute().parent)),
        *_against_model(manifest, target, comparing, is_any_there=bool(listed)),
    ]
    rows = sum(shard.rows for shard in listed)
    found = len(comparing.found) if comparing else 0
    looked_at = tuple(shard.path for shard in listed)
    return Verdict(tuple(checks), len(reading.seen), rows, len(listed), found, looked_at)


class _Reading:
    """Reads shard after shard and gathers what is wrong with them."""

    def __init__(self, folder: Path, manifest: Manifest, comparing: Comparing | None, gone: Collection[str]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.storage = open_storage(folder, manifest.storage)
        self.ledger: FeaturesReader | None = None
        self.source: SourceFile | str | None = None
        self.comparing = comparing
        self.seen: Counter[str] = Counter()
        self.gone = gone
        fine = "every listed shard has its size and hash, and no other is there"
        if gone:
            fine += f"; a trainer has acknowledged {len(gone)} more, which are not checked and deleted"
        self._files = Faults("files", fine)
        self._layout = Faults("layout", "offsets, shapes and types fit together and to the manifest")
        self._ids = Faults("ids", "ids lie in the vocabulary, masks are 0 or 1, no sample is there twice")
        self._values = Faults("values", "all states are finite and no row is zero")
        self.positions: int | None = None
        self._long = Faults("positions", "", level="warn")
        self._ledger = Faults("ledger", "ids and masks are those of the ledger")
        self._source = Faults("source", "")
        self._list = Faults("list", f"{SHARD_LIST} is the copy of the ledger that it should be", level="warn")
        self._stale = Faults("stale", "no sample has got other ids since", level="warn")

    def read(self, shard: ListedShard, picked: set[int]) -> None:
        """Read one shard; keep the samples at the picked positions."""
        size = self.storage.size(shard.path)
        if size is None:
            self._files.add(f"{shard.path} is missing")
            return
        with self.storage.fetched(shard.path) as file:
            self._read_file(shard, file, size, picked)

    def _read_file(self, shard: ListedShard, file: Path, size: int, picked: set[int]) -> None:
        reader = self._open(shard, file, size)
        if reader is None:
            return
        with reader:
            for position, expected in self._wanted(shard, reader):
                record = reader.record(position)
                self.seen[record.key] += 1
                self._check_ids(record, shard.path)
                if self.positions is not None and len(record.token_ids) > self.positions:
                    tokens = f"{len(record.token_ids):,} tokens, and the model has {self.positions:,} positions"
                    self._long.add(f"{record.key} has {tokens}")
                if expected is not None:
                    self._check_recorded(record, expected)
                if isinstance(self.source, SourceFile):
                    self._check_source(record, self.source)
                is_finite = self._check_values(record, shard.path)
                if is_finite and position in picked and self.comparing is not None:
                    self.comparing.add(record)

    def _like_shards(self) -> set[str]:
        """List what is no shard by its name, but what a trainer that takes every safetensors file would train on."""
        return {f"shards/{file.name}" for file in (self.folder / "shards").glob("*.safetensors")}

    def count_waiting(self, samples: int) -> None:
        """Say how many samples of the run are not here, which is no fault."""
        if samples:
            self._ledger.fine += f"; {samples:,} of the run's samples have no features yet"

    def compare_list(self, listed: tuple[ListedShard, ...]) -> None:
        """Hold the list of a run's shards to the ledger, whose copy it is: who reads the folder alone goes by it."""
        try:
            told = {shard.path: shard for shard in read_shard_list(self.folder)}
        except RunError as error:
            self._list.add(str(error))
            return
        for shard in listed:
            if told.get(shard.path) != shard:
                how = "is missing from" if shard.path not in told else "is another in"
                self._list.add(f"{shard.path} {how} {SHARD_LIST}; the next extract writes it anew from the ledger")

    def checks(self, listed: tuple[ListedShard, ...]) -> Iterator[Check]:
        """Yield the answers."""
        there = self.storage.paths() | self._like_shards()
        for path in sorted(there - {shard.path for shard in listed} - set(self.gone)):
            self._files.add(f"{path} is not listed")
        if left := there & set(self.gone):
            self._files.fine += f" but for {len(left)}, which the next extract deletes"
        for key, times in self.seen.items():
            if times > 1:
                self._ids.add(f"{key} is there {times} times")
        if not listed and not self.gone:
            self._files.add("there are no shards")
        for faults in (self._files, self._layout, self._ids, self._values):
            yield faults.check()
        if self._long.count:
            yield self._long.check()
        if self.ledger is not None:
            yield self._ledger.check()
            yield self._list.check()
            yield self._stale.check()
        elif self.manifest.is_of_run:
            where = f"no ledger of {self.manifest.source} lies beside this folder"
            yield Check("ledger", False, "warn", f"{where}: {_UNHELD}")
        if isinstance(self.source, SourceFile):
            of = f"{len(self.seen)} of its {len(self.source)} samples"
            self._source.fine = f"ids and masks of {of} are those of {self.source.path}"
            yield self._source.check()
        elif self.source is not None:
            yield Check("source", False, "warn", f"{self.source}: {_UNHELD}")

    def _open(self, shard: ListedShard, file: Path, size: int) -> ShardReader | None:
        if size != shard.bytes:
            self._files.add(f"{shard.path} has {size} bytes instead of {shard.bytes}")
        elif hash_file(file) != shard.xxh3:
            self._files.add(f"{shard.path} was changed after it was sealed: its hash differs")
        try:
            reader = ShardReader(file)
        except RunError as error:
            self._layout.add(str(error))
            return None
        manifest = self.manifest
        found = f"{reader.stored} of {reader.dtype}, width {reader.shapes['hidden_states'][2]}"
        stated = f"{manifest.stored} of {manifest.dtype}, width {manifest.hidden_size}"
        if found != stated:
            self._layout.add(f"{shard.path} holds {found}, the manifest states {stated}")
        if (len(reader.keys), reader.rows) != (shard.samples, shard.rows):
            here = f"{len(reader.keys)} samples of {reader.rows} tokens"
            self._layout.add(f"{shard.path} holds {here}, not {shard.samples} of {shard.rows}")
        if shard.sample_ids and shard.sample_ids != tuple(reader.keys):
            differing = first_difference(shard.sample_ids, reader.keys)
            self._layout.add(f"{SHARD_LIST} has other sample_ids than {shard.path}: {differing}")
        return reader

    def _wanted(self, shard: ListedShard, reader: ShardReader) -> Iterator[tuple[int, StoredFeature | None]]:
        """Yield positions to look at: in a run, those that no later shard replaced."""
        if self.ledger is None:
            yield from ((position, None) for position in range(len(reader.keys)))
            return
        for feature in self.ledger.features_of(shard.path):
            if feature.position < len(reader.keys):
                yield feature.position, feature
            else:
                self._ledger.add(f"{feature.sample_key} is not in {shard.path}")

    def _check_ids(self, record: Record, path: str) -> None:
        ids, mask = record.token_ids, record.loss_mask
        for name, tensor in (("ids", ids), ("a mask", mask)):
            if tensor.dtype != torch.int64:
                self._layout.add(f"{record.key} in {path} has {name} of {tensor.dtype}, expected torch.int64")
        if int(ids.min()) < 0 or int(ids.max()) >= self.manifest.vocab_size:
            self._ids.add(f"{record.key} in {path} holds an id outside the vocabulary")
        if not bool(((mask == 0) | (mask == 1)).all()) or not bool(mask.any()):
            self._ids.add(f"{record.key} in {path} has a mask that is not of 0 and 1, or marks nothing")

    def _check_recorded(self, record: Record, expected: StoredFeature) -> None:
        if not expected.is_current:
            self._stale.add(f"{record.key} has got other ids since: extract again")
            return
        prompt, output = tuple(expected.prompt_ids or ()), tuple(expected.output_ids or ())
        same_ids = record.token_ids.tolist() == [*prompt, *output]
        same_mask = record.loss_mask.tolist() == list(sampled_mask(len(prompt), len(output)))
        if record.key != expected.sample_key:
            self._ledger.add(f"{record.key} lies where the ledger has {expected.sample_key}")
        elif not same_ids:
            self._ledger.add(f"{record.key} has other ids than the ledger")
        elif not same_mask:
            self._ledger.add(f"{record.key} has another mask than the ledger")

    def _check_source(self, record: Record, source: SourceFile) -> None:
        expected = source.sample(record.key)
        if expected is None:
            self._source.add(f"{record.key} is not in {source.path}")
        elif record.token_ids.tolist() != list(expected.token_ids):
            self._source.add(f"{record.key} has other ids than {source.path}")
        elif record.loss_mask.tolist() != list(expected.loss_mask):
            self._source.add(f"{record.key} has another mask than {source.path}")

    def _check_values(self, record: Record, path: str) -> bool:
        states = record.hidden_states
        finite = bool(torch.isfinite(states).all())
        if not finite:
            self._values.add(f"{record.key} in {path} has states that are not finite")
        zero = (states == 0).all(dim=-1).any(dim=-1).nonzero().flatten().tolist()
        if zero:
            self._values.add(
                f"{record.key} in {path} has {len(zero)} rows with a stream of zeros, the first is {zero[0]}"
            )
        return finite


def _manifest(manifest: Manifest, target: TargetModel, run: RunRow | None) -> Check:
    """Hold what the manifest says of the model and the run to the model and the ledger that are here."""
    faults = Faults("manifest", "what it says of the model and the run is so")
    pairs: list[tuple[str, object, object]] = [
        ("vocab_size", manifest.vocab_size, target.vocab_size),
        ("extraction_quantization", manifest.extraction_quantization, target.facts.quantization),
    ]
    if run is not None:
        pairs += [
            ("source", manifest.made_of, "a run"),
            ("served_model", manifest.served_model, run.model_id),
            ("tokenizer_hash", manifest.tokenizer_hash, run.tokenizer_hash),
        ]
    for name, stated, found in pairs:
        if stated != found:
            faults.add(f"{name} is {stated!r}, found {found!r}")
    return faults.check()


def _tokenizer(manifest: Manifest, target: TargetModel, run: RunFolder) -> Iterator[Check]:
    check = compare_tokenizer(target.path, manifest.tokenizer_hash, run.vocabulary_path)
    if check is not None:
        yield check


def _against_model(
    manifest: Manifest, target: TargetModel, comparing: Comparing | None, *, is_any_there: bool
) -> Iterator[Check]:
    same = target.hash.xxh3 == manifest.model_xxh3
    detail = f"the files of {target.path} are those the features were made with"
    if not same:
        detail = f"the files of {target.path} are not those the features were made with ({manifest.model_path})"
    yield Check("model", same, "error", detail)
    yield _check_conventions(manifest)
    if comparing is None:
        sizes = f"{target.num_layers} layers of width {target.hidden_size}"
        stated = f"{manifest.num_layers} of width {manifest.hidden_size}"
        yield Check("streams", False, "error", f"the model has {sizes}, the manifest says {stated}")
        return
    if is_any_there:
        yield from judge(comparing.found)


def _check_conventions(manifest: Manifest) -> Check:
    outputs = tuple(layer - 1 for layer in manifest.layers_entering)
    fine = manifest.last_hidden_norm == "pre" and manifest.layers_output == outputs
    detail = f"streams enter layers {list(manifest.layers_entering)}, the last slot is before the final norm"
    if not fine:
        detail = (
            f"the manifest states norm {manifest.last_hidden_norm!r}, layers {list(manifest.layers_entering)} and "
            f"{list(manifest.layers_output)}; expected 'pre' and layer outputs one below the inputs"
        )
    return Check("conventions", fine, "error", detail)
