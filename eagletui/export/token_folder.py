"""The folder of an export of ids: one export writes into it, and removes what killed ones left half written."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from eagletui.core.errors import RunError
from eagletui.export.trainer_folder import alone
from eagletui.files.replacement import made

_ENTRIES: Final = "cache/tokenized_dataset"
_HALF_WRITTEN: Final = re.compile(
    r"\.(?:(?:train|validation)\.(?:jsonl|parquet)|manifest\.json|torchspec\.yaml|[0-9a-f]{32}\.pt)\.\d+\.tmp"
)
"""What `Replacement` calls these files before they are whole. The folder is a person's: nothing else is removed."""


@contextmanager
def only_writer(out: Path) -> Iterator[None]:
    """Make the folder, keep other exports out of it and remove what killed ones left, which may be as large as theirs.

    Args:
        out: of the export; it goes again if nothing comes to lie in it.

    Raises:
        LockedError: another export writes into it.
        RunError: it cannot be written.
    """
    try:
        with ExitStack() as stack:
            stack.enter_context(made(out))
            with suppress(OSError):  # where a file system knows no locks, nobody can tell what is left and what is new
                stack.enter_context(alone(out))
                for folder in (out, out / _ENTRIES):
                    for path in folder.glob(".*.tmp"):
                        if _HALF_WRITTEN.fullmatch(path.name):
                            path.unlink()
            yield
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error.strerror or error}.") from error
