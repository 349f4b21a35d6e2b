"""`auto`: never from fewer than 20 samples, and it says what it saw."""

from eagletui.core.choice import count_tokens
from eagletui.core.reply import Reply, Usage
from eagletui.tokens.formats import load_format
from eagletui.tokens.profiles import Observed, choose_profile, settle_profile, whitespace_histogram

QWEN3 = load_format("qwen3")
KIMI = load_format("kimi-k2.5")


def answer(reasoning: str, content: str, billed: int | None = None) -> Observed:
    return Observed(
        Reply(
            generation_id=None,
            model=None,
            endpoint=None,
            content=content,
            reasoning=reasoning,
            reasoning_kind="text",
            tool_calls=(),
            finish_reason="stop",
            native_finish_reason="stop",
            usage=None if billed is None else Usage(1, billed),
        )
    )


KEPT = [answer("\nso\n", "\n\nFour.")] * 20
STRIPPED = [answer("so", "Four.")] * 20


def test_whitespace_that_the_family_writes_shows_that_the_server_keeps_it() -> None:
    found = choose_profile(KEPT, QWEN3)
    assert found.profile.name == "kept"
    assert found.reason == (
        "The content starts after reasoning with whitespace in 20 of 20 samples: whitespace is kept, calls are parsed."
    )


def test_its_absence_shows_that_the_server_strips() -> None:
    found = choose_profile(STRIPPED, QWEN3)
    assert found.profile.name == "trimmed"
    assert "in only 0 of 20 samples" in found.reason


def test_fewer_than_20_samples_choose_nothing() -> None:
    found = choose_profile(STRIPPED[:19], QWEN3)
    assert (found.profile.name, found.samples) == ("kept", 19)
    assert found.reason == "19 answers that the model ended, auto needs 20: fields are taken as they came."


def test_counts_decide_where_whitespace_does_not() -> None:
    stripped = [answer("so", "Four." if index % 2 else "\n\nFour.", billed=14) for index in range(20)]
    found = choose_profile(stripped, QWEN3, lambda reading: count_tokens(reading, len))
    assert found.profile.name == "trimmed"
    assert "kept 0%, trimmed 50%" in found.reason


def test_a_family_without_glue_is_taken_as_it_comes() -> None:
    found = choose_profile(STRIPPED, KIMI)
    assert found.profile.name == "kept"
    assert "does not tell" in found.reason


def test_a_named_profile_is_loaded_and_auto_is_chosen() -> None:
    assert settle_profile("vllm@0.32", KEPT, QWEN3).profile.name == "vllm@0.32"
    assert settle_profile("auto", STRIPPED, QWEN3).profile.name == "trimmed"


def test_the_histogram_counts_both_ends_of_both_fields() -> None:
    assert whitespace_histogram([KEPT[0].reply, STRIPPED[0].reply]) == (
        ("content ends", 0, 2),
        ("content starts after reasoning", 1, 2),
        ("reasoning ends", 1, 2),
        ("reasoning starts", 1, 2),
    )
