"""Tokenizer folders of other kinds, converted by transformers without remote code."""

from pathlib import Path
from typing import Final

from eagletui.core.errors import TokenizerError

CONVERTIBLE: Final = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "vocab.txt")
"""Files of which one must be there, so that transformers is not loaded for a folder of something else."""


def converted_by_transformers(folder: Path) -> bytes:
    """Return the tokenizer.json that transformers makes of a folder.

    Raises:
        TokenizerError: transformers is not installed, or cannot convert this folder.
    """
    names = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "no files"
    told = f"Tokenizer folder {folder}: found {names}, expected tokenizer.json or tiktoken.model"
    if not any((folder / name).exists() for name in CONVERTIBLE):
        raise TokenizerError(told)
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise TokenizerError(f"{told}; other kinds need transformers: pip install 'eagletui[extract]'") from error
    try:
        loaded = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        text = loaded.backend_tokenizer.to_str()
    except Exception as error:  # transformers raises whatever its many loaders raise
        raise TokenizerError(f"{told}; transformers cannot convert it ({error})") from error
    return str(text).encode()
