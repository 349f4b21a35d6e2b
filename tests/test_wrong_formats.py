"""Every family's answers read with every plausible wrong format: the fault is named, no count is called `counted`."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagletui.core.fidelity import PROVED
from eagletui.core.outputs import OutputFormat, Reasoning, Tools
from eagletui.embedded.data import tokenizer_dir
from eagletui.recorded.ids import read_recorded_ids
from eagletui.recorded.reconstruct import Outcome, prepare, reconstruct_file
from eagletui.recorded.replies import Recorded, read_recorded
from eagletui.recorded.validate import validate_file
from eagletui.tokens.formats import list_formats, load_format
from eagletui.tokens.load import Tokenizer, load_tokenizer
from tests.tokens.test_formats_views import rows

DATA = Path(__file__).parent / "data"
CAPTURES = DATA / "captures"
FAMILIES = tuple(dict.fromkeys(line["family"] for line in rows()))
SERVERS = {"vllm-0.32.0": "vllm@0.32", "sglang-0.5.23": "sglang@0.5.23"}
FEW = 8
"""Lines of a family in the default run; `slow` takes all of them."""


def faults(fmt: OutputFormat) -> Iterator[tuple[str, OutputFormat, str]]:
    """One wrong format after another: what was changed, the format, a word that the finding must say."""
    rule, tools = fmt.reasoning, fmt.tools
    other = next((one for one in fmt.specials if one not in (fmt.end.stop, fmt.end.tool_calls)), "<eos>")
    yield "end token", replace(fmt, end=replace(fmt.end, stop=other, tool_calls="")), "end token"
    yield "end token is none", replace(fmt, end=replace(fmt.end, stop="<other>", tool_calls="")), "end token"
    if fmt.end.tool_calls not in ("", fmt.end.stop):
        yield "end of calls", replace(fmt, end=replace(fmt.end, tool_calls=fmt.end.stop)), "end token on tool_calls"
    if rule.opened_by == "none":
        added = Reasoning(opened_by="prompt", open="<think>", close="</think>")
        yield "reasoning", replace(fmt, reasoning=added), "reasoning"
    else:
        for name, change, word in (
            ("no close tag", {"close": ""}, "close"),
            ("another close tag", {"close": "</thinking>"}, "close"),
            ("glue before", {"before_close": "" if rule.before_close else "\n"}, "glue"),
            ("glue behind", {"after_close": "" if rule.after_close else "\n\n"}, "glue"),
            ("glue doubled", {"after_close": rule.after_close * 2 or "\n"}, "glue"),
            ("opener", {"opened_by": "prompt" if rule.opened_by == "model" else "model"}, "opened by"),
        ):
            yield name, replace(fmt, reasoning=replace(rule, **change)), word  # type: ignore[arg-type]
        yield "no reasoning", replace(fmt, reasoning=Reasoning()), "close"
    if tools.codec != "none":
        for name, part, word in (
            ("between calls", {"between": "" if tools.between else "\n"}, "glue between calls"),
            ("behind calls", {"after": "" if tools.after else "\n"}, "glue behind the calls"),
            ("before calls", {"before_with_content": "" if tools.before_with_content else "\n"}, "glue"),
            ("opening of calls", {"open": f"\n\n{tools.open}"}, "tool section opens with"),
            ("calls", {"each": tools.each.replace("{arguments}", " {arguments}\n")}, "a call is written"),
        ):
            yield name, replace(fmt, tools=replace(tools, **part)), word  # type: ignore[arg-type]
        yield "no calls", replace(fmt, tools=Tools()), "a"
    if tools.codec == "parameters":
        yield "parameters", replace(fmt, tools=replace(tools, parameter=f"{tools.parameter}\n")), "parameter"
    if fmt.content.open:
        yield "header", replace(fmt, content=replace(fmt.content, open="")), "header of the content"


def siblings(fmt: OutputFormat) -> Iterator[tuple[str, OutputFormat, str]]:
    """Other families' formats that write something else."""
    for other in list_formats():
        written = replace(
            other.reasoning,
            off=fmt.reasoning.off,
            on=fmt.reasoning.on,
            default=fmt.reasoning.default,
            absent=fmt.reasoning.absent,
            history=fmt.reasoning.history,
            history_kwarg=fmt.reasoning.history_kwarg,
        )
        if (other.end, written, other.content, other.tools) != (fmt.end, fmt.reasoning, fmt.content, fmt.tools):
            yield f"format of {other.name}", other, "Wrong format"


def recorded(lines: list[dict[str, Any]], folder: Path, tokenizer: Tokenizer | None) -> list[Recorded]:
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_recorded(path, tokenizer)


