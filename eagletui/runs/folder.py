"""The folder of a run: what lies where in it, and where runs lie."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eagletui.core.errors import RunError
from eagletui.core.lifecycle import WorkerRole
from eagletui.core.quoting import quoted
from eagletui.files.replacement import replace_text
from eagletui.ledger.locks import lock_file

ROOT_VARIABLE: Final = "EAGLETUI_RUNS"
"""Environment variable that moves the runs away from `./runs`."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's folder and the places in it."""

    path: Path
    """The folder itself."""

    def __fspath__(self) -> str:
        """Let the folder stand where a path is expected."""
        return str(self.path)

    @property
    def name(self) -> str:
        """The run's name: the folder's."""
        return self.path.name

    @property
    def argument(self) -> str:
        """What names the run in a command that is given here: its name among the runs, else its path, quoted.

        Where the working folder was removed, it is what names the run in a command given anywhere.
        """
        try:
            path, root, here = self.path.resolve(), runs_root().resolve(), Path.cwd()
        except OSError:
            return self.argument_anywhere
        if path.parent == root and not path.name.startswith("-"):
            return quoted(path.name)
        return quoted(f".{os.sep}{path.relative_to(here)}" if path.is_relative_to(here) else str(path))

    @property
    def argument_anywhere(self) -> str:
        """What names the run in a command that is given in any folder: its whole path, quoted."""
        try:
            return quoted(str(self.path.resolve()))
        except OSError:  # a relative path, from a working folder that was removed
            return quoted(str(self.path))

    @property
    def ledger_path(self) -> Path:
        """The ledger file."""
        return self.path / "ledger.sqlite"

    @property
    def config_path(self) -> Path:
        """The frozen config."""
        return self.path / "config.toml"

    @property
    def tokenizer_dir(self) -> Path:
        """A copy of the tokenizer files in use."""
        return self.path / "tokenizer"

    @property
    def vocabulary_path(self) -> Path:
        """The table of bytes per id, for viewers."""
        return self.path / "vocabulary.msgpack"

    @property
    def features_dir(self) -> Path:
        """Manifest and shards."""
        return self.path / "features"

    @property
    def provider_dir(self) -> Path:
        """Address and books of the embedded provider."""
        return self.path / "provider"

    @property
    def merged_path(self) -> Path:
        """Names the run this one was merged into; absent while it was not."""
        return self.path / "merged.json"

    @property
    def spool_dir(self) -> Path:
        """Replies that are whole and not in the ledger yet."""
        return self.path / "spool"

    @property
    def exports_dir(self) -> Path:
        """Where exports go unless told otherwise."""
        return self.path / "exports"

    def log_path(self, role: WorkerRole) -> Path:
        """Return the file that takes a worker's stdout and stderr."""
        return self.path / "logs" / f"{role}.log"

    def lock_path(self, role: WorkerRole) -> Path:
        """Return the file whose lock a living worker holds."""
        return lock_file(self.path, role)


def runs_root() -> Path:
    """Return the folder that holds the runs: $EAGLETUI_RUNS, else ./runs."""
    return Path(os.environ.get(ROOT_VARIABLE) or "runs").expanduser().absolute()


def create_folder(name: str) -> RunFolder:
    """Make the folders of a new run, open to its owner only; folders that exist already are kept.

    Args:
        name: a plain folder name.

    Raises:
        RunError: the name is not a plain folder name, or the place cannot be written.
    """
    if not name or name in (".", "..") or name != Path(name).name or name.startswith("-") or not name.isprintable():
        raise RunError(f"{name!r} cannot name a run: use letters, digits, dots, dashes and underscores.")
    folder = RunFolder(runs_root() / name)
    try:
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in ("logs", "locks", "features", "provider", "exports"):
            (folder.path / part).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder.path} cannot be made: {error.strerror}.") from error
    return folder


def write_config_file(folder: RunFolder, toml: str) -> None:
    """Replace the frozen config, whole or not at all."""
    replace_text(folder.config_path, toml)
