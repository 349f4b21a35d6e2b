"""A run of a tiny random target with features, exported for trainers by the commands that a person uses."""

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from eagletui.cli.app import main
from eagletui.runs.folder import RunFolder
from tests.extract.small_run import Ids, answer_samples, create_run
from tests.tiny_models import Kind, random_samples, save_tiny_model

LENGTHS: Final = (17, 33, 6, 64, 20, 21, 40, 9)
DRAFT_TOKENS: Final = 96


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """What the tests start from."""

    run: RunFolder
    model: Path
    """A random model, saved in several files, its norms far from one."""
    samples: dict[str, Ids]
    """Prompt and output ids by sample key."""


def make_run(
    folder: Path, lengths: Sequence[int] = LENGTHS, *, dtype: str = "bfloat16", kind: Kind = "qwen3"
) -> ExportedRun:
    """Answer samples of these lengths, a third of each its prompt, and extract their features."""
    weights = torch.bfloat16 if dtype == "fp8" else getattr(torch, dtype)
    model = save_tiny_model(folder / f"model-{kind}", kind, dtype=weights)
    run = create_run(folder / "run", model, dtype=dtype)
    made = ExportedRun(run, model, {})
    add_samples(made, lengths)
    return made


def add_samples(made: ExportedRun, lengths: Sequence[int], *, extracted: bool = True) -> None:
    """Answer more samples, and extract their features."""
    first = len(made.samples)
    ids = [(ids[: len(ids) // 3], ids[len(ids) // 3 :]) for ids in random_samples(tuple(lengths), seed=11 + first)]
    answer_samples(made.run, ids, first=first)
    made.samples.update({f"s{first + number}": sample for number, sample in enumerate(ids)})
    if extracted:
        command("extract", str(made.run.path), "--model", str(made.model), "--json")


def command(*args: str, code: int = 0) -> Any:
    """Run a command that prints JSON and return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as end:
        main(args)
    assert end.value.code == code, printed.getvalue()
    return json.loads(printed.getvalue())


def export(made: ExportedRun, trainer: str, out: Path, *args: str) -> Any:
    """Export for a trainer and return what the command printed."""
    return command("export", str(made.run.path), "--to", trainer, "--out", str(out), *args, "--json")


def verify(made: ExportedRun, out: Path, *, code: int) -> dict[str, str]:
    """Check an exported folder and return the failed checks with their details."""
    verdict = command("verify", str(out), "--model", str(made.model), "--json", code=code)
    return {
        check["name"]: check["detail"] for check in verdict["checks"] if not check["ok"] and check["level"] == "error"
    }
