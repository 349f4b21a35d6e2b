"""Single replies up and down the ladder, with expected ids spelled out."""

from typing import Any

import pytest

from eagletui.core.outputs import RAW
from eagletui.core.reply import Reply
from eagletui.providers.parse import parse_body, parse_events
from eagletui.tokens.answer import Rebuilt, rebuild
from eagletui.tokens.formats import load_format, load_profile
from eagletui.tokens.load import Tokenizer

SMOLLM2 = load_format("smollm2")
KIMI = load_format("kimi-k2.5")


def reply(content: str | None, finish: str = "stop", billed: int | None = None, **more: Any) -> Reply:
    """A whole reply."""
    choice = {"index": 0, "message": {"content": content, **more.pop("message", {})}, "finish_reason": finish, **more}
    usage = {} if billed is None else {"usage": {"prompt_tokens": 3, "completion_tokens": billed}}
    return parse_body({"choices": [choice], **usage})


def smol(given: Reply, tokenizer: Tokenizer, **options: Any) -> Rebuilt:
    return rebuild(given, tokenizer, SMOLLM2, RAW, max_tokens=None, **options)


def test_the_end_token_is_appended_by_id_on_stop_and_not_on_length(smollm2: Tokenizer) -> None:
    words = smollm2.encode("Hello there")
    stopped = smol(reply("Hello there", "stop", len(words) + 1), smollm2)
    assert stopped.output_ids == (*words, smollm2.vocabulary.special_id("<|im_end|>"))
    assert (stopped.evidence, stopped.raw) == ("counted", "Hello there<|im_end|>")
    cut = smol(reply("Hello there", "length", len(words)), smollm2)
    assert (cut.output_ids, cut.evidence, cut.raw) == (tuple(words), "counted", "Hello there")


def test_a_stop_string_ends_an_answer_without_the_end_token(smollm2: Tokenizer) -> None:
    found = smol(reply("Hello there", "stop", 2, stop_reason=" you"), smollm2)
    assert found.output_ids == tuple(smollm2.encode("Hello there"))


def test_without_usage_a_text_is_canonical_and_with_another_count_a_conflict(smollm2: Tokenizer) -> None:
    assert smol(reply("Hello there"), smollm2).evidence == "canonical"
    near = smol(reply("Hello there", "stop", len(smollm2.encode("Hello there")) + 2), smollm2)
    assert (near.evidence, near.usability, near.drift) == ("conflict", "resegmented", 1)
    far = smol(reply("Hello there", "stop", 99), smollm2)
    assert (far.evidence, far.usability) == ("conflict", "text_suspect")
    assert "99 billed" in far.reason


def test_a_named_offset_holds_where_the_model_ended_the_answer(smollm2: Tokenizer) -> None:
    words = len(smollm2.encode("Hello there"))
    stopped = smol(reply("Hello there", "stop", words), smollm2, offset=-1)
    assert (stopped.evidence, stopped.offset, stopped.drift, stopped.excess) == ("counted", -1, 0, -1)
    cut = smol(reply("Hello there", "length", words), smollm2, offset=-1)
    assert (cut.evidence, cut.offset, cut.drift) == ("counted", 0, 0)


