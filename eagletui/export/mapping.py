"""The draft vocabulary as SpecForge loads it: one file with `d2t` int64 [D] and `t2d` bool [V]."""

import io
import pickle
from pathlib import Path
from typing import Final

import torch

from eagletui.core.draft_vocabulary import DraftVocabulary
from eagletui.files.replacement import Replacement

MAPPING_FILE: Final = "vocab_mapping/vocab_mapping.pt"


def write_mapping(out: Path, vocabulary: DraftVocabulary) -> None:
    """Write the mapping."""
    marks = torch.zeros(vocabulary.target_size, dtype=torch.bool)
    marks[torch.tensor(vocabulary.ids, dtype=torch.int64)] = True
    stream = io.BytesIO()
    torch.save({"d2t": torch.tensor(vocabulary.offsets(), dtype=torch.int64), "t2d": marks}, stream)
    (out / MAPPING_FILE).parent.mkdir(mode=0o700, exist_ok=True)
    with Replacement(out / MAPPING_FILE) as file:
        file.write(stream.getvalue())


def load_mapping(out: Path) -> tuple[list[int], list[bool]]:
    """Read `d2t` and `t2d` back.

    Raises:
        OSError, ValueError: the file is missing or is not what it should be.
    """
    try:
        content = torch.load(out / MAPPING_FILE, weights_only=True)
        offsets, marks = content["d2t"], content["t2d"]
    except (RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(f"{MAPPING_FILE} holds no d2t and t2d: {error}") from error
    if offsets.dtype != torch.int64 or marks.dtype != torch.bool or offsets.ndim != 1 or marks.ndim != 1:
        raise ValueError(f"d2t is {offsets.dtype} and t2d {marks.dtype}; int64 [D] and bool [V] are expected")
    return offsets.tolist(), marks.tolist()
