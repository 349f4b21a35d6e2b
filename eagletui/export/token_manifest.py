"""What the manifest beside a file of ids says, read back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import msgspec

from eagletui.core.errors import RunError

TokenForm = Literal["eagletui-tokens-1", "eagletui-parquet-1"]


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file of rows."""

    file: str
    """Its name, beside the manifest."""
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """The training config that TorchSpec's cache was made for."""

    key: str
    target_model_path: str
    max_seq_length: int
    chat_template: str


@dataclass(frozen=True, slots=True)
class TokenManifest:
    """How a file of ids was made, and what it holds."""

    format: TokenForm
    file: str
    bytes: int
    sha256: str
    run: str
    also_included: tuple[str, ...]
    samples: int
    tokens: int
    sampled_tokens: int
    by_evidence: dict[str, int]
    by_usability: dict[str, int]
    tokenizer_hash: str | None = None
    ledger: str | None = None
    """Where the ledger was; None in manifests of before it was kept."""
    validation_rows: int | None = None
    """None for a selection, which has no such rows."""
    validation_file: FileFacts | None = None
    """None where such rows lie last in the one file, or there are none."""
    torchspec: CacheFacts | None = None

    @property
    def files(self) -> tuple[FileFacts, ...]:
        """The files of rows, in order."""
        first = FileFacts(self.file, self.bytes, self.sha256)
        return (first,) if self.validation_file is None else (first, self.validation_file)

    def is_held_out(self, number: int, file: FileFacts) -> bool:
        """Tell whether a row is one to validate on, by where it lies.

        Args:
            number: of the row, through all files.
            file: it lies in.
        """
        if self.validation_file is not None:
            return file == self.validation_file
        return number >= self.samples - (self.validation_rows or 0)


class _Form(msgspec.Struct):
    format: object = None


def find_token_manifest(folder: Path) -> TokenManifest | None:
    """Read a folder's manifest; None if there is none, or it is not one of a file of ids.

    Raises:
        RunError: it cannot be read.
    """
    path = folder / "manifest.json"
    try:
        content = path.read_bytes()
        if msgspec.json.decode(content, type=_Form).format not in get_args(TokenForm):
            return None
        return msgspec.json.decode(content, type=TokenManifest)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read as a manifest: {error}") from error
