"""The draft vocabulary that an exported folder has: kept from one export to the next, and known by its digest."""

import hashlib
from pathlib import Path

from eagletui.core.draft_vocabulary import DraftVocabulary, read_vocabulary
from eagletui.core.errors import InputError, RunError
from eagletui.core.loaders import Trainer
from eagletui.export import mapping, prepared
from eagletui.export.trainer_folder import TrainerManifest


def kept_vocabulary(out: Path, manifest: TrainerManifest, asked_size: int | None) -> DraftVocabulary:
    """Read the vocabulary that a folder has.

    Args:
        out: the exported folder.
        manifest: its manifest.
        asked_size: what a person wants; None for what is there.

    Raises:
        InputError: another size is wanted.
        RunError: it cannot be read, or is not the one that was made.
    """
    facts = manifest.vocabulary
    if asked_size not in (None, facts.size):
        raise InputError(
            f"--draft-vocab-size: found {asked_size}, but {out} has a draft vocabulary of {facts.size} tokens. "
            "Add --new-vocabulary to choose another one; draft models trained before will not fit it."
        )
    try:
        vocabulary = read_vocabulary(*load_vocabulary(out, manifest.trainer, facts.size))
    except (OSError, ValueError) as error:
        raise RunError(f"The draft vocabulary of {out} cannot be read: {error}. Add --new-vocabulary.") from error
    if vocabulary_digest(vocabulary) != facts.sha256:
        raise RunError(f"The draft vocabulary of {out} was changed since it was made. Add --new-vocabulary.")
    return vocabulary


def load_vocabulary(out: Path, trainer: Trainer, size: int) -> tuple[list[int], list[bool]]:
    """Read `d2t` and `t2d` of an exported folder.

    Raises:
        OSError, ValueError: they are missing or are not what they should be.
    """
    return prepared.load_vocabulary(out, size) if trainer == "speculators" else mapping.load_mapping(out)


def vocabulary_digest(vocabulary: DraftVocabulary) -> str:
    """Return SHA-256 over the target's size and the chosen ids as decimal numbers, one a line, hex."""
    text = "\n".join(map(str, (vocabulary.target_size, *vocabulary.ids)))
    return hashlib.sha256(text.encode()).hexdigest()
