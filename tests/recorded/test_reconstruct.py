"""Rebuilding files of recorded replies: real captures, wrong formats, broken input, and the command around it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eagletui.core.errors import EagleError, InputError
from eagletui.core.outputs import OutputFormat
from eagletui.embedded.data import tokenizer_dir
from eagletui.recorded.lines import write_lines
from eagletui.recorded.reconstruct import Outcome, prepare, reconstruct_file
from eagletui.recorded.replies import read_recorded
from eagletui.tokens.formats import load_format
from eagletui.tokens.load import Tokenizer, load_tokenizer
from tests.commands import command

DATA = Path(__file__).parents[1] / "data"
CAPTURES = DATA / "captures"
FORMATS = Path(__file__).parents[2] / "eagletui" / "formats"


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    return load_tokenizer(tokenizer_dir())


@pytest.fixture(scope="module")
def kimi() -> Tokenizer:
    return load_tokenizer(DATA / "tokenizers" / "kimi-shaped")


def outcome(capture: str | Path, tokenizer: Tokenizer | None, fmt: OutputFormat, profile: str = "auto") -> Outcome:
    """Reconstruct a file."""
    path = capture if isinstance(capture, Path) else CAPTURES / f"{capture}.jsonl"
    records = read_recorded(path, tokenizer)
    return reconstruct_file(records, prepare(records, tokenizer, fmt, profile))


SMOLLM2_CAPTURES = [
    *(f"smollm2-vllm-{name}" for name in ("served", "logprobs", "stream", "stream-usage", "stream-coalesced", "text")),
    "smollm2-llamacpp-logprobs",
]


@pytest.mark.parametrize("capture", SMOLLM2_CAPTURES)
def test_no_recorded_answer_is_called_proved_with_wrong_ids(capture: str, smollm2: Tokenizer) -> None:
    found = outcome(capture, smollm2, load_format("smollm2"))
    proved = [line for line in found.lines if line["evidence"] in ("served", "logprobs", "streamed")]
    assert all(line["exact"] for line in proved)
    assert found.findings == ()
    assert found.summary["samples"] == found.summary["exact"] + found.summary["mismatched"]


@pytest.mark.parametrize(
    ("capture", "label", "share"),
    [
        ("smollm2-vllm-served", "served", 1.0),
        ("smollm2-vllm-logprobs", "logprobs", 0.8),
        ("smollm2-llamacpp-logprobs", "logprobs", 0.8),
        ("smollm2-vllm-stream", "streamed", 0.6),
        ("smollm2-vllm-stream-usage", "streamed", 0.8),
    ],
)
def test_most_recorded_answers_are_proved(capture: str, label: str, share: float, smollm2: Tokenizer) -> None:
    summary = outcome(capture, smollm2, load_format("smollm2")).summary
    assert summary["by_evidence"][label] >= share * summary["samples"]


def test_stream_boundaries_never_make_text_answers_worse(smollm2: Tokenizer) -> None:
    coalesced = outcome("smollm2-vllm-stream-coalesced", smollm2, load_format("smollm2"))
    text = outcome("smollm2-vllm-text", smollm2, load_format("smollm2"))
    assert coalesced.summary["exact"] >= text.summary["exact"] + 0.1 * coalesced.summary["samples"]


def test_an_equal_count_is_not_taken_for_proof(smollm2: Tokenizer) -> None:
    lines = outcome("smollm2-vllm-text", smollm2, load_format("smollm2")).lines
    wrong = [line for line in lines if line["evidence"] == "counted" and not line["exact"]]
    assert wrong
    assert all(span["kind"] == "~" for line in wrong for span in line["spans"])


def test_spans_lie_in_the_raw_text_and_drift_adds_up(smollm2: Tokenizer) -> None:
    for capture in ("smollm2-vllm-logprobs", "smollm2-vllm-stream", "smollm2-vllm-text"):
        for line in outcome(capture, smollm2, load_format("smollm2")).lines:
            assert line["drift"] == line["billed"] - line["counted"] - line["offset"]
            assert line["counted"] == len(line["output_ids"])
            size = len(line["raw"].encode())
            for span in line["spans"]:
                if span["kind"] == "~":
                    assert 0 <= span["offset"] < span["offset"] + span["length"] <= size


def test_served_prompt_ids_are_handed_on(smollm2: Tokenizer) -> None:
    lines = outcome("smollm2-vllm-served", smollm2, load_format("smollm2")).lines
    assert all(line["prompt_ids"][0] == smollm2.vocabulary.special_id("<|im_start|>") for line in lines)


def test_kimi_replies_are_exact_save_those_that_were_sampled_off_the_canonical_path(kimi: Tokenizer) -> None:
    found = outcome("kimi-shaped-replies", kimi, load_format("kimi-k2.5"))
    for line in found.lines:
        if "noncanonical" in line["id"]:
            assert line["evidence"] == "conflict"
        elif "same-count" in line["id"]:
            assert (line["evidence"], line["exact"]) == ("counted", False)
        else:
            assert (line["evidence"], line["exact"], line["usability"]) == ("counted", True, "usable"), line["id"]
    assert found.findings == ()


def test_the_endpoint_that_does_not_bill_the_stop_token_gets_its_named_offset(kimi: Tokenizer) -> None:
    found = outcome("kimi-shaped-replies", kimi, load_format("kimi-k2.5"))
    assert found.summary["offsets"] == {"Endpoint-B": {"offset": -1, "cause": "stop token not billed"}}
    lines = [line for line in found.lines if "uncounted-stop" in line["id"]]
    assert {(line["offset"], line["drift"]) for line in lines} == {(-1, 0)}


Change = Callable[[str], str]


def changed_format(tmp_path: Path, name: str, *swaps: tuple[str, str]) -> OutputFormat:
    """A shipped format with a fault in it."""
    text = (FORMATS / f"{name}.toml").read_text()
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "changed.toml"
    path.write_text(text)
    return load_format(str(path))


CLOSE = 'close = "</think>"\n'
FAULTS = {
    "glue": ([(CLOSE, 'close = "\\n</think>\\n\\n"\n')], "glue"),
    "glue behind the close tag": ([(CLOSE, CLOSE + 'after_close = "\\n\\n"\n')], "glue"),
    "no close tag": ([(CLOSE, 'close = "\\n"\n')], "</think>"),
    "doubled opener": ([('opened_by = "prompt"', 'opened_by = "model"')], "<think>"),
    "wrong end token": ([('"<|im_end|>"', '"[EOS]"')], "163586"),
    "no end token": ([('stop = "<|im_end|>"', 'stop = ""')], "end token"),
    "claimed id": ([("[end]\n", '[claimed_ids]\n"<|im_end|>" = 163533\n[end]\n')], "163533"),
}
MODELS = ('models = ["moonshotai/kimi-k2.5"]', 'models = ["someone/else"]')


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_format_is_named_and_never_counted(fault: str, tmp_path: Path, kimi: Tokenizer) -> None:
    swaps, named = FAULTS[fault]
    found = outcome("kimi-shaped-replies", kimi, changed_format(tmp_path, "kimi-k2.5", MODELS, *swaps))
    assert "counted" not in found.summary["by_evidence"]
    assert any(named in finding.sentence for finding in found.findings), [f.sentence for f in found.findings]


@pytest.mark.parametrize("name", ["smollm2", "qwen3", "llama-3.1", "deepseek-v4", "kimi-k2", "gpt-oss"])
def test_another_familys_format_is_found_out(name: str, kimi: Tokenizer) -> None:
    found = outcome("kimi-shaped-replies", kimi, load_format(name))
    assert "counted" not in found.summary["by_evidence"]
    assert any(finding.kind in ("missing_close", "end_token", "glue") for finding in found.findings)


@pytest.mark.parametrize("capture", ["served", "logprobs", "stream", "text"])
def test_a_wrong_end_token_is_named_on_every_rung_and_doubts_what_rests_on_it(
    capture: str, tmp_path: Path, smollm2: Tokenizer
) -> None:
    fmt = changed_format(tmp_path, "smollm2", ("<|im_end|>", "<|endoftext|>"))
    found = outcome(f"smollm2-vllm-{capture}", smollm2, fmt)
    assert any(f.kind == "end_token" and "(2)" in f.sentence for f in found.findings)
    proved = [line for line in found.lines if line["evidence"] in ("served", "logprobs", "streamed")]
    assert all(line["exact"] for line in proved)
    assert "counted" not in found.summary["by_evidence"]


def test_without_a_tokenizer_a_wrong_format_is_found_by_the_model_that_answered() -> None:
    found = outcome("kimi-shaped-replies", None, load_format("glm-4.7"))
    assert all(line["output_ids"] is None for line in found.lines)
    assert "counted" not in found.summary["by_evidence"]
    assert any("end token" in finding.sentence for finding in found.findings)
    assert outcome("kimi-shaped-replies", None, load_format("kimi-k2.5")).findings == ()


GOOD = {"id": "a", "response": {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}}


def one_line(tmp_path: Path, value: object) -> Path:
    """A file with one good line and this one behind it."""
    path = tmp_path / "in.jsonl"
    text = value if isinstance(value, str) else json.dumps(value)
    path.write_text(json.dumps(GOOD) + "\n" + text + "\n")
    return path


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "in.jsonl:2: found {, expected JSON"),
        ("[1]", "in.jsonl:2: found [1], expected an object"),
        ({"response": {}}, "in.jsonl:2: field id: found nothing"),
        ({"id": 3.5, "response": {}}, "field id"),
        ({**GOOD, "id": "a\ud800"}, "expected a text without lone surrogates"),
        ({"id": "x"}, "in.jsonl:2: field response: found nothing"),
        ({"id": "x", "response": {}}, "in.jsonl:2: field choices: found nothing"),
        ({"id": "x", "response": "text"}, "in.jsonl:2: found text, expected JSON"),
        ({"id": "x", "events": {}}, "field events: found {}"),
        ({"id": "x", "events": []}, "field events"),
        ({"id": "x", "events": [3]}, "events[0]"),
        ({**GOOD, "request": []}, "field request"),
        ({**GOOD, "truth_ids": "1 2"}, "field truth_ids"),
        ({**GOOD, "truth_ids": [1, 999_999]}, "field truth_ids[1]: found 999999"),
        ({**GOOD, "truth_ids": [1, "2"]}, "field truth_ids[1]"),
    ],
)
def test_a_broken_line_is_named_with_field_found_and_expected(
    line: object, complaint: str, tmp_path: Path, smollm2: Tokenizer
) -> None:
    with pytest.raises(InputError) as caught:
        read_recorded(one_line(tmp_path, line), smollm2)
    assert complaint in str(caught.value)
    assert caught.value.exit_code == 2


def body(**message: object) -> dict[str, Any]:
    """A reply body with a usage that can be changed."""
    return {
        "choices": [{"message": {"content": "Hi", **message}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }


ODD: list[dict[str, Any]] = [
    {"choices": []},
    {"error": {"message": "overloaded"}},
    {**body(), "usage": None},
    {**body(), "usage": {"completion_tokens": 0, "completion_tokens_details": {"reasoning_tokens": 9}}},
    {**body(reasoning="hm"), "usage": {"completion_tokens": 0}},
    {**body(), "usage": {"completion_tokens": "two"}},
    body(content=[{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {}}]),
    body(content=None),
    body(content=""),
    body(content="\ufffd"),
    body(content="\x00\x1b[2J\u202e"),
    body(tool_calls=[{"function": {"name": "f", "arguments": "{broken"}}]),
    body(tool_calls=[{"id": None, "function": {}}]),
    body(reasoning_details=[{"type": "reasoning.encrypted", "data": "zzz"}]),
    {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop", "token_ids": [70_000_000]}]},
    {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop", "token_ids": []}]},
    {"choices": [{"message": {"content": "Hi"}, "finish_reason": None}]},
    {"choices": [{"message": {"content": "Hi"}, "logprobs": {"content": [{"token": "x", "id": 1 << 40}]}}]},
    {"choices": [{"message": {"content": "Hi"}, "logprobs": {"content": [{}, {"bytes": [300]}]}}]},
]


@pytest.mark.parametrize("profile", ["auto", "raw", "vllm@0.32", "sglang"])
@pytest.mark.parametrize("name", ["smollm2", "kimi-k2.5", "qwen3", "gpt-oss"])
def test_odd_replies_never_end_in_a_traceback_and_are_never_proved(
    name: str, profile: str, tmp_path: Path, smollm2: Tokenizer
) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(json.dumps({"id": f"odd-{n}", "response": r}) + "\n" for n, r in enumerate(ODD)))
    for tokenizer in (smollm2, None):
        found = outcome(path, tokenizer, load_format(name), profile)
        assert [line["id"] for line in found.lines] == [f"odd-{n}" for n in range(len(ODD))]
        assert not {"served", "logprobs", "streamed"} & set(found.summary["by_evidence"])
        assert found.lines[13]["usability"] == "unusable"
        json.dumps(found.lines)


@pytest.mark.parametrize(
    "request_", [{"stop": 5}, {"stop": {"a": 1}}, {"stop": [None, 7]}, {"messages": 5, "stop": 1.5}]
)
def test_a_request_that_makes_no_sense_costs_only_what_needs_it(
    request_: dict[str, Any], tmp_path: Path, smollm2: Tokenizer
) -> None:
    path = one_line(tmp_path, {**GOOD, "request": request_})
    assert len(outcome(path, smollm2, load_format("smollm2")).lines) == 2


def test_nothing_half_written_is_left_when_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_lines(tmp_path / "out.jsonl", [{"id": "good"}, {"id": "a\ud800"}])
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_lines_and_prints_one_json_object(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    given = ("--tokenizer", tokenizer_dir(), "--format", "smollm2", CAPTURES / "smollm2-vllm-text.jsonl", out)
    ended = command("reconstruct", *given, "--json")
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert summary["samples"] == len(lines) == 22
    assert {"samples", "by_evidence", "exact", "mismatched", "resegmented", "drift_total", "findings"} <= set(summary)
    assert {"id", "output_ids", "raw", "evidence", "usability", "spans", "exact", "tail_trimmed"} <= set(lines[0])
    told = command("reconstruct", *given)
    assert "no findings" in told.stdout


def test_the_command_writes_nothing_when_a_line_is_broken(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    ended = command("reconstruct", "--tokenizer", tokenizer_dir(), "--format", "smollm2", one_line(tmp_path, "{"), out)
    assert ended.returncode == 2
    assert "in.jsonl:2" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not out.exists()
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize(
    ("option", "value"), [("--format", "kimi-9"), ("--profile", "nonsense@9"), ("--tokenizer", "/nowhere")]
)
def test_a_wrong_option_is_named(option: str, value: str, tmp_path: Path) -> None:
    options = {"--tokenizer": str(tokenizer_dir()), "--format": "smollm2", option: value}
    given = [part for pair in options.items() for part in pair]
    ended = command("reconstruct", *given, CAPTURES / "smollm2-vllm-text.jsonl", tmp_path / "out.jsonl")
    assert ended.returncode == 2
    assert value in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_empty_or_absent_file_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    for path in (empty, tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(EagleError, match=path.name):
            read_recorded(path, None)
