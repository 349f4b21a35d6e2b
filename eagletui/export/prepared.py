"""The prepared dataset directory of speculators: rows as Arrow, token frequencies, the draft vocabulary.

It is what `datasets.Dataset.save_to_disk` writes, in torch format, with columns `input_ids` and `loss_mask` int64 and
`seq_len` int64 (speculators 0.9.0, `speculators/data_generation/preprocessing.py`).
"""

import io
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy
import torch

from eagletui.core.draft_vocabulary import DraftVocabulary
from eagletui.core.errors import InputError
from eagletui.export.gathered import SampleIds
from eagletui.export.trainer_folder import STAGING
from eagletui.files.flushing import flush_file, flush_folder
from eagletui.files.replacement import Replacement

STATE_FILE: Final = "state.json"
"""Without it nothing loads: removed before the folder changes, written last."""

FREQUENCIES_FILE: Final = "token_freq.pt"
_BATCH_ROWS: Final = 256


def require_datasets() -> Any:
    """Return the package that writes Arrow directories.

    Raises:
        InputError: it is not installed; names the command.
    """
    try:
        import datasets
    except ImportError as error:
        raise InputError(
            "The dataset directory of speculators needs the package datasets, which is not installed: "
            "pip install 'eagletui[data]'. Nothing was written."
        ) from error
    return datasets


def write_dataset(out: Path, samples: Iterable[SampleIds]) -> None:
    """Write the rows; the folder loads from the moment the last file is in place.

    Args:
        out: the exported folder, without a state file.
        samples: in row order.
    """
    datasets = require_datasets()
    from datasets.arrow_writer import ArrowWriter

    datasets.disable_progress_bars()
    columns = _columns(datasets)
    with tempfile.TemporaryDirectory(dir=out, prefix=STAGING) as staging:
        plain, saved = Path(staging) / "rows.arrow", Path(staging) / "saved"
        with ArrowWriter(features=columns, path=str(plain), writer_batch_size=_BATCH_ROWS) as writer:
            for sample in samples:
                ids = sample.token_ids.tolist()
                writer.write({"input_ids": ids, "loss_mask": sample.loss_mask, "seq_len": len(ids)})
            writer.finalize()
        dataset = datasets.Dataset.from_file(str(plain))
        dataset.set_format("torch")
        dataset.save_to_disk(str(saved))
        del dataset
        for old in out.glob("*.arrow"):
            old.unlink()
        names = sorted((file.name for file in saved.iterdir()), key=lambda name: name == STATE_FILE)
        for name in names:
            flush_file(saved / name)
            os.chmod(saved / name, 0o600)
            os.replace(saved / name, out / name)
            flush_folder(out)
        shutil.rmtree(saved)


def _columns(datasets: Any) -> Any:
    numbers = datasets.List(datasets.Value("int64"))
    return datasets.Features({"input_ids": numbers, "loss_mask": numbers, "seq_len": datasets.Value("int64")})


def form_faults(dataset: Any) -> Iterator[str]:
    """Yield what is wrong with the columns, and with how rows are given out: speculators wants tensors of all of them.

    Args:
        dataset: as loaded.
    """
    wanted = _columns(require_datasets())
    if dataset.features != wanted:
        yield f"the columns of the dataset are {dataset.features}, expected {wanted}"
    shown = dataset.format
    if shown["type"] != "torch":
        yield f"{STATE_FILE} gives rows out as {shown['type']}, and the trainer compares tensors: expected torch"
    hidden = sorted(set(wanted) - set(shown["columns"]))
    if hidden:
        yield f"{STATE_FILE} leaves out {', '.join(hidden)} of each row"


def load_dataset(out: Path) -> Any:
    """Open the rows, in the form in which the trainer gets them.

    Raises:
        InputError: the package is not installed.
        OSError, ValueError: they do not load.
    """
    datasets = require_datasets()
    return datasets.load_from_disk(str(out))


def write_frequencies(out: Path, counts: Counter[int]) -> None:
    """Write how often each token was sampled, as `{token id: count}`."""
    stream = io.BytesIO()
    torch.save(dict(sorted(counts.items())), stream)
    with Replacement(out / FREQUENCIES_FILE) as file:
        file.write(stream.getvalue())


def vocabulary_paths(size: int) -> tuple[str, str]:
    """Name the files of a draft vocabulary: `d2t` and `t2d`."""
    return f"d2t-{size}.npy", f"t2d-{size}.npy"


def write_vocabulary(out: Path, vocabulary: DraftVocabulary) -> None:
    """Write `d2t` int64 [D] and `t2d` bool [V], and remove those of another size."""
    marks: Any = numpy.zeros(vocabulary.target_size, dtype=bool)
    marks[list(vocabulary.ids)] = True
    names = vocabulary_paths(vocabulary.size)
    for name, values in zip(names, (numpy.array(vocabulary.offsets(), dtype=numpy.int64), marks), strict=True):
        with Replacement(out / name) as stream:
            numpy.save(stream, values)
    for old in (*out.glob("d2t-*.npy"), *out.glob("t2d-*.npy")):
        if old.name not in names:
            old.unlink()


def load_vocabulary(out: Path, size: int) -> tuple[list[int], list[bool]]:
    """Read `d2t` and `t2d` back.

    Raises:
        OSError, ValueError: a file is missing or is not what it should be.
    """
    offsets, marks = (numpy.load(out / name, allow_pickle=False) for name in vocabulary_paths(size))
    if offsets.dtype != numpy.int64 or marks.dtype != numpy.bool_ or offsets.ndim != 1 or marks.ndim != 1:
        raise ValueError(f"d2t is {offsets.dtype} and t2d {marks.dtype}; int64 [D] and bool [V] are expected")
    return offsets.tolist(), marks.tolist()
