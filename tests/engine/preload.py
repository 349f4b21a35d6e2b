"""What engines of tests share: imported, with the tokenizer built, by the process that they are forked from."""

import os

# Encoding after a fork must not wait for threads that the fork did not copy.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import eagletui.engine.__main__  # noqa: F401
from eagletui.embedded.data import tokenizer_dir
from eagletui.tokens.formats import list_formats
from eagletui.tokens.load import load_tokenizer

load_tokenizer(tokenizer_dir())  # the same files are built once in a process, and so in its children
list_formats()
