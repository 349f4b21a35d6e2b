"""The reply's texts beside the raw text: what was stripped, what was lost, what cannot be read."""

import json
from pathlib import Path

import pytest

from eagletui.tui.evidence_worth import BASIS, MEASURED, worth
from eagletui.tui.reply_text import ReplyPart, compare_texts, place_name, reply_parts, texts_sentence
from eagletui.tui.sample_order import SampleOrder
from tests.tui.driving import NARROW, opened
from tests.tui.factory import HOSTILE, Built


def body(**message: object) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", **message}}]}).encode()


def plain(pieces: tuple[tuple[str, str], ...]) -> str:
    return "".join(text for text, _ in pieces)


def test_texts_of_a_reply_come_in_the_order_a_model_writes_them() -> None:
    call = {"id": "c1", "function": {"name": "look", "arguments": '{"at": "sea"}'}}
    parts = reply_parts(body(content="Done.", reasoning="Hm.", tool_calls=[call]), "json")
    assert parts == [
        ReplyPart("reasoning", "Hm."),
        ReplyPart("content", "Done."),
        ReplyPart("tool call look", '{"at": "sea"}'),
    ]


def test_a_stream_is_joined_and_its_end_mark_and_broken_lines_are_passed_over() -> None:
    deltas = [
        {"reasoning_content": "H"},
        {"reasoning_content": "m."},
        {"content": "Do"},
        {"content": "ne."},
        {"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": '{"a'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '": 1}'}}]},
    ]
    lines = [f"data: {json.dumps({'choices': [{'delta': delta}]})}" for delta in deltas]
    stream = "\n\n".join([": comment", *lines, 'data: {"choi', "data: [DONE]"]).encode()
    assert [(part.name, part.text) for part in reply_parts(stream, "sse")] == [
        ("reasoning", "Hm."),
        ("content", "Done."),
        ("tool call look", '{"a": 1}'),
    ]


def test_what_cannot_be_read_is_shown_as_it_is() -> None:
    for data in (b"<html>502</html>", b"[1]", b'{"choices": 5}', b"\xff{"):
        assert reply_parts(data, "json") == [ReplyPart("body", data.decode("utf-8", "replace"))]


def test_what_the_api_stripped_stands_in_brackets_and_is_counted() -> None:
    raw = "<think>\nHm.\n</think>\n\nDone.<|im_end|>"
    compared = compare_texts([ReplyPart("reasoning", " Hm.\n"), ReplyPart("content", "Done.")], raw)
    assert plain(compared.raw) == "[<think>⏎]\nHm.[⏎</think>⏎⏎]\nDone.[<|im_end|>]"
    # Everything but "Hm." and "Done.".
    assert (compared.stripped, compared.lost) == (len(raw) - 8, 0)
    assert "29 characters in [ ] at the right are not in the reply" in texts_sentence(compared)
    assert texts_sentence(compare_texts([ReplyPart("content", "Done.")], "Done.")).startswith("The reply has the whole")


def test_what_was_rewritten_is_marked_on_the_side_of_the_reply() -> None:
    compared = compare_texts([ReplyPart("content", "Done!")], "Done.")
    assert plain(compared.reply) == "[content]\n[Done!]\n"
    assert (compared.stripped, compared.lost) == (5, 5)
    assert "5 characters in [ ] at the left" in texts_sentence(compared)


def test_a_label_says_how_often_it_was_right_and_on_what_that_was_measured() -> None:
    assert worth("streamed") == f"streamed: right for 146 of 146, measured on {BASIS}"
    assert worth("counted").endswith("Nothing in a text tells which ones are right.")
    assert worth("inferred") == "inferred: how often it is right was not measured"


def test_the_figures_on_the_screen_are_those_of_the_readme() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    for evidence, measured in MEASURED.items():
        (line,) = (line for line in readme.splitlines() if line.startswith(f"| `{evidence}` |"))
        assert f"| {measured.right} of {measured.of} |" in line


@pytest.mark.slow
async def test_texts_are_shown_by_key_beside_each_other_and_hostile_ones_are_harmless(hostile: Built) -> None:
    async with opened(hostile, NARROW) as screens:
        await screens.press("2", "enter", "v")
        assert "Reply as returned, json" in screens.text
        assert "Raw text, rebuilt" in screens.text
        for _ in HOSTILE[::5]:
            await screens.press("right_square_bracket")
            assert "\x1b" not in screens.text
        await screens.press("t")
        assert "in context" in screens.text
        await screens.press("v")
        screens.app.open_sample("s-000055", SampleOrder(keys=("s-000055", "s-000001")))
        await screens.settle()
        await screens.press("v")
        assert "There is no reply to show." in screens.text
        await screens.press("right_square_bracket", "v", "left_square_bracket")
        assert "No ids: the sample is queued." in screens.text, "texts of another sample do not stay"
        await screens.press("escape")
        await screens.press("v")
        assert "Raw text, rebuilt" not in screens.text


def test_a_byte_of_the_raw_text_is_placed_in_the_reply() -> None:
    parts = [ReplyPart("reasoning", "naïve"), ReplyPart("content", " Yes. "), ReplyPart("tool call f", '{"a": 1}')]
    raw = 'naïve</think>Yes.<call>f{"a": 1}</call><|im_end|>'
    data = raw.encode()

    def place(text: str) -> str:
        return place_name(parts, raw, data.index(text.encode()))

    assert place("ve<") == "reasoning"
    assert place("</think>") == ""
    assert place("es.") == "content"
    assert place('"a"') == "tool call f"
    assert place("<|im_end|>") == ""
    assert place_name(parts, raw, len(data)) == ""
