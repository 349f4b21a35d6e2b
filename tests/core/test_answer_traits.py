"""What single answers show. The texts are written for the test, so that a person can say what they show."""

import re

import pytest

from eagletui.core.answer_traits import INDEX, length_of, size, traits_of
from eagletui.core.chat import Message, Prompt
from eagletui.core.reply import FinishReason, Reply
from eagletui.core.scripts import main_script

PROSE = (
    "The river rises in the hills and flows through three towns. Its water drives two mills, and in spring it floods "
    "the meadows below the bridge. Most of the people here live from the trade it brings."
)


def shown(
    text: str, *names: str, asked: str = "Tell me about the river.", finish: FinishReason = "stop"
) -> list[float | None]:
    reply = Reply(None, None, None, text, None, None, (), finish, None, None)
    traits = traits_of(reply, Prompt((Message("user", asked),)))
    return [traits.values[INDEX[name]] for name in names]


FAULTS = ("empty", "loop", "repeats", "broken", "page", "echo", "refusal", "markers", "unclosed", "same")


def test_plain_prose_shows_no_fault() -> None:
    assert shown(PROSE, *FAULTS) == [0.0] * len(FAULTS)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        (PROSE + " and on" * 40, "loop"),
        (PROSE + "." * 200, "loop"),
        (f"{PROSE}\n{PROSE}\n{PROSE}", "repeats"),
        ("Das ist schÃ¶n und fÃ¼r alle gut, sagt die BÃ¼rgermeisterin.", "broken"),
        ("It is \ufffd\ufffd and \ufffd\ufffd again.", "broken"),
        ("<!DOCTYPE html><html><body>502</body></html>", "page"),
        (f"Tell me about the river.\n{PROSE}", "echo"),
        ("I'm sorry, but I can't help with that.", "refusal"),
        ("<|im_start|>assistant\nHello there.", "markers"),
        ('{"city": "Oslo", "days": [1, 2', "unclosed"),
        ("```python\nprint(1)\n", "unclosed"),
    ],
)
def test_a_fault_is_seen(text: str, fault: str) -> None:
    assert shown(text, fault) == [1.0]


@pytest.mark.parametrize(
    ("text", "asked", "fault"),
    [
        ("| a | 1 |\n| b | 2 |\n| c | 3 |\n" * 2, "A table.", "loop"),
        ("<html><body>hi</body></html>", "Write a web page.", "page"),
        ("<|im_start|> opens a turn.", "What does <|im_start|> mean?", "markers"),
        ('{"city": Oslo}', "As JSON.", "unclosed"),
        ("[see the notes] It rains.", "And now?", "unclosed"),
        ("ß, é and ü are letters.", "Which letters?", "broken"),
    ],
)
def test_what_only_looks_like_a_fault_is_none(text: str, asked: str, fault: str) -> None:
    assert shown(text, fault, asked=asked) == [0.0]


def test_an_answer_cut_while_thinking_is_not_called_empty() -> None:
    assert shown("", "empty", "cut", finish="length") == [None, 1.0]


def test_a_canary_is_judged_by_its_pattern_and_other_prompts_are_not() -> None:
    canaries = {"What is 17 * 23?": re.compile(r"\b391\b")}

    def judged(asked: str, text: str, finish: FinishReason = "stop") -> float | None:
        reply = Reply(None, None, None, text, None, None, (), finish, None, None)
        return traits_of(reply, Prompt((Message("user", asked),)), "d", canaries).values[INDEX["canary"]]

    assert judged("What is 17 * 23?\n", "It is 391.") == 0.0
    assert judged("What is 17 * 23?", "It is 3910.") == 1.0
    assert judged("What is 17 * 23?", "It is", "length") is None
    assert judged("What is 17 * 24?", "It is 408.") is None


def test_scripts_are_told_by_their_letters() -> None:
    assert [main_script(text) for text in ("river", "река", "河流很长", "川の水はきれいです", "강물", "12 + 3")] == [
        "latin",
        "cyrillic",
        "han",
        "kana",
        "hangul",
        "",
    ]
    (foreign,) = shown("这条河很长，流过三个城市，春天会淹没草地。", "foreign")
    assert foreign == 1.0
    (foreign, native) = shown("这条河很长，流过三个城市，春天会淹没草地。", "foreign", "native", asked="请介绍这条河。")
    assert (foreign, native) == (0.0, 1.0)


def test_a_length_survives_its_scale() -> None:
    assert [round(length_of(size(length))) for length in (0, 1, 640, 40_000)] == [0, 1, 640, 40_000]