def read_with(records: list[Recorded], tokenizer: Tokenizer | None, fmt: OutputFormat, profile: str) -> Outcome:
    return reconstruct_file(records, prepare(records, tokenizer, fmt, profile))


def assert_named(found: Outcome, what: str, word: str) -> None:
    said = [finding.sentence for finding in found.findings]
    assert any(word in sentence for sentence in said), f"{what}: {said}"
    labels = {line["evidence"] for line in found.lines}
    assert "counted" not in labels, what
    wrong = [line["id"] for line in found.lines if line["evidence"] in PROVED and line.get("exact") is False]
    assert not wrong, f"{what}: wrong ids under a proof: {wrong}"


def assert_all_named(
    lines: list[dict[str, Any]], tokenizer: Tokenizer | None, family: str, profile: str, folder: Path, *, more: bool
) -> None:
    """The right format has no finding; every wrong one is named."""
    fmt = load_format(family)
    records = recorded(lines, folder, tokenizer)
    assert read_with(records, tokenizer, fmt, profile).findings == ()
    for what, wrong, word in (*faults(fmt), *(siblings(fmt) if more else ())):
        assert_named(read_with(records, tokenizer, wrong, profile), f"{family}, {what}", word)


@pytest.mark.parametrize("family", FAMILIES)
def test_text_alone_names_a_wrong_format_by_the_model_that_answered(family: str, tmp_path: Path) -> None:
    lines = [line for line in rows() if line["family"] == family][:FEW]
    assert_all_named(lines, None, family, SERVERS[lines[0]["server"]], tmp_path, more=False)


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_family_is_read_with_another_ones_format_unnoticed(family: str, server: str, tmp_path: Path) -> None:
    lines = [line for line in rows() if (line["family"], line["server"]) == (family, server)]
    assert_all_named(lines, None, family, SERVERS[server], tmp_path, more=True)
    if family == "kimi-k2.5":
        tokenizer = load_tokenizer(DATA / "tokenizers" / "kimi-shaped")
        assert_all_named(lines, tokenizer, family, SERVERS[server], tmp_path, more=True)


@pytest.mark.slow
@pytest.mark.parametrize("endpoint", [None, "Endpoint-A", "Endpoint-B"])
def test_counts_name_a_wrong_format_also_where_the_stop_token_is_not_billed(
    endpoint: str | None, tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in (CAPTURES / "kimi-shaped-replies.jsonl").read_text().splitlines()]
    lines = [line for line in lines if endpoint in (None, line["response"]["provider"])]
    tokenizer = load_tokenizer(DATA / "tokenizers" / "kimi-shaped")
    assert_all_named(lines, tokenizer, "kimi-k2.5", "kept", tmp_path, more=True)


@pytest.mark.slow
@pytest.mark.parametrize("capture", sorted(path.stem for path in CAPTURES.glob("smollm2-*.jsonl")))
def test_served_logged_streamed_and_plain_answers_name_a_wrong_format(capture: str, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (CAPTURES / f"{capture}.jsonl").read_text().splitlines()]
    assert_all_named(lines, load_tokenizer(tokenizer_dir()), "smollm2", "kept", tmp_path, more=True)


def test_a_format_of_a_shipped_name_over_other_literals_is_named_without_any_model(tmp_path: Path) -> None:
    lines = [json.loads(json.dumps(line)) for line in rows() if line["family"] == "glm-4.7"][:FEW]
    for line in lines:
        line["response"]["model"] = line["request"]["model"] = "mine"
    records = recorded(lines, tmp_path, None)
    fmt = load_format("glm-4.7")
    assert read_with(records, None, fmt, "vllm@0.32").findings == ()
    wrong = replace(fmt, reasoning=replace(fmt.reasoning, after_close="\n"))
    assert_named(
        read_with(records, None, wrong, "vllm@0.32"), "glue", "glue behind the close tag '\\n' where glm-4.7 has ''"
    )


@pytest.mark.parametrize(
    "change", ["end token", "end token is none", "no close tag", "another close tag", "glue behind", "no reasoning"]
)
def test_recorded_ids_name_a_wrong_format_and_are_not_accepted(change: str) -> None:
    tokenizer = load_tokenizer(DATA / "tokenizers" / "kimi-shaped")
    records = read_recorded_ids(CAPTURES / "kimi-shaped-truth.jsonl", tokenizer)
    fmt = load_format("kimi-k2.5")
    assert validate_file(records, tokenizer, fmt)[1]["accepted"]
    wrong, word = next((wrong, word) for what, wrong, word in faults(fmt) if what == change)
    _, summary = validate_file(records, tokenizer, wrong)
    assert not summary["accepted"]
    assert any(word in finding["sentence"] for finding in summary["findings"]), summary["findings"]
