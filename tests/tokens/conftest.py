"""Real tokenizers, loaded once."""

from pathlib import Path

import pytest

from eagletui.embedded.data import tokenizer_dir
from eagletui.tokens.load import Tokenizer, load_tokenizer

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="session")
def smollm2() -> Tokenizer:
    """SmolLM2's tokenizer.json, as the demo uses it."""
    return load_tokenizer(tokenizer_dir())


@pytest.fixture(scope="session")
def kimi() -> Tokenizer:
    """A tiktoken.model with the layout and the special ids of Kimi K2.5."""
    return load_tokenizer(DATA / "tokenizers" / "kimi-shaped")
