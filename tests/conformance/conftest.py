"""The released trainers, where they are installed; `.ci/conformance` makes such an environment."""

from pathlib import Path
from typing import Any

import pytest
import torch

from eagletui.extract.widened import is_needed
from tests.export.exported_run import DRAFT_TOKENS, ExportedRun, export, make_run

ROUNDING = 0.02 if is_needed("cpu", "bfloat16") else 0.0
"""How far logits over stored states may lie off the model's own, as a share: nothing, but where the CPU has no units
for bfloat16 the states' products are summed in another order than torch's own. A wrong norm or layer is off by half."""

TRAINERS = ("speculators", "hs_connectors", "specforge", "datasets")


@pytest.fixture(scope="session", autouse=True)
def _trainers() -> None:
    for package in TRAINERS:
        pytest.importorskip(package, reason=f"{package} is not installed: .ci/conformance installs the trainers")
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> ExportedRun:
    return make_run(tmp_path_factory.mktemp("conformance"))


@pytest.fixture(scope="session")
def speculators_export(made: ExportedRun, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("exports") / "speculators"
    return out, export(made, "speculators", out, "--draft-vocab-size", str(DRAFT_TOKENS), "--validation", "25")


@pytest.fixture(scope="session")
def specforge_export(made: ExportedRun, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("exports") / "specforge"
    return out, export(made, "specforge", out, "--draft-vocab-size", str(DRAFT_TOKENS))


@pytest.fixture(scope="session")
def logits(made: ExportedRun) -> dict[tuple[int, ...], torch.Tensor]:
    """The target's own logits by token ids, from transformers alone."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(made.model), dtype=torch.bfloat16, local_files_only=True).eval()
    found = {}
    for prompt, output in made.samples.values():
        ids = (*(prompt or ()), *output)
        with torch.inference_mode():
            found[ids] = model(torch.tensor([ids])).logits[0]
    return found


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return how far tensors lie apart, as a share of the second one."""
    difference = torch.linalg.vector_norm(found.float() - expected.float())
    return float(difference / torch.linalg.vector_norm(expected.float()))
