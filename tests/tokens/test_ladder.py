"""Proof is proof: for any token list of a real vocabulary, however a server shows it, a proved label has the ids."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from eagletui.core.outputs import RAW
from eagletui.core.reply import Reply
from eagletui.embedded.data import tokenizer_dir
from eagletui.providers.parse import parse_body, parse_events
from eagletui.tokens.answer import Rebuilt, rebuild
from eagletui.tokens.formats import load_format
from eagletui.tokens.load import load_tokenizer
from tests.tokens.servers import shown_groups, stream, whole

SMOLLM2 = load_tokenizer(tokenizer_dir())
VOCABULARY = SMOLLM2.vocabulary
FORMAT = load_format("smollm2")
END = VOCABULARY.special_id("<|im_end|>")

ORDINARY = [token_id for token_id, piece in enumerate(VOCABULARY.pieces) if piece is not None]
BROKEN = [t for t in ORDINARY if VOCABULARY.bytes_of(t).decode("utf-8", "replace").encode() != VOCABULARY.bytes_of(t)]
WHOLE = sorted(set(ORDINARY) - set(BROKEN))
SHORT = [token_id for token_id in ORDINARY if len(VOCABULARY.bytes_of(token_id)) <= 2]

token_lists = st.lists(
    st.sampled_from(ORDINARY) | st.sampled_from(BROKEN) | st.sampled_from(SHORT), min_size=1, max_size=14
)
WORDS = ("🎉", "💌", "の", " ñ", "é", "中文", "👩‍👧", "a", " the")
word_lists = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(
    lambda words: [token_id for word in words for token_id in bytewise(word.encode())]
)
samples = token_lists | word_lists


def bytewise(data: bytes) -> list[int]:
    """The longest pieces from the left: a segmentation that need not be canonical."""
    ids: list[int] = []
    while data:
        size = next(n for n in range(min(len(data), 3), 0, -1) if VOCABULARY.id_of(data[:n]) is not None)
        ids.append(VOCABULARY.id_of(data[:size]) or 0)
        data = data[size:]
    return ids


def rebuilt(reply: Reply) -> Rebuilt:
    """With the demo model's format."""
    return rebuild(reply, SMOLLM2, FORMAT, RAW, max_tokens=None)


def check(reply: Reply, ids: list[int], *, ended: bool) -> Rebuilt:
    """A proved label must have the sampled ids that the server showed, and an ended answer must show all."""
    result = rebuilt(reply)
    assert result.output_ids is not None
    if result.proved:
        shown = sum(size for _, size in shown_groups(ids, VOCABULARY))
        assert result.output_ids == (*ids[:shown], *([END] if ended else [])), result
        assert shown == len(ids) or not ended
    return result


many = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(samples, st.booleans(), st.lists(st.integers(1, 5), max_size=4), st.booleans())
def test_a_stream_called_streamed_has_exactly_the_ids_that_were_sampled(
    ids: list[int], ended: bool, cuts: list[int], counts: bool
) -> None:
    end_id = END if ended else None
    events = stream(ids, VOCABULARY, end_id=end_id, cuts=cuts, counts=counts)
    check(parse_events(events), ids, ended=ended)


@many
@given(samples, st.booleans(), st.sampled_from(["vllm", "llama.cpp"]))
def test_entries_called_logprobs_have_exactly_the_ids_that_were_sampled(
    ids: list[int], ended: bool, server: str
) -> None:
    reply = parse_body(whole(ids, VOCABULARY, end_id=END if ended else None, logprobs=server))
    check(reply, ids, ended=ended)


@given(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=12))
def test_one_whole_token_a_delta_is_always_proved_where_the_end_was_sampled(ids: list[int]) -> None:
    result = check(parse_events(stream(ids, VOCABULARY, end_id=END)), ids, ended=True)
    assert result.evidence == "streamed"
    assert result.drift == 0


@given(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=12))
def test_one_entry_a_token_is_always_proved(ids: list[int]) -> None:
    for server in ("vllm", "llama.cpp"):
        reply = parse_body(whole(ids, VOCABULARY, end_id=END, logprobs=server))
        assert check(reply, ids, ended=True).evidence == "logprobs"


@given(token_lists, st.booleans())
def test_a_stream_without_usage_is_never_called_streamed(ids: list[int], counts: bool) -> None:
    assume(any(True for _ in shown_groups(ids, VOCABULARY)))
    events = stream(ids, VOCABULARY, end_id=END, counts=False, usage=False)
    assert rebuilt(parse_events(events)).evidence == "canonical"


@given(st.lists(st.sampled_from(WHOLE), min_size=3, max_size=10), st.integers(1, 3), st.booleans())
def test_a_stream_with_fewer_tokens_billed_than_it_shows_is_a_conflict(
    ids: list[int], fewer: int, counts: bool
) -> None:
    events = stream(ids, VOCABULARY, end_id=END, counts=counts)
    events[-1]["usage"]["completion_tokens"] -= fewer
    assert rebuilt(parse_events(events)).evidence in ("conflict", "counted")


@pytest.mark.parametrize("piece", ["💌", " ñ"])
def test_a_group_with_two_segmentations_of_its_size_is_not_called_streamed(piece: str) -> None:
    word = VOCABULARY.id_of(b"Hi")
    assert word is not None
    for group in (bytewise(piece.encode()), [VOCABULARY.id_of(bytes([b])) or 0 for b in piece.encode()]):
        result = check(parse_events(stream([word, *group], VOCABULARY, end_id=END)), [word, *group], ended=True)
        assert result.output_ids is not None


def texts_of(events: list[Any]) -> list[int]:
    """Positions of the events that carry text."""
    return [at for at, event in enumerate(events) if event["choices"] and event["choices"][0]["delta"].get("content")]


