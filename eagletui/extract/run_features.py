"""Extract features of a run into RUN/features, following its ledger.

The ledger alone says what is done. A shard counts once its row is committed; whatever a crash left beside that is
removed at the next start and computed again.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from eagletui.config.run_config import RunConfig, config_from_json
from eagletui.core.context import USUAL_LENGTH
from eagletui.core.errors import InputError, LedgerError, RunError
from eagletui.core.features import Stored, row_bytes, rows_per_shard, shard_number
from eagletui.core.gauges import ExtractorDetail, Machine
from eagletui.core.text import clean_line
from eagletui.extract.acknowledged import Stream
from eagletui.extract.backlog import count, fit, longest_tokens
from eagletui.extract.choices import Choices, Done
from eagletui.extract.computing import Backend, Described
from eagletui.extract.engines import Order, open_backend
from eagletui.extract.gather import Gatherer, Progress
from eagletui.extract.heart import beating
from eagletui.extract.ledger_source import LedgerSource, describe_shard
from eagletui.extract.manifest import ListedShard, Manifest, add_to_shard_list, find_manifest, write_manifest
from eagletui.extract.open_shard import ShardKind
from eagletui.extract.preflight import Need, foresee, require_room, short_of, warn_of_other_weights
from eagletui.extract.run_folder import agree_with_ledger, describe_run
from eagletui.extract.shard_writer import ShardWriter
from eagletui.extract.shards import IdsSample, SealedShard, orphan_bytes
from eagletui.extract.space import DiskGate, DiskSpace
from eagletui.extract.storage import FolderStorage, Storage, open_storage
from eagletui.extract.target_tokenizer import warn_of_other_tokenizer
from eagletui.files.locked import is_locked
from eagletui.ledger.orders import Feature
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_features import CensusRow, FeaturesReader
from eagletui.ledger.writer_extract import ExtractorWriter
from eagletui.runs.folder import RunFolder
from eagletui.runs.mirror import MirrorThread

if TYPE_CHECKING:
    from eagletui.extract.run_on_ray import Cluster

Make = Callable[[Stored, int], Progress]
"""Makes shards of at most so many rows until nothing is left, and tells what was done."""

Opened = TypeVar("Opened", bound=Described)

_ELSEWHERE: Final = "or give --storage URL, or make RUN/features a link to a larger disk before the first extraction"
_POLL_S: Final = 0.2

Phase = Literal["starting", "waiting for the run to end", "loading the model", "extracting", "waiting", "ending"]


class RunExtractor:
    """One extraction of a run. The caller holds the extractor's lock."""

    def __init__(
        self,
        folder: RunFolder,
        reader: LedgerReader,
        writer: ExtractorWriter,
        choices: Choices,
        stop: threading.Event,
    ) -> None:
        """Take a run.

        Args:
            folder: the run.
            reader: of its ledger.
            writer: of its ledger.
            choices: the caller's.
            stop: once set, the open shard is sealed and the work ends.
        """
        self.folder = folder
        self.reader = reader
        self.writer = writer
        self.choices = choices
        self.stop = stop
        self.phase: Phase = "starting"
        self.source = LedgerSource(reader)
        self._disk = choices.space or DiskSpace.below(folder.features_dir)
        self.gate = DiskGate(self._disk, self.report)
        self._manifest: Manifest | None = None
        self._backend: Described | None = None
        self._row_bytes: int | None = None
        self._expected_rows: int | None = None
        self._without_prompt_told = 0
        self.progress = Progress()
        self._stream: Stream | None = None
        self.storage: Storage = FolderStorage(folder.features_dir)
        self._shard_writer: ShardWriter | None = None

    def run(self) -> Done:
        """Extract until nothing is left, or until asked to stop.

        Raises:
            ModelError: the model does not load or does not fit the run.
            RunError: the features folder cannot be used.
        """
        config = config_from_json(self.reader.run().config_json)
        self.storage = open_storage(self.folder.features_dir, self._storage_url(config))
        with beating(self.writer, partial(self._figures, config)), self._mirroring(config):
            if self.choices.follow and config.extract.when == "after" and not self._wait_for_the_end():
                return Done(Progress(), 0, None)
            self.phase = "loading the model"
            order = self.choices.order(config)
            if self._ahead(config) is not None and (order.engine == "ray" or self.storage.url is not None):
                raise InputError(
                    "--stream-ahead goes with shards that this process seals in the run's own folder; found "
                    f"{'--engine ray' if order.engine == 'ray' else '--storage'}."
                )
            left_out = 0
            if self.choices.token_budget is not None:
                self.source.only, left_out = fit(self._census(), self.choices.token_budget)
            if self._needs_all_room(config):
                foreseen = foresee(order, *count(self._census(), self.source.only))
                if foreseen is not None:
                    require_room(self._room(), foreseen, _ELSEWHERE)
            if order.engine == "ray":
                try:
                    from eagletui.extract.run_on_ray import open_cluster
                except ModuleNotFoundError as error:
                    raise InputError("--engine ray needs Ray: pip install 'eagletui[ray]'") from error
                choices, features = self.choices, self.folder.features_dir
                cluster = self._open(
                    order,
                    lambda: open_cluster(
                        order, choices.address, self.storage.url, features, choices.gpus_per_worker, self.report
                    ),
                )
                with closing(cluster):
                    done = self._extract(
                        config, cluster, order.stored(cluster.facts), partial(self._make_there, cluster)
                    )
            else:
                backend = self._open(order, lambda: open_backend(order, self.report, self._longest_tokens()))
                with closing(backend):
                    done = self._extract(
                        config, backend, order.stored(backend.facts), partial(self._make_here, backend)
                    )
            return replace(done, left_out=left_out)

    def report(self, level: Literal["info", "warn", "error"], kind: str, message: str) -> None:
        """Add an event; where even that does not fit on the disk, the log file has to do."""
        self.choices.echo(level, kind, message)
        try:
            self.writer.event(level, "extractor", kind, message)
        except LedgerError as error:
            print(f"{level} {kind}: {message} ({error})", flush=True)  # noqa: T201 - stdout is the worker's log

    def _extract(self, config: RunConfig, backend: Described, stored: Stored, make: Make) -> Done:
        self._backend = backend
        facts = backend.facts
        self._row_bytes = row_bytes(facts.hidden_size, stored)
        samples, tokens, present = count(self._census(), self.source.only)
        need = Need(samples, tokens, facts.hidden_size, stored, present)
        if self._needs_all_room(config):
            require_room(self._room(), need, _ELSEWHERE)
            self._expected_rows = tokens
        elif (ahead := self._ahead(config)) is not None:
            rows = min(tokens, (ahead + 1) * rows_per_shard(config.extract.shard_mib, facts.hidden_size, stored))
            require_room(self._room(), replace(need, tokens=rows), "or let --stream-ahead be smaller")
        elif said := short_of(self._room(), need, self.reader.snapshot(), config.sampling.max_tokens):
            self.report("warn", "disk_short", said)
        self._manifest = agree_with_ledger(
            self.folder.features_dir,
            describe_run(self.reader, backend, stored, self.storage),
            self.storage,
            self.reader,
            self.writer,
            self.report,
        )
        warn_of_other_weights(self._manifest.served_quantizations, facts.quantization, facts.path, self.report)
        tokenizer_hash = self._manifest.tokenizer_hash
        warn_of_other_tokenizer(facts.path, tokenizer_hash, self.folder.vocabulary_path, self.report)
        if not self.choices.follow:
            self.choices.start(samples, tokens)
        capacity = rows_per_shard(config.extract.shard_mib, facts.hidden_size, stored)
        self._begin_stream(config)
        progress = make(stored, capacity)
        self.phase = "ending"
        if self._stream is not None:
            self._stream.delete_acknowledged()
        if progress.samples:
            self._manifest = replace(describe_run(self.reader, backend, stored, self.storage), capture=backend.choice)
            write_manifest(self.folder.features_dir, self._manifest)
        to_acknowledge = None if self._stream is None else self._stream.left
        return Done(progress, len(self.source.without_prompt), self._manifest, to_acknowledge=to_acknowledge)

    def _make_here(self, backend: Backend, stored: Stored, capacity_rows: int) -> Progress:
        """Compute in this process what waits, and what comes while the run is followed."""
        gatherer = Gatherer(backend, self.report, self.choices.step)
        self.progress = gatherer.progress
        facts = backend.facts
        kind = ShardKind(facts.hidden_size, facts.dtype, stored, capacity_rows, self._expected_rows)
        while True:
            with ShardWriter(
                self.folder.features_dir,
                self.next_number(),
                kind,
                self._disk,
                self.commit,
                self.report,
                storage=self.storage,
                stopping=self.stop.is_set,
                hold=self._stream.hold if self._stream else lambda: None,
            ) as writer:
                self._shard_writer = writer
                self._work(gatherer, writer)
            if self.stop.is_set() or not self.source.has_waiting():
                break
        return gatherer.progress

    def _make_there(self, cluster: "Cluster", stored: Stored, capacity_rows: int) -> Progress:
        """Have shards made on a cluster."""
        self.phase = "extracting"
        while True:
            cluster.make_shards(self, stored, capacity_rows)
            if self.stop.is_set() or (self.is_over() and not self.source.has_waiting()):
                cluster.remove_losers(self)
                return self.progress
            self._wait()

    def take(self, limit: int) -> list[IdsSample]:
        """Hand out samples that wait, and say once how many cannot be computed."""
        samples = self.source.take(limit)
        if len(self.source.without_prompt) > self._without_prompt_told:
            self._without_prompt_told = len(self.source.without_prompt)
            self.report(
                "warn", "no_prompt_ids", f"{self._without_prompt_told} samples have no prompt ids and get no features."
            )
        return samples

    def is_over(self) -> bool:
        """Tell whether no sample comes any more."""
        return not self.choices.follow or self.source.is_finished()

    def is_stopping(self) -> bool:
        """Tell whether nothing more is to be begun."""
        return self.stop.is_set()

    def listed(self) -> list[str]:
        """Paths of the shards that count."""
        return [shard.path for shard in self.reader.shards()]

    def refuse(self, sample: IdsSample, why: str) -> None:
        """Record that a sample gets no features."""
        self.progress.refused += 1
        self.report("error", "sample_refused", f"{clean_line(sample.key, 80)} gets no features: {why}")

    def step(self) -> None:
        """Tell the caller how far it is."""
        self.choices.step(self.progress)

    def _work(self, gatherer: Gatherer, writer: ShardWriter) -> None:
        while not self.stop.is_set():
            writer.check()
            over = self.is_over()
            samples = self.take(gatherer.backend.window_samples)
            if samples:
                self.phase = "extracting"
                gatherer.add(samples, writer, lambda: not self.stop.is_set())
            elif over:
                return
            if self.choices.follow and writer.open_for_s > self.choices.seal_after_s:
                writer.seal()
            if samples:
                continue
            self.phase = "waiting"
            self._wait()

    def _storage_url(self, config: RunConfig) -> str | None:
        """Where shards go: as asked now, else where the earlier ones lie."""
        asked = self.choices.storage or config.extract.storage
        earlier = find_manifest(self.folder.features_dir)
        return asked if asked is not None or earlier is None else earlier.storage

    def _grows(self, config: RunConfig) -> bool:
        """Tell whether no disk here has to hold what waits now: samples still come, or shards go elsewhere."""
        return self.storage.url is not None or (self.choices.follow and config.extract.when == "live")

    def _ahead(self, config: RunConfig) -> int | None:
        """Return how many sealed shards may wait for a trainer; None where features are kept."""
        return self.choices.stream_ahead or config.extract.stream_ahead

    def _room(self) -> DiskSpace:
        """Count what an interrupted extractor left as free: it goes before the first shard grows."""
        known = (shard.path for shard in self.reader.shards())
        return replace(self._disk, removable_bytes=orphan_bytes(self.folder.features_dir, known))

    def _needs_all_room(self, config: RunConfig) -> bool:
        return not self._grows(config) and self._ahead(config) is None

    def _begin_stream(self, config: RunConfig) -> None:
        ahead = self._ahead(config)
        if ahead is not None:
            describe = partial(describe_shard, self.folder.ledger_path)
            self._stream = Stream(self.folder.features_dir, ahead, describe)
            self._stream.begin(shard.path for shard in self.reader.shards())

    def _longest_tokens(self) -> int | None:
        """Length of the longest sample, at least the usual one where more come; None where none is known."""
        return longest_tokens(self._census(), USUAL_LENGTH - 1 if self.choices.follow else 0)

    def _census(self) -> list[CensusRow]:
        with FeaturesReader(self.folder.ledger_path) as reader:
            return reader.census()

    def _open(self, order: Order, open_it: Callable[[], Opened]) -> Opened:
        began = time.monotonic()
        backend = open_it()
        facts = backend.facts
        self.report(
            "info",
            "model_loaded",
            f"{facts.architecture} from {order.model.name} in {facts.dtype} on {backend.place}, "
            f"{time.monotonic() - began:.1f} s.",
        )
        return backend

    def next_number(self) -> int:
        """Number of the next shard."""
        return 1 + max((shard_number(shard.path) or 0 for shard in self.reader.shards()), default=-1)

    def commit(self, shard: SealedShard) -> None:
        """Record a sealed shard in the ledger and in the folder's list; from then on it counts."""
        if self._manifest is not None and self._backend is not None and self._manifest.capture != self._backend.choice:
            self._manifest = replace(self._manifest, capture=self._backend.choice)
            write_manifest(self.folder.features_dir, self._manifest)
        features = [
            Feature(placed.sample.sample_id, placed.position, len(placed.sample.token_ids), placed.sample.revision)
            for placed in shard.samples
            if placed.sample.sample_id is not None and placed.sample.revision is not None
        ]
        self.writer.commit_shard(shard.path, features, size_bytes=shard.bytes, xxh3=shard.xxh3)
        listed = ListedShard(shard.path, len(shard.samples), shard.rows, shard.bytes, shard.xxh3)
        add_to_shard_list(self.folder.features_dir, listed)
        if self._stream is not None:
            self._stream.add(shard.path)
        self.source.give_back(feature.sample_id for feature in features)

    def _wait_for_the_end(self) -> bool:
        """Wait until the run is over; False if asked to stop before."""
        self.phase = "waiting for the run to end"
        version = None
        while not self.stop.is_set():
            if version != (version := self.reader.data_version()) and self.source.is_finished():
                return True
            self._wait()
        return False

    def _wait(self) -> None:
        """Let some time pass while nothing is there to do.

        Raises:
            RunError: the run's folder was moved or removed, so nothing will ever come.
        """
        self.stop.wait(_POLL_S)
        if not self.folder.ledger_path.is_file():
            raise RunError(f"{self.folder.ledger_path} is gone, so there is nothing left to extract. Ended.")

    @contextmanager
    def _mirroring(self, config: RunConfig) -> Iterator[None]:
        """Keep the copy that `[run] mirror` asks for, where no engine does."""
        if config.run.mirror is None:
            yield
            return
        engine = self.folder.lock_path("engine")
        mirror = MirrorThread(self.folder, config.run.mirror, self.report, lambda: not is_locked(engine))
        with closing(mirror):
            yield

    def _figures(self, config: RunConfig, machine: Machine) -> ExtractorDetail:
        progress = self.progress
        return ExtractorDetail(
            phase=self._phase(),
            samples=progress.samples,
            rows=progress.rows,
            rows_per_s=round(progress.rows_per_s, 1),
            refused=progress.refused,
            row_bytes=self._row_bytes,
            storage=self.storage.url,
            stream_ahead=self._ahead(config),
            follows=self.choices.follow,
            machine=machine,
        )

    def _phase(self) -> str:
        if self.gate.is_closed or (self._shard_writer is not None and self._shard_writer.waits_for_space):
            return "waiting for disk space"
        if self._shard_writer is not None and self._shard_writer.is_held:
            return "waiting for the trainer"
        return self.phase