def test_an_offset_makes_a_stream_provable_whose_stop_token_is_not_billed(smollm2: Tokenizer) -> None:
    words = smollm2.encode("Hello there, friend")
    deltas = [smollm2.vocabulary.bytes_of(token_id).decode() for token_id in words]
    events = [{"choices": [{"index": 0, "delta": {"content": delta}}]} for delta in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": len(words)}}
    streamed = parse_events([*events, usage])
    assert smol(streamed, smollm2).evidence == "conflict"
    assert smol(streamed, smollm2, offset=-1).evidence == "streamed"
    assert smol(streamed, smollm2, offset=-1, stop_strings=["\n\n"]).evidence == "conflict"
    events[-1]["choices"][0]["stop_reason"] = None
    told = parse_events([*events, usage])
    assert smol(told, smollm2, offset=-1, stop_strings=["\n\n"]).evidence == "counted"


def test_where_a_stop_string_may_have_ended_an_answer_no_end_token_is_taken_for_granted(smollm2: Tokenizer) -> None:
    words = smollm2.encode("Hello there")
    unsaid = smol(reply("Hello there", "stop", len(words) + 1), smollm2, stop_strings=["."])
    assert (unsaid.evidence, unsaid.usability) == ("conflict", "text_suspect")
    assert "does not say whether one ended the answer" in unsaid.reason
    served = smol(reply("Hello there", "stop", len(words), token_ids=words), smollm2, stop_strings=["."])
    assert (served.evidence, served.output_ids) == ("served", tuple(words))
    entries = {"content": [entry(smollm2.vocabulary.bytes_of(word).decode()) for word in words]}
    logged = smol(reply("Hello there", "stop", len(words), logprobs=entries), smollm2, stop_strings=["."])
    assert (logged.evidence, logged.output_ids) == ("logprobs", tuple(words))


def test_served_ids_are_kept_whole_and_their_lost_stop_token_comes_back(smollm2: Tokenizer) -> None:
    words = smollm2.encode("Hello there")
    end = smollm2.vocabulary.special_id("<|im_end|>")
    for given in ([*words, end], words):
        found = smol(reply("Hello there", "stop", len(words) + 1, token_ids=given), smollm2)
        assert (found.evidence, found.output_ids, found.drift) == ("served", (*words, end), 0)
    for billed in (len(words), None):
        found = smol(reply("Hello there", "stop", billed, token_ids=words), smollm2)
        assert (found.evidence, found.output_ids, found.leans_on_format) == ("served", (*words, end), True)


@pytest.mark.parametrize(
    ("ids", "billed", "why"),
    [
        ([1 << 30], 1, "not in the vocabulary"),
        ([100, 200, 300], 9, "3 ids were served and 9 billed"),
        ([100, 200, 300], 3, "decode to other text"),
    ],
)
def test_served_ids_that_cannot_be_right_fall_to_the_next_rung_with_the_reason(
    ids: list[int], billed: int, why: str, smollm2: Tokenizer
) -> None:
    found = smol(reply("Hello there", "length", billed, token_ids=ids), smollm2)
    assert found.evidence in ("conflict", "counted")
    assert found.output_ids == tuple(smollm2.encode("Hello there"))
    assert why in found.reason


def test_nothing_is_proved_by_ids_that_go_on_behind_the_end_token(smollm2: Tokenizer) -> None:
    end = smollm2.vocabulary.special_id("<|im_end|>")
    ids = [*smollm2.encode("Hello there"), end, end]
    served = smol(reply("Hello there", "stop", len(ids), token_ids=ids), smollm2)
    assert (served.evidence, served.output_ids) == ("conflict", tuple(ids[:-1]))
    assert "go on behind the end token" in served.reason
    entries = {"content": [entry(smollm2.vocabulary.bytes_of(token_id).decode()) for token_id in ids]}
    for billed in (len(ids), len(ids) - 1):
        assert not smol(reply("Hello there", "stop", billed, logprobs=entries), smollm2).proved


@pytest.mark.parametrize("extra", [" there", "\n", "."])
def test_ids_and_entries_that_hold_more_than_the_reply_shows_prove_nothing(extra: str, smollm2: Tokenizer) -> None:
    """Blanks may have been taken off; words may not."""
    ids = [*smollm2.encode("Hello there"), *smollm2.encode(extra)]
    is_blank = not extra.strip()
    entries = {"content": [entry(smollm2.vocabulary.bytes_of(token_id).decode()) for token_id in ids]}
    assert smol(reply("Hello there", "length", len(ids), token_ids=ids), smollm2).proved == is_blank
    assert smol(reply("Hello there", "length", len(ids), logprobs=entries), smollm2).proved == is_blank
    fewer = ids[: -len(smollm2.encode(extra))]
    assert not smol(reply("Hello there" + extra, "length", len(fewer), token_ids=fewer), smollm2).proved


def entry(text: str) -> dict[str, Any]:
    return {"token": text, "bytes": list(text.encode()), "logprob": -1.0}


def test_proved_rungs_that_contradict_each_other_are_a_conflict(smollm2: Tokenizer) -> None:
    spelled = {"content": [entry(letter) for letter in "the"]}
    canonical = smollm2.encode("the")
    found = smol(reply("the", "length", None, token_ids=canonical, logprobs=spelled), smollm2)
    assert canonical != [smollm2.vocabulary.id_of(letter.encode()) for letter in "the"]
    assert found.evidence == "conflict"
    assert "Served and logprobs give different ids" in found.reason


def test_a_tail_cut_inside_a_character_is_trimmed_and_named(smollm2: Tokenizer) -> None:
    found = smol(reply("Hello \ufffd", "length", 4), smollm2)
    assert (found.tail_trimmed, found.raw, found.evidence) == (True, "Hello ", "conflict")
    hidden = {"content": [entry("Hello"), {"token": "", "bytes": [], "logprob": -1.0}]}
    proved = smol(reply("Hello", "length", 2, logprobs=hidden), smollm2)
    assert (proved.tail_trimmed, proved.evidence, proved.offset, proved.drift) == (True, "logprobs", 1, 0)


def test_summary_and_encrypted_reasoning_are_unusable(kimi: Tokenizer) -> None:
    for kind in ("reasoning.summary", "reasoning.encrypted"):
        message = {"reasoning_details": [{"type": kind, "summary": "short", "data": "zzz"}]}
        given = reply("Hi", "stop", 5, message=message)
        assert rebuild(given, kimi, KIMI, RAW, max_tokens=None).usability == "unusable"


def test_a_literal_end_token_in_content_stays_ordinary_text(kimi: Tokenizer) -> None:
    given = reply("written <|im_end|> here", "stop", None, message={"reasoning": "so </think> it is"})
    ids = rebuild(given, kimi, KIMI, RAW, max_tokens=None).output_ids or ()
    close, end = kimi.vocabulary.special_id("</think>"), kimi.vocabulary.special_id("<|im_end|>")
    assert [token_id for token_id in ids if kimi.vocabulary.is_special(token_id)] == [close, end]


def kimi_stream(kimi: Tokenizer, reasoning: str, content: str, billed: int) -> Reply:
    """One delta a token, the close tag and the end token never shown."""
    deltas = [{"reasoning": kimi.vocabulary.bytes_of(t).decode()} for t in kimi.encode(reasoning)]
    deltas += [{"content": kimi.vocabulary.bytes_of(t).decode()} for t in kimi.encode(content)]
    events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return parse_events([*events, {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": billed}}])


def test_a_stream_with_reasoning_is_proved_with_its_structure_in_place(kimi: Tokenizer) -> None:
    thought, answer = kimi.encode("Let me see."), kimi.encode("It is four.")
    close, end = kimi.vocabulary.special_id("</think>"), kimi.vocabulary.special_id("<|im_end|>")
    given = kimi_stream(kimi, "Let me see.", "It is four.", len(thought) + len(answer) + 2)
    found = rebuild(given, kimi, KIMI, load_profile("kept"), max_tokens=None)
    assert (found.evidence, found.output_ids) == ("streamed", (*thought, close, *answer, end))
    assert found.raw == "Let me see.</think>It is four.<|im_end|>"


def test_a_server_that_strips_text_never_proves_a_stream(kimi: Tokenizer) -> None:
    tokens = len(kimi.encode("Let me see.")) + len(kimi.encode("It is four.")) + 2
    given = kimi_stream(kimi, "Let me see.", "It is four.", tokens)
    for profile in ("vllm@0.32", "trimmed"):
        found = rebuild(given, kimi, KIMI, load_profile(profile), max_tokens=None)
        assert not found.proved, profile


def test_without_a_tokenizer_the_raw_text_still_comes_back() -> None:
    given = reply("It is four.", "stop", 9, message={"reasoning": "Let me see."})
    found = rebuild(given, None, KIMI, RAW, max_tokens=None)
    assert found.raw == "Let me see.</think>It is four.<|im_end|>"
    assert (found.output_ids, found.counted, found.evidence) == (None, None, "canonical")
