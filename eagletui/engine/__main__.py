"""The engine process: `python -m eagletui.engine RUN_DIR [--exit-when-paused]`.

Exit codes: 0 done or stopped, 1 ended with failed samples or could not start, 2 bad run folder or config, 3 paused,
130 interrupted. SIGTERM and SIGINT drain; a second one breaks off and flushes; SIGHUP is ignored.
"""

import argparse
import logging
import signal
import sys
from pathlib import Path
from typing import Final

import uvloop

from eagletui.core.errors import EagleError
from eagletui.engine.open_files import raise_limit
from eagletui.engine.start import serve
from eagletui.ledger.locks import RoleLock
from eagletui.runs.folder import RunFolder

SWITCH_S: Final = 0.001
"""A thread that computes gives way so often, so that the loop and the ledger answer orders in time."""


def main(argv: list[str] | None = None) -> int:
    """Run the engine until the run ends, pauses or is interrupted; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m eagletui.engine", description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--exit-when-paused", action="store_true", help="end with code 3 once the run is paused")
    chosen = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise_limit()
    sys.setswitchinterval(SWITCH_S)
    folder = RunFolder(chosen.run_dir)
    try:
        with RoleLock(folder.path, "engine"):
            return uvloop.run(serve(folder, exit_when_paused=chosen.exit_when_paused))
    except EagleError as error:
        logging.getLogger("eagletui.engine").error("%s", error)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
