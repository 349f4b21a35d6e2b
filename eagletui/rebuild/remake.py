"""Rebuild kept answers one by one, here or in processes of their own, and say what differs from what is stored."""

import multiprocessing
import os
import signal
import tempfile
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Final, NamedTuple, Self, cast

import msgspec

from eagletui.config.run_config import RunConfig
from eagletui.core.drift import Cause
from eagletui.core.errors import EagleError, RunError
from eagletui.core.fidelity import Usability
from eagletui.core.text import clean_line
from eagletui.ledger.codecs import pack_bytes, unpack_bytes
from eagletui.ledger.orders import TokensLabel, TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_samples import StoredTokens, ToRebuild
from eagletui.providers.reading import read_kept
from eagletui.run_ids import RunIds, as_stored
from eagletui.tokens.answer import Rebuilt
from eagletui.tokens.formats import load_format, load_profile
from eagletui.tokens.judge import Sample
from eagletui.tokens.load import load_tokenizer

CHUNK: Final = 64
"""Samples a process takes at a time."""

ALONE: Final = 400
"""Up to so many samples are rebuilt in this process: starting others takes longer."""


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=list)
"""Arrays of ids are written as lists."""


@dataclass(frozen=True, slots=True)
class Remade:
    """One sample rebuilt; its ids only where they must be stored."""

    sample_id: int
    key: str
    before: TokensLabel | None
    """As stored; None for a sample without ids."""
    sample: Sample | None
    """What its final label depends on, without the ids and texts. None when it could not be rebuilt."""
    ids_changed: bool = False
    packed: bytes | None = None
    """What to store, for `unpack`; None where nothing but the label can differ."""
    trouble: str = ""
    """Why it could not be rebuilt."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a process needs to rebuild a run's samples."""

    ledger: Path
    tokenizer_dir: Path
    config: RunConfig
    """With the format and the profile to rebuild with."""
    profiles: Mapping[str, str]
    """Names by endpoint."""
    by_reference: bool = False
    """Without the fast encoder, which was found wrong."""
    keep_inferred: bool = True
    """Ids that a target model chose stay while the text is the same."""

    def open(self) -> RunIds:
        """Load what it names."""
        tokenizer = load_tokenizer(self.tokenizer_dir)
        return RunIds(
            self.config,
            tokenizer.without_stand_in() if self.by_reference else tokenizer,
            load_format(self.config.model.format),
            {endpoint: load_profile(name) for endpoint, name in self.profiles.items()},
        )


class _Part(NamedTuple):
    """Samples of a run, by id."""

    first: int
    last: int
    causes: Mapping[str, Cause]
    """Named constants by endpoint."""
    endpoints: frozenset[str] | None
    """Only samples that these answered; None for all."""


def remake(item: ToRebuild, ids: RunIds, cause: Cause | None, *, keep_inferred: bool = True) -> Remade:
    """Rebuild one sample and compare it with what is stored.

    Args:
        item: its kept reply and stored ids.
        ids: the run's tokenizer, format and profiles.
        cause: the named constant of its endpoint; None without one.
        keep_inferred: leave ids that a target model chose as they are while the text is the same.
    """
    row, old = item.row, item.tokens
    endpoint = row.endpoint or ""
    try:
        reply = read_kept(item.reply.encoding, item.reply.body)
        plain = rebuilt = ids.rebuild(reply, item.prompt, row.dataset, endpoint)
        if cause is not None and reply.finish_reason in cause.finish_reasons:
            rebuilt = ids.rebuild(reply, item.prompt, row.dataset, endpoint, offset=cause.offset)
    except EagleError as error:
        trouble = clean_line(str(error), 300)
        return Remade(row.id, row.sample_key, item.label, None, trouble=trouble)
    # An endpoint is judged by what its answers show with nothing undone.
    rebuilt = replace(rebuilt, plain_excess=plain.plain_excess)
    asked_at = item.reply.received_at - (row.latency_s or 0.0)
    rendered = ids.prompt_ids(item.prompt, row.dataset, asked_at)
    result = as_stored(rebuilt, reply, rendered)
    is_chosen = old is not None and old.evidence == "inferred" and old.raw == rebuilt.raw
    if old is not None and is_chosen and keep_inferred and not rebuilt.proved:
        assert item.label is not None
        rebuilt, result = _as_inferred(rebuilt, result, old, item.label)
    ids_changed = old is None or not (
        _same(old.prompt_ids, result.prompt_ids) and _same(old.output_ids, result.output_ids)
    )
    is_stored = (
        old is not None
        and not ids_changed
        and (old.raw, old.spans, old.tail_trimmed) == (result.raw, result.spans, result.tail_trimmed)
    )
    light = replace(rebuilt, output_ids=None, raw="", spans=(), parts=())
    prompt_tokens = None if rendered is None else len(rendered)
    return Remade(
        sample_id=row.id,
        key=row.sample_key,
        before=item.label,
        sample=Sample.of(row.sample_key, endpoint, reply, light, prompt_tokens, item.prompt.tools_json is not None),
        ids_changed=ids_changed,
        packed=None if is_stored else pack_bytes(_encoder.encode(result)),
    )


