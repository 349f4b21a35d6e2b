"""Keep a copy of a run elsewhere while it works, so that a lost machine costs at most a minute of answers.

What a run needs to go on is small: its ledger, config, tokenizer and vocabulary. The ledger is copied as one moment,
without making a writer wait. Features are not copied: they can be computed again, or lie in a storage of their own.
"""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from eagletui.core.errors import EagleError, RunError
from eagletui.core.reports import Report
from eagletui.core.text import clean_line
from eagletui.files.remote import Remote
from eagletui.files.replacement import Replacement
from eagletui.ledger.backup import back_up
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.folder import RunFolder

EVERY_S: Final = 30.0
"""Between two copies, so that one and the time it takes fit into a minute."""

PROMISE_S: Final = 60.0


class MirrorThread:
    """Keeps the copy of a run from a thread of its own."""

    def __init__(self, folder: RunFolder, url: str, report: Report, is_mine: Callable[[], bool] = lambda: True) -> None:
        """Open the place and begin.

        Args:
            folder: the run.
            url: see `LedgerMirror`.
            report: called from the thread.
            is_mine: see `LedgerMirror.keep`.

        Raises:
            InputError: the URL needs a package that is not installed.
        """
        self._stop = threading.Event()
        self._mirror = LedgerMirror(folder, url)
        self._thread = threading.Thread(
            target=self._mirror.keep, args=(self._stop, report, is_mine), name="mirror", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Copy a last time, and end."""
        self._stop.set()
        self._thread.join()
        self._mirror.close()


class _Place(Protocol):
    def put(self, file: Path, name: str) -> None:
        """Bring a file to `name`, a path relative to the place; it is there whole or as it was."""


class LedgerMirror:
    """The copy of one run below a folder or URL."""

    def __init__(self, folder: RunFolder, url: str) -> None:
        """Open the place.

        Args:
            folder: the run.
            url: a folder, or a URL that fsspec knows; the copy lies below it under the run's name.

        Raises:
            InputError: the URL needs a package that is not installed.
        """
        self.url = url
        self._folder = folder
        self._place = _open(url.rstrip("/"), folder.name)
        self._reader = LedgerReader(folder.ledger_path)
        self._copied: int | None = None
        """The reader's data version that was copied last."""
        self._has_files = False
        self._failing = False

    def keep(self, stop: threading.Event, report: Report, is_mine: Callable[[], bool] = lambda: True) -> None:
        """Copy now, whenever something was committed, and once more at the end.

        Args:
            stop: ends it.
            report: hears of what goes wrong, once for each time it begins.
            is_mine: False while another worker of the run keeps the copy.
        """
        while True:
            ending = stop.is_set()
            if is_mine():
                self._try(report)
            if ending:
                return
            stop.wait(EVERY_S)

    def close(self) -> None:
        """Let go of the ledger."""
        self._reader.close()

    def copy(self) -> bool:
        """Copy what changed since the last time, and tell whether anything had.

        Raises:
            EagleError: the ledger cannot be read, or the place refused it.
        """
        version = self._reader.data_version()
        if version == self._copied:
            return False
        if not self._has_files:
            for file in (
                self._folder.config_path,
                self._folder.vocabulary_path,
                *sorted(self._folder.tokenizer_dir.iterdir()),
            ):
                self._place.put(file, str(file.relative_to(self._folder.path)))
            self._has_files = True
        else:
            self._place.put(self._folder.config_path, self._folder.config_path.name)
        with tempfile.TemporaryDirectory(prefix=".mirror-", dir=self._folder.path) as below:
            copy = Path(below) / self._folder.ledger_path.name
            back_up(self._folder.ledger_path, copy)
            self._place.put(copy, copy.name)
        self._copied = version
        return True

    def _try(self, report: Report) -> None:
        began = time.monotonic()
        try:
            self.copy()
        except (EagleError, OSError) as error:
            if not self._failing:
                self._failing = True
                report("warn", "mirror", f"The copy at {clean_line(self.url, 80)} cannot be kept: {error}")
            return
        took_s = time.monotonic() - began
        if self._failing:
            report("info", "mirror", f"The copy at {clean_line(self.url, 80)} is kept again.")
        elif took_s > PROMISE_S - EVERY_S:
            report(
                "warn", "mirror", f"A copy takes {took_s:.0f} s, so {took_s + EVERY_S:.0f} s of answers may be lost."
            )
        self._failing = False


def _open(url: str, name: str) -> _Place:
    return Remote(f"{url}/{name}", "[run] mirror") if "://" in url else _FolderPlace(Path(url) / name)


class _FolderPlace:
    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, file: Path, name: str) -> None:
        final = self._path / name
        try:
            final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with file.open("rb") as content, Replacement(final, alone=True) as stream:
                shutil.copyfileobj(content, stream)
        except OSError as error:
            raise RunError(f"{final}: {error.strerror or error}") from error
