"""Why two tokenizations differ, in words, over the demo model's own vocabulary."""

import pytest

from eagletui.core.tokdiff import lanes
from eagletui.tui.span_cause import cause
from tests.tui.factory import tokenizer

END = "<|im_end|>"


def ids(text: str) -> list[int]:
    """The canonical encoding."""
    return tokenizer().encode(text)


def pieces(*texts: str | bytes) -> list[int]:
    """One token for each text."""
    found = [tokenizer().vocabulary.id_of(text if isinstance(text, bytes) else text.encode()) for text in texts]
    return [token_id for token_id in found if token_id is not None]


def bytewise(text: str) -> list[int]:
    """A token for each byte."""
    return pieces(*(bytes([byte]) for byte in text.encode()))


def end() -> int:
    return tokenizer().vocabulary.special_id(END)


def causes(a: list[int], b: list[int], name: str = "proved") -> list[str]:
    vocabulary = tokenizer().vocabulary
    found = lanes(a, b, vocabulary)
    around = [b"", *(vocabulary.decode(lane.a_ids) for lane in found), b""]
    return [
        cause(lane, vocabulary, name, before=around[at], after=around[at + 2])
        for at, lane in enumerate(found)
        if lane.kind != "="
    ]


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (lambda: pieces(" J", "osh"), lambda: pieces(" Josh"), 'The model wrote "·Josh" in 2 tokens, and the'),
        (lambda: pieces(" lamp"), lambda: pieces(" l", "amp"), 'The model wrote "·lamp" in one token; the text'),
        (lambda: bytewise("🌊"), lambda: ids("🌊"), "The model wrote 🌊 (U+1F30A) in pieces: 2 tokens here, 1 token"),
        (lambda: pieces("’"), lambda: bytewise("’"), "The model wrote ’ (U+2019) in 1 token, and the text"),
        (lambda: pieces(*" " * 4), lambda: ids(" " * 4), "The model wrote these blanks (4 spaces) in 4 tokens"),
        (
            lambda: pieces("<", "|", "im", "_", "end", "|", ">"),
            lambda: [end()],
            f"The model spelled {END} out in ordinary tokens",
        ),
        (
            lambda: [end()],
            lambda: pieces("<", "|", "im", "_", "end", "|", ">"),
            f"The model sampled the special token {END}, and the text encoded again spells its letters out",
        ),
        (lambda: ids("ok cha"), lambda: [*ids("ok"), end()], f"{END} (id 2) belongs here, and the proved ids have"),
        (lambda: ids("a\n\nb"), lambda: ids("a b"), "Only blanks differ: 2 newlines against 1 space."),
        (lambda: ids("cafe\u0301"), lambda: ids("café"), "The same letters in other Unicode characters, e\u0301"),
        (lambda: ids("THE"), lambda: ids("the"), "Only capitals differ: T U+0054 latin capital letter t against t"),
        (
            lambda: ids("\u0410pple"),
            lambda: ids("Apple"),
            "Other characters, which may look alike: \u0410 U+0410 cyrillic capital letter a against A U+0041",
        ),
        (lambda: ids("one two"), lambda: ids("something"), 'The texts differ, "one·two" against "something"'),
        (lambda: ids("x 🌊")[:-1], lambda: ids("x "), "The last character of the model is not whole"),
        (lambda: ids("x 🌊")[:-1], lambda: ids("x \ufffd"), "The text has U+FFFD where the model wrote something else"),
        (lambda: [*ids("x"), *bytewise("🌊")[:3]], lambda: ids("x"), "The answer was cut in mid-character"),
        (lambda: [*ids("x\n\n"), end()], lambda: [*ids("x"), end()], "The model sampled these, only blanks (2"),
        (lambda: [*ids("x"), end()], lambda: ids("x"), f'The model sampled these, "{END}", and the text of the reply'),
        (lambda: ids("x"), lambda: [*ids("x"), end()], f'Only the text encoded again has these, "{END}"'),
    ],
)  # fmt: skip
def test_every_kind_of_difference_is_told_by_its_cause(a, b, said) -> None:  # type: ignore[no-untyped-def]
    (found,) = causes(a(), b())
    assert found.startswith(said)


def test_a_character_is_named_though_only_its_middle_differs() -> None:
    (found,) = causes(bytewise("灯台"), ids("灯台"))
    assert found.startswith("The model wrote 台 (U+53F0) in pieces: 2 tokens here, 1 token")


def test_nothing_is_said_of_the_model_where_nothing_is_proved() -> None:
    (found,) = causes(pieces(" J", "osh"), pieces(" Josh"), "stored")
    assert found.startswith('The model may have written "·Josh" in 2 tokens')
    assert found.endswith("nothing proves which of the two the model sampled.")
    (found,) = causes(pieces(" J", "osh"), pieces(" Josh"), "inferred")
    assert found.endswith("train on the inferred ids, not on a re-encoding.")