def unpack(packed: bytes) -> TokensResult:
    """Undo what `Remade.packed` is."""
    return msgspec.msgpack.decode(unpack_bytes(packed), type=TokensResult)


class Spool:
    """Rebuilt ids on disk until all samples are judged, because a run's do not fit in memory."""

    def __init__(self, folder: Path) -> None:
        """Make a file without a name in a folder; it is gone when this ends."""
        self._folder = folder
        # Unbuffered: closing a buffered file would try once more to write what did not fit.
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder, buffering=0)
        self._places: dict[int, tuple[int, int]] = {}

    def put(self, sample_id: int, packed: bytes) -> None:
        """Keep what is to be stored for a sample, in place of what was kept before.

        Raises:
            RunError: the disk is full.
        """
        try:
            place = self._file.seek(0, os.SEEK_END)
            rest = memoryview(packed)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise RunError(
                f"The rebuilt ids cannot be written beside {self._folder} ({error.strerror}). "
                "The run is as it was; free space there and rebuild again."
            ) from error
        self._places[sample_id] = place, len(packed)

    def drop(self, sample_id: int) -> None:
        """Keep nothing for a sample."""
        self._places.pop(sample_id, None)

    def get(self, sample_id: int) -> bytes | None:
        """Return what was kept for a sample."""
        place = self._places.get(sample_id)
        if place is None:
            return None
        self._file.seek(place[0])
        return self._file.read(place[1])

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Let the file go."""
        self._file.close()


class Remakers:
    """Rebuilds the samples of a run, in processes of their own where that is worth it."""

    def __init__(self, recipe: Recipe, samples: Sequence[int], processes: int) -> None:
        """Start.

        Args:
            recipe: what to rebuild with.
            samples: ids of the samples, ascending.
            processes: at most so many.
        """
        self._parts = [samples[start : start + CHUNK] for start in range(0, len(samples), CHUNK)]
        self._pool: ProcessPoolExecutor | None = None
        self._here: _Bench | None = None
        self.processes = 1 if len(samples) <= ALONE else max(1, processes)
        if self.processes == 1:
            self._here = _Bench(recipe)
            return
        self._pool = ProcessPoolExecutor(
            self.processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(recipe,),
        )

    def remake(self, causes: Mapping[str, Cause], endpoints: frozenset[str] | None = None) -> Iterator[list[Remade]]:
        """Rebuild all samples, or those that some endpoints answered, in order.

        Raises:
            RunError: a process ended.
        """
        parts = [_Part(ids[0], ids[-1], causes, endpoints) for ids in self._parts]
        if self._pool is None:
            assert self._here is not None
            yield from map(self._here.remake, parts)
            return
        try:
            yield from self._pool.map(_remake_part, parts)
        except BrokenProcessPool as error:
            raise RunError(
                "A process of the rebuild ended. What was written stays; give it more memory and rebuild again."
            ) from error

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._here is not None:
            self._here.reader.close()


class _Bench:
    """A ledger to read from and the tools, for one process."""

    def __init__(self, recipe: Recipe) -> None:
        self.ids = recipe.open()
        self._keep_inferred = recipe.keep_inferred
        self.reader = LedgerReader(recipe.ledger)

    def remake(self, part: _Part) -> list[Remade]:
        made: list[Remade] = []
        after = part.first - 1
        while after < part.last and (items := self.reader.to_rebuild(after, CHUNK)):
            after = items[-1].row.id
            for item in items:
                if item.row.id <= part.last and (part.endpoints is None or (item.row.endpoint or "") in part.endpoints):
                    cause = part.causes.get(item.row.endpoint or "")
                    made.append(remake(item, self.ids, cause, keep_inferred=self._keep_inferred))
        return made


_bench: _Bench | None = None
"""Of this process, once `_start` has run in it."""


def _start(recipe: Recipe) -> None:
    """Prepare a process: Ctrl-C is the parent's to take, and without the parent there is nothing to do."""
    global _bench
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _bench = _Bench(recipe)


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _remake_part(part: _Part) -> list[Remade]:
    assert _bench is not None
    return _bench.remake(part)


def _as_inferred(
    rebuilt: Rebuilt, result: TokensResult, old: StoredTokens, label: TokensLabel
) -> tuple[Rebuilt, TokensResult]:
    """Keep the ids that a target model chose: rebuilding the same text has nothing better."""
    kept = None if old.output_ids is None else tuple(old.output_ids)
    result = replace(result, output_ids=kept, spans=old.spans, counted=None, tail_trimmed=old.tail_trimmed)
    rebuilt = replace(
        rebuilt,
        evidence="inferred",
        usability=cast(Usability, label.usability),
        reason=label.reason,
        offset=label.offset,
        drift=label.drift,
        excess=label.excess,
    )
    return rebuilt, result


def _same(stored: "array[int] | None", made: Sequence[int] | None) -> bool:
    if stored is None or made is None:
        return stored is made
    return stored == array("i", made)