@many
@given(samples, st.lists(st.integers(1, 5), max_size=4), st.booleans(), st.data())
def test_an_ended_stream_that_lost_an_event_is_never_called_streamed(
    ids: list[int], cuts: list[int], counts: bool, data: st.DataObject
) -> None:
    events = stream(ids, VOCABULARY, end_id=END, cuts=cuts, counts=counts)
    assume(len(texts_of(events)) > 1)
    del events[data.draw(st.sampled_from(texts_of(events)))]
    assert not rebuilt(parse_events(events)).proved


@pytest.mark.parametrize("counts", [False, True])
def test_a_chunk_that_comes_twice_beyond_the_bill_makes_the_text_suspect(counts: bool) -> None:
    ids = list(SMOLLM2.encode("The old lighthouse keeper counted his lamps every evening."))
    events = stream(ids, VOCABULARY, end_id=END, counts=counts)
    for at in texts_of(events):
        result = rebuilt(parse_events([*events[: at + 1], *events[at:]]))
        assert (result.evidence, result.usability) == ("conflict", "text_suspect")
        assert "comes twice" in result.reason


@pytest.mark.parametrize(("text", "billed_off"), [("ha ha ha ha ha", 0), ("The old keeper counted lamps.", -1)])
def test_neither_a_repeated_word_nor_a_short_bill_alone_makes_a_text_suspect(text: str, billed_off: int) -> None:
    events = stream(list(SMOLLM2.encode(text)), VOCABULARY, end_id=END)
    events[-1]["usage"]["completion_tokens"] += billed_off
    result = rebuilt(parse_events(events))
    assert (result.evidence, result.usability) == (
        ("streamed", "usable") if billed_off == 0 else ("conflict", "resegmented")
    )


@many
@given(st.lists(st.sampled_from(WHOLE), min_size=2, max_size=14), st.booleans(), st.data())
def test_a_cut_stream_of_one_whole_token_a_delta_that_lost_one_inside_is_never_called_streamed(
    ids: list[int], counts: bool, data: st.DataObject
) -> None:
    """Behind the last text a lost event looks like a cut inside a character, where the answer has such characters."""
    events = stream(ids, VOCABULARY, end_id=None, counts=counts)
    places = texts_of(events)
    ascii_only = VOCABULARY.decode(ids).isascii()
    assume(ascii_only or len(places) > 2)
    del events[data.draw(st.sampled_from(places if ascii_only else places[:-2]))]
    assert not rebuilt(parse_events(events)).proved


@many
@given(samples, st.booleans(), st.sampled_from(["vllm", "llama.cpp"]), st.data())
def test_entries_that_lost_or_repeat_one_are_called_logprobs_only_where_the_ids_are_right(
    ids: list[int], doubled: bool, server: str, data: st.DataObject
) -> None:
    body = whole(ids, VOCABULARY, end_id=END, logprobs=server)
    entries = body["choices"][0]["logprobs"]["content"]
    at = data.draw(st.integers(0, len(entries) - 1))
    entries[at : at + 1] = [entries[at]] * 2 if doubled else []
    check(parse_body(body), ids, ended=True)


def test_a_blank_entry_that_is_repeated_is_not_taken_for_an_end_token_that_is_not_billed() -> None:
    """The server may have taken blanks away, so the text alone does not say how many there were."""
    blanks = VOCABULARY.id_of(b"  ")
    assert blanks is not None
    body = whole([blanks], VOCABULARY, end_id=END, logprobs="vllm")
    body["choices"][0]["logprobs"]["content"][:1] *= 2
    assert not check(parse_body(body), [blanks], ended=True).proved


@many
@given(samples, st.lists(st.integers(0, 30), min_size=1, max_size=3))
def test_usage_that_is_sent_more_than_once_changes_nothing(ids: list[int], places: list[int]) -> None:
    events = stream(ids, VOCABULARY, end_id=END)
    once = rebuilt(parse_events(events))
    for place in places:
        events.insert(min(place, len(events)), events[-1])
    again = rebuilt(parse_events(events))
    assert (again.evidence, again.output_ids, again.billed) == (once.evidence, once.output_ids, once.billed)


@many
@given(samples, st.lists(st.integers(1, 4), max_size=3), st.booleans(), st.booleans())
def test_a_stream_without_a_finish_reason_is_never_called_streamed(
    ids: list[int], cuts: list[int], counts: bool, ended: bool
) -> None:
    """Its end token would be a guess: it may as well have broken off."""
    events = stream(ids, VOCABULARY, end_id=END if ended else None, cuts=cuts, counts=counts)
    for event in events:
        for choice in event["choices"]:
            choice["finish_reason"] = None
    assert not rebuilt(parse_events(events)).proved


def test_counts_that_run_backward_make_the_text_suspect() -> None:
    events = stream(list(SMOLLM2.encode("The old keeper counted lamps.")), VOCABULARY, end_id=END, counts=True)
    first, second = texts_of(events)[1:3]
    events[first], events[second] = events[second], events[first]
    result = rebuilt(parse_events(events))
    assert (result.evidence, result.usability) == ("conflict", "text_suspect")
    assert "out of order" in result.reason


def test_text_with_replaced_bytes_is_neither_counted_nor_usable_where_nothing_proves_its_ids() -> None:
    text = "The old \ufffd keeper."
    billed = len(SMOLLM2.encode(text)) + 1
    result = rebuilt(
        parse_body(
            {
                "choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": billed},
            }
        )
    )
    assert (result.evidence, result.usability) == ("conflict", "text_suspect")
    assert "U+FFFD" in result.reason
