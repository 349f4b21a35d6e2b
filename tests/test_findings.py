"""Systematic faults over files of replies: each is named with how many of how many, an example and what to do."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from eagletui.core.findings import Finding
from eagletui.embedded.data import tokenizer_dir
from eagletui.recorded.reconstruct import Outcome, prepare, reconstruct_file
from eagletui.recorded.replies import read_recorded
from eagletui.tokens.formats import load_format
from eagletui.tokens.load import Tokenizer, load_tokenizer
from eagletui.tokens.prompt import encode_rendered

KIMI_FOLDER = Path(__file__).parent / "data" / "tokenizers" / "kimi-shaped"
PROVED = ("served", "logprobs", "streamed")


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    return load_tokenizer(tokenizer_dir())


@pytest.fixture(scope="module")
def kimi() -> Tokenizer:
    return load_tokenizer(KIMI_FOLDER)


def outcome(
    tmp_path: Path, lines: Iterable[dict[str, Any]], tokenizer: Tokenizer | None, fmt: str, profile: str = "kept"
) -> Outcome:
    """Reconstruct lines as the command does."""
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    records = read_recorded(path, tokenizer)
    return reconstruct_file(records, prepare(records, tokenizer, load_format(fmt), profile))


def the_only(found: Outcome, kind: str) -> Finding:
    """The one finding there is; it says all that a finding has to say."""
    assert [finding.kind for finding in found.findings] == [kind]
    (finding,) = found.findings
    assert 0 < finding.affected <= finding.examined
    assert str(finding.affected) in finding.sentence
    assert str(finding.examined) in finding.sentence
    assert finding.example in {line["id"] for line in found.lines}
    assert finding.action
    return finding


WORDS = "One could say that numbers such as {} are not what they seem to be, and leave it there."


def plain(
    number: int, tokenizer: Tokenizer, *, more: int = 0, provider: str = "A", finish: str = "stop"
) -> dict[str, Any]:
    """A reply whose bill is what its text costs, and `more`."""
    text = WORDS.format(number * 7919)
    billed = len(tokenizer.encode(text)) + (finish == "stop") + more
    return {
        "id": f"{provider}-{number}",
        "response": {
            "provider": provider,
            "choices": [{"message": {"content": text}, "finish_reason": finish}],
            "usage": {"prompt_tokens": 9, "completion_tokens": billed},
        },
    }


def test_a_constant_that_no_named_cause_explains_is_a_finding_and_grants_nothing(
    tmp_path: Path, smollm2: Tokenizer
) -> None:
    found = outcome(tmp_path, [plain(n, smollm2, more=7 if n < 25 else 0) for n in range(30)], smollm2, "smollm2")
    finding = the_only(found, "constant")
    assert "25 of 30 answers that ended with stop" in finding.sentence
    assert "7 tokens more than counted, and no named cause explains that" in finding.sentence
    assert {line["evidence"] for line in found.lines} == {"conflict"}
    assert found.summary["offsets"] == {}


def test_an_endpoint_whose_drift_leaves_the_others_is_named(tmp_path: Path, smollm2: Tokenizer) -> None:
    lines = [plain(n, smollm2, provider=provider) for provider in ("A", "B") for n in range(20)]
    odd = [plain(n, smollm2, provider="C", more=(0, 0, 0, 3, -2)[n % 5]) for n in range(20)]
    finding = the_only(outcome(tmp_path, [*lines, *odd], smollm2, "smollm2"), "endpoint")
    assert finding.endpoint == "C"
    assert "Endpoint C disagrees with the bill in 8 of 20 samples, the others in 0 of 40" in finding.sentence


def streamed(line: dict[str, Any], pieces: list[str]) -> dict[str, Any]:
    """The same reply as a stream of these pieces."""
    response = line["response"]
    events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    finish = response["choices"][0]["finish_reason"]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    events.append({"choices": [], "usage": response["usage"]})
    return {"id": line["id"], "events": [{**event, "provider": response["provider"]} for event in events]}


def test_streams_cut_into_other_pieces_than_tokens_prove_nothing_not_even_where_they_fit_their_bill(
    tmp_path: Path, smollm2: Tokenizer
) -> None:
    lines = [plain(n, smollm2) for n in range(12)]
    texts = [line["response"]["choices"][0]["message"]["content"] for line in lines]
    typed = [
        streamed(line, [text[at : at + 3] for at in range(0, len(text), 3)])
        for line, text in zip(lines, texts, strict=True)
    ]
    by_token = [smollm2.vocabulary.bytes_of(token).decode() for token in smollm2.encode(texts[0])]
    lucky = {**streamed(lines[0], by_token), "id": "A-lucky"}
    assert outcome(tmp_path, [lucky], smollm2, "smollm2").lines[0]["evidence"] == "streamed"
    found = outcome(tmp_path, [*typed, lucky], smollm2, "smollm2")
    finding = the_only(found, "cut_anew")
    assert "12 of 13 streams need more tokens than were billed" in finding.sentence
    assert not {line["evidence"] for line in found.lines} & {*PROVED, "counted"}
    assert "other pieces than tokens" in found.lines[-1]["reason"]


def prompted(line: dict[str, Any], tokenizer: Tokenizer, *, more: int, tools: bool = False) -> dict[str, Any]:
    """The same reply with the request it answers, billed `more` than the chat template writes."""
    ask = " ".join(["why"] * (1 + len(line["id"]) * int(line["id"].rpartition("-")[2]) % 11))
    text = f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{ask}<|im_end|>\n<|im_start|>assistant\n"
    usage = {**line["response"]["usage"], "prompt_tokens": len(encode_rendered(text, tokenizer)) + more}
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ask}]
    request: dict[str, Any] = {"messages": messages}
    if tools:
        request["tools"] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    return {**line, "request": request, "response": {**line["response"], "usage": usage}}


def test_prompts_billed_otherwise_by_a_constant_are_a_finding_and_not_handed_on(
    tmp_path: Path, smollm2: Tokenizer
) -> None:
    lines = [prompted(plain(n, smollm2), smollm2, more=12) for n in range(30)]
    found = outcome(tmp_path, lines, smollm2, "smollm2")
    finding = the_only(found, "prompt")
    assert "30 of 30 prompts are billed 12 tokens more than the chat template writes" in finding.sentence
    assert not any("prompt_ids" in line for line in found.lines)
    assert found.summary["prompts"] == {"rendered": 30, "billed_alike": 0}


def test_tools_that_a_server_writes_otherwise_are_told_from_prompts_without_tools(
    tmp_path: Path, smollm2: Tokenizer
) -> None:
    lines = [prompted(plain(n, smollm2), smollm2, more=0) for n in range(15)]
    lines += [prompted(plain(n, smollm2), smollm2, more=90 + n, tools=True) for n in range(15, 30)]
    found = outcome(tmp_path, lines, smollm2, "smollm2")
    finding = the_only(found, "prompt")
    assert "15 of 15 prompts with tools are billed otherwise" in finding.sentence
    assert found.summary["prompts"] == {"rendered": 30, "billed_alike": 15}
    assert all("prompt_ids" in line for line in found.lines[:15])


def test_prompts_that_are_billed_as_rendered_or_without_any_rule_are_no_finding(
    tmp_path: Path, smollm2: Tokenizer
) -> None:
    for more in (lambda n: 0, lambda n: n - 3):
        lines = [prompted(plain(n, smollm2), smollm2, more=more(n)) for n in range(20)]
        assert outcome(tmp_path, lines, smollm2, "smollm2").findings == ()


SECTION = "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>"
CALL = "<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"


def calling(
    number: int,
    tokenizer: Tokenizer,
    written: str,
    shown: str,
    *,
    provider: str = "A",
    served: bool = False,
    usage: bool = True,
) -> dict[str, Any]:
    """An answer with one call: the arguments that the model wrote, and what the server shows of them."""
    thought = f"They want to know about case {number}."
    raw = f"{thought}</think>{SECTION.format(CALL.format(name='find', arguments=written))}<|im_end|>"
    ids = list(encode_rendered(raw, tokenizer))
    call = {"id": "functions.find:0", "type": "function", "function": {"name": "find", "arguments": shown}}
    choice = {
        "message": {"content": None, "reasoning": thought, "tool_calls": [call]},
        "finish_reason": "tool_calls",
        **({"token_ids": ids} if served else {}),
    }
    bill = {"usage": {"prompt_tokens": 9, "completion_tokens": len(ids)}} if usage else {}
    return {"id": f"{provider}-call-{number}", "response": {"provider": provider, "choices": [choice], **bill}}


def spaced(number: int) -> str:
    days = list(range(1 + number % 7))
    return json.dumps({"place": f"Paris {number}", "days": days, "unit": {"kind": "c", "exact": True}})


def compact(number: int) -> str:
    return json.dumps(json.loads(spaced(number)), separators=(",", ":"))


def test_arguments_that_proved_ids_write_otherwise_are_a_finding_and_the_ids_stay_the_models(
    tmp_path: Path, kimi: Tokenizer
) -> None:
    lines = [calling(n, kimi, compact(n), spaced(n), served=True) for n in range(6)]
    lines += [calling(n, kimi, spaced(n), spaced(n), served=True) for n in range(6, 10)]
    found = outcome(tmp_path, lines, kimi, "kimi-k2.5")
    finding = the_only(found, "arguments")
    assert finding.sentence.startswith("Rewritten tool arguments: on endpoint A")
    assert "6 of 10 answers with calls write other arguments than shown" in finding.sentence
    assert {line["evidence"] for line in found.lines} == {"served"}
    assert compact(0) in found.lines[0]["raw"]


def test_arguments_whose_other_spelling_gives_the_billed_counts_are_a_finding_and_never_counted(
    tmp_path: Path, kimi: Tokenizer
) -> None:
    lines = [calling(n, kimi, compact(n), spaced(n)) for n in range(16)]
    lines += [plain_kimi(n, kimi) for n in range(40)]
    found = outcome(tmp_path, lines, kimi, "kimi-k2.5")
    finding = the_only(found, "arguments")
    assert "16 agree once the arguments are compact" in finding.sentence
    assert {line["evidence"] for line in found.lines[:16]} == {"conflict"}
    assert {line["evidence"] for line in found.lines[16:]} == {"counted"}


def plain_kimi(number: int, tokenizer: Tokenizer) -> dict[str, Any]:
    text, thought = WORDS.format(number * 7919), "Easy."
    ids = encode_rendered(f"{thought}</think>{text}<|im_end|>", tokenizer)
    message = {"content": text, "reasoning": thought}
    return {
        "id": f"plain-{number}",
        "response": {
            "provider": "A",
            "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": {"completion_tokens": len(ids)},
        },
    }


def test_a_profile_that_says_so_makes_rewritten_arguments_no_news(tmp_path: Path, kimi: Tokenizer) -> None:
    profile = tmp_path / "rewriting.toml"
    profile.write_text('name = "mine"\ntitle = "Mine"\nsource = "a test"\n[default]\narguments = "reserialised"\n')
    lines = [calling(n, kimi, compact(n), spaced(n)) for n in range(20)]
    found = outcome(tmp_path, lines, kimi, "kimi-k2.5", str(profile))
    assert "arguments" not in {finding.kind for finding in found.findings}
    assert compact(3) in found.lines[3]["raw"]


def test_the_spelling_of_arguments_tells_an_endpoint_that_rewrites_without_any_count(
    tmp_path: Path, kimi: Tokenizer
) -> None:
    mine = [calling(n, kimi, spaced(n), compact(n), provider="B", usage=False) for n in range(20)]
    others = [calling(n, kimi, spaced(n), spaced(n), provider="A", usage=False) for n in range(30)]
    for tokenizer in (None, kimi):
        finding = the_only(outcome(tmp_path, [*mine, *others], tokenizer, "kimi-k2.5"), "arguments")
        assert finding.endpoint == "B"
        assert "the arguments of 20 of 20 calls are compact" in finding.sentence
    assert outcome(tmp_path, [*mine[:19], *others], None, "kimi-k2.5").findings == ()
    assert outcome(tmp_path, mine, None, "kimi-k2.5").findings == ()


def test_escapes_for_every_character_beyond_ascii_tell_it_too(tmp_path: Path, kimi: Tokenizer) -> None:
    written = [json.dumps({"place": f"Zürich {n}"}, ensure_ascii=False) for n in range(20)]
    lines = [calling(n, kimi, text, json.dumps(json.loads(text)), usage=False) for n, text in enumerate(written)]
    finding = the_only(outcome(tmp_path, lines, None, "kimi-k2.5"), "arguments")
    assert "20 of 20 calls write every character beyond ASCII as an escape" in finding.sentence
    kept = [calling(n, kimi, text, text, usage=False) for n, text in enumerate(written)]
    assert outcome(tmp_path, kept, None, "kimi-k2.5").findings == ()


@pytest.mark.parametrize("kind", ["summary", "encrypted"])
def test_answers_whose_reasoning_came_unreadable_are_unusable_whatever_their_count(
    kind: str, tmp_path: Path, kimi: Tokenizer
) -> None:
    detail = {"type": f"reasoning.{kind}", "data": "zzz", "summary": "Easy."}
    lines = []
    for number in range(12):
        line = plain_kimi(number, kimi)
        message = line["response"]["choices"][0]["message"]
        reasoning = message.pop("reasoning")
        message["reasoning_details"] = [detail]
        if number % 2:
            message["reasoning"] = reasoning
        if number % 3 == 0:
            events = [{"choices": [{"index": 0, "delta": {**message, "content": ""}}]}]
            events.append({"choices": [{"index": 0, "delta": {"content": message["content"]}}]})
            events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            events.append({"choices": [], "usage": line["response"]["usage"]})
            line = {"id": line["id"], "events": events}
        lines.append(line)
    found = outcome(tmp_path, lines, kimi, "kimi-k2.5")
    assert {line["usability"] for line in found.lines} == {"unusable"}
    assert all(f"the reasoning came as {kind}" in line["reason"].lower() for line in found.lines)
    assert {line["evidence"] for line in found.lines} == {"conflict"}
