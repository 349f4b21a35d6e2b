"""`python -m eagletui.extract RUN_DIR`: the extractor process of a run.

It follows the ledger until the run is over and nothing is left. SIGTERM and SIGINT seal the open shard and end; SIGHUP
is ignored: the terminal's end is not the run's.
"""

import os
import sys
import threading
from pathlib import Path

from eagletui.core.errors import EagleError
from eagletui.ledger.locks import RoleLock
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer_extract import ExtractorWriter
from eagletui.runs.folder import RunFolder
from eagletui.runs.stopping import stop_when_asked


def main(argv: list[str]) -> int:
    """Run the extractor of one run and return the exit code.

    Args:
        argv: the run folder.
    """
    if len(argv) != 1:
        print("Usage: python -m eagletui.extract RUN_DIR", file=sys.stderr)  # noqa: T201 - a worker started by hand
        return 2
    folder = RunFolder(Path(argv[0]).resolve())
    stop = stop_when_asked()
    try:
        with RoleLock(folder, "extractor"), ExtractorWriter(folder.ledger_path) as writer:
            _send_output_to(folder.log_path("extractor"))
            with LedgerReader(folder.ledger_path) as reader:
                return _extract(folder, reader, writer, stop)
    except EagleError as error:
        print(error, file=sys.stderr, flush=True)  # noqa: T201 - stderr is the worker's log
        return error.exit_code


def _extract(folder: RunFolder, reader: LedgerReader, writer: ExtractorWriter, stop: threading.Event) -> int:
    # Being ready means being able to work: the imports below take seconds and tell nothing about the run.
    writer.beat("extractor", ready=True, detail={"phase": "starting"})
    from eagletui.extract.choices import Choices
    from eagletui.extract.run_features import RunExtractor

    extractor = RunExtractor(folder, reader, writer, Choices(follow=True), stop)
    try:
        done = extractor.run()
    except EagleError as error:
        extractor.report("error", "extractor_failed", str(error))
        raise
    finally:
        writer.stop_beat("extractor")
    how = "stopped" if stop.is_set() else "done"
    extractor.report(
        "info",
        f"extractor_{how}",
        f"Extraction {how}: {done.progress.samples} samples, {done.progress.rows} tokens, "
        f"{done.progress.refused + done.without_prompt} without features.",
    )
    return 1 if done.progress.refused else 0


def _send_output_to(log: Path) -> None:
    """Point stdout and stderr at the log file, whoever started this process."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
