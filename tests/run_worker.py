"""A worker with nothing to do, for tests of run folders: takes its role, says it is ready, ends when told."""

import json
import os
import signal
import sys
from pathlib import Path

from eagletui.ledger.locks import RoleLock
from eagletui.ledger.writer_extract import ExtractorWriter
from eagletui.runs.folder import RunFolder


def main(folder: RunFolder, what: str) -> None:
    """Behave as told: `work`, `die` while starting, `provide` an address, or `hang` before being ready."""
    sys.stdout.write(
        f"started as {what}, stdin gives {sys.stdin.read()!r}, session leader {os.getsid(0) == os.getpid()}\n"
    )
    sys.stdout.flush()
    if what == "die":
        raise SystemExit("the tokenizer folder is empty")
    if what == "provide":
        address = folder.provider_dir / "address.json"
        address.write_text(json.dumps({"pid": os.getpid(), "base_url": "http://127.0.0.1:1"}))
    with RoleLock(folder, "provider" if what == "provide" else "engine"):
        if what == "work":
            with ExtractorWriter(folder.ledger_path) as writer:
                writer.beat("engine", ready=True)
        signal.sigwait([signal.SIGTERM])


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    main(RunFolder(Path(sys.argv[1])), sys.argv[2])
