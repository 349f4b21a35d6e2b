"""Hold a training set for a while: small figures in memory, ids in a file without a name."""

import hashlib
import tempfile
from array import array
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from eagletui.core.errors import RunError
from eagletui.core.loaders import SampleLength
from eagletui.export.rows import Census, training_rows
from eagletui.ledger.reader import LedgerReader


class SampleIds(NamedTuple):
    """One sample of a set."""

    key: str
    token_ids: "array[int]"
    """Prompt, then output; length T."""
    prompt_tokens: int
    """Positions before the first sampled one."""

    @property
    def loss_mask(self) -> list[int]:
        """1 on sampled tokens, not shifted; length T."""
        return [0] * self.prompt_tokens + [1] * (len(self.token_ids) - self.prompt_tokens)


def ids_digest(token_ids: "array[int]") -> str:
    """Return BLAKE2b, 128 bits, over ids as int32, hex."""
    return hashlib.blake2b(token_ids.tobytes(), digest_size=16).hexdigest()


@dataclass(slots=True)
class Gathered:
    """A run's training set at one moment of its ledger."""

    census: Census
    counts: Counter[int]
    """How often each token was sampled."""
    by_text_changed: int
    """Samples whose proved ids re-encoding their text would not give back; of unproved ones nothing is known."""
    keys: list[str] = field(default_factory=list)
    """In ledger order."""
    max_id: int = -1
    _spool: IO[bytes] | None = None
    _starts: "array[int]" = field(default_factory=lambda: array("q", [0]))
    """In ids; one more than there are samples."""
    _prompts: "array[int]" = field(default_factory=lambda: array("q"))
    _places: dict[str, int] = field(default_factory=dict)

    def lengths(self) -> Iterator[SampleLength]:
        """Yield what decides a sample's fate in a loader, in ledger order."""
        for place, prompt in enumerate(self._prompts):
            yield SampleLength(prompt, self._starts[place + 1] - self._starts[place] - prompt)

    @property
    def longest(self) -> int:
        """Tokens of the longest sample."""
        return max((sum(length) for length in self.lengths()), default=0)

    def sample(self, key: str) -> SampleIds:
        """Read one sample's ids back."""
        assert self._spool is not None
        place = self._places[key]
        start, end = self._starts[place], self._starts[place + 1]
        ids = array("i")
        self._spool.seek(start * ids.itemsize)
        ids.frombytes(self._spool.read((end - start) * ids.itemsize))
        return SampleIds(key, ids, self._prompts[place])

    def tokens(self, key: str) -> int:
        """Return a sample's length."""
        place = self._places[key]
        return self._starts[place + 1] - self._starts[place]

    def add(self, key: str, token_ids: Sequence[int], prompt_tokens: int) -> None:
        """Keep one more sample."""
        assert self._spool is not None
        self._places[key] = len(self.keys)
        self.keys.append(key)
        self.counts.update(token_ids[prompt_tokens:])
        self.max_id = max(self.max_id, *token_ids)
        self._spool.write(array("i", token_ids).tobytes())
        self._starts.append(self._starts[-1] + len(token_ids))
        self._prompts.append(prompt_tokens)


@contextmanager
def gathered_rows(
    reader: LedgerReader, scratch: Path, *, also: Sequence[str] = (), only: Container[str] | None = None
) -> Iterator[Gathered]:
    """Read a run's training set once and keep it until the block ends.

    Args:
        reader: of the run's ledger.
        scratch: an existing folder on a disk with room for the ids, 4 bytes each.
        also: usabilities beyond the default set.
        only: samples to take; others count as left out for want of features. None takes all.

    Raises:
        RunError: nothing is left to export.
    """
    read = Census()
    with tempfile.TemporaryFile(dir=scratch) as spool, reader.moment():
        found = Gathered(Census(), Counter(), 0, _spool=spool)
        without = 0
        for row in training_rows(reader, read, also):
            if only is not None and row.id not in only:
                without += 1
                continue
            found.census.add(row)
            found.by_text_changed += row.resegmented_spans > 0
            found.add(row.id, row.input_ids, row.prompt_tokens)
        found.census.left_out.update(read.left_out)
        if without:
            found.census.left_out["no_features"] = without
        if not found.keys:
            left = ", ".join(f"{samples} {reason}" for reason, samples in found.census.left_out.items())
            raise RunError(
                f"Run {reader.run().name} has no samples to export{f': {left} are left out.' if left else ' yet.'}"
            )
        yield found
