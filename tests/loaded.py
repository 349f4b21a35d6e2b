"""What workers of the demo load, loaded: imported by the process that the workers of tests are forked from."""

import gc
import os
import tempfile
from pathlib import Path

# Encoding after a fork must not wait for threads that the fork did not copy.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from eagletui.embedded import __main__ as provider
from eagletui.embedded.backend import load_prompt_counter
from eagletui.embedded.data import tokenizer_dir
from eagletui.embedded.deltas import load_vocabulary
from eagletui.engine import __main__ as engine
from eagletui.ledger.writer import LedgerWriter
from eagletui.tokens.fit import fit_checks
from eagletui.tokens.formats import list_formats, load_format
from eagletui.tokens.load import load_tokenizer
from tests.empty_ledger import empty_ledger

MAINS = {"eagletui.engine": engine.main, "eagletui.embedded": provider.main}
"""By what `python -m` would be given."""


def _use_once() -> None:
    """Fill what the package keeps for the rest of a process: formats, a tokenizer, its template, the ledger's shape."""
    list_formats()
    fit_checks(load_tokenizer(tokenizer_dir()), load_format("smollm2"))
    load_vocabulary(tokenizer_dir())
    load_prompt_counter(tokenizer_dir())
    with tempfile.TemporaryDirectory() as folder:
        LedgerWriter(empty_ledger(Path(folder) / "ledger.sqlite")).close()


_use_once()
gc.freeze()
