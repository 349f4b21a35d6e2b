"""What workers of the demo load, loaded: imported by the process that the workers of tests are forked from."""

import gc
import os

# Encoding after a fork must not wait for threads that the fork did not copy.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from eagletui.embedded import __main__ as provider
from eagletui.embedded.backend import load_prompt_counter
from eagletui.embedded.data import tokenizer_dir
from eagletui.embedded.deltas import load_vocabulary
from eagletui.engine import __main__ as engine
from eagletui.tokens.formats import list_formats
from eagletui.tokens.load import load_tokenizer

MAINS = {"eagletui.engine": engine.main, "eagletui.embedded": provider.main}
"""By what `python -m` would be given."""

list_formats()
load_tokenizer(tokenizer_dir())
load_vocabulary(tokenizer_dir())
load_prompt_counter(tokenizer_dir())
gc.freeze()
