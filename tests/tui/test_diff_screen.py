"""The token inspector at both sizes."""

from dataclasses import replace

import pytest

from eagletui.core.tokdiff import align
from eagletui.ledger.reader import LedgerReader
from eagletui.tui.sample_order import SampleOrder
from tests.tui.driving import NARROW, WIDE, Screens, opened
from tests.tui.factory import Built, add_prompts, answer, result_for, send, split_one, tokenizer


async def open_on(screens: Screens, key: str) -> None:
    screens.app.open_sample(key, SampleOrder(keys=(key,)))
    await screens.settle()
    assert key in screens.lines[2]


async def test_differing_spans_are_doubled_and_explained(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await open_on(screens, "s-000012")
        assert "span 1/2   billed 29   counted 29   drift 0   streamed, resegmented" in screens.lines[2]
        assert "proved     ·kept│·the│[·l│amp]│·the" in screens.text
        assert "canonical  ·kept│·the│[·lamp] │·the" in screens.text
        assert "~ span 1 of 2: same 5 bytes, 2 tokens against 1 token" in screens.text
        assert "The│·fog│·rolled│·in│.│<|im_end|>" in screens.text
        assert "Span 1 of 2, in content: bytes 13-17 of 112" in screens.text
        assert "token 5 of 29" in screens.text
        assert [screens.line_with(part)[2:32].rstrip() for part in ("2 ids  ", "5 bytes  ", "1 id  ")] == [
            "2 ids      │303  │1613    │",
            "5 bytes    │20 6c 61 6d 70│  o",
            "1 id       │17559         │",
        ]
        assert "in 2 tokens, and the tokenizer has one token for it." in screens.text
        assert "Same bytes: train on the" in screens.text
        assert "canonical: its text encoded again" in screens.text


@pytest.mark.slow
async def test_span_keys_move_through_the_spans_and_around(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await open_on(screens, "s-000025")
        assert "Span 1 of 3" in screens.text
        await screens.press("n")
        assert "Span 2 of 3" in screens.text
        assert "span 2/3" in screens.lines[2]
        await screens.press("n", "n")
        assert "Span 1 of 3" in screens.text
        await screens.press("N")
        assert "Span 3 of 3" in screens.text


@pytest.mark.slow
async def test_ids_and_bytes_are_shown_on_demand(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await open_on(screens, "s-000012")
        await screens.press("i")
        assert "[303│1613]" in screens.text
        assert "as ids" in screens.text
        await screens.press("b")
        assert "[20 6c│61 6d 70]" in screens.text
        await screens.press("b")
        assert "[·l│amp]" in screens.text


async def test_the_tail_view_spells_the_last_ids_and_names_the_end_token(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await open_on(screens, "s-000012")
        await screens.press("t")
        assert "in context" in screens.text
        line = screens.line_with("<|im_end|> ")
        assert "2 special  <|im_end|>" in line
        assert "The·fog·rolled·in.[<|im_end|>]" in line
        assert "The last id is 2, <|im_end|>: the expected end (finish reason stop)." in screens.text
        await screens.press("t")
        assert "[·l│amp]" in screens.text


async def test_a_counted_sample_has_one_lane_and_says_why(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await open_on(screens, "s-000003")
        assert (
            "Counted only; no ids are proved. One lane, the canonical encoding: billed 53, counted 53." in screens.text
        )
        assert "proved     " not in screens.text
        assert "no span differs" in screens.text
        await screens.press("n")
        assert "No span differs in this sample." in screens.text


@pytest.mark.slow
async def test_a_failed_sample_shows_its_attempts_instead_of_ids(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await open_on(screens, "s-000011")
        assert "No ids: the sample is failed." in screens.text
        assert "attempt 1 embedded/stream void hold $0.0004 HTTP 400 bad_request:" in screens.text
        await screens.press("t", "i", "b", "y", "n", "m")
        assert "s-000011" in screens.lines[2]


async def test_a_sample_in_flight_gets_its_tokens_when_they_come(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await open_on(screens, "s-000040")
        assert "No ids: the sample is in flight." in screens.text
        with LedgerReader(busy.ledger) as reader:
            detail = reader.sample("s-000040")
        assert detail is not None
        with busy.writer() as writer:
            answer(writer, detail.attempts[-1].id, result_for("It came.", "streamed"))
        busy.clock.now += 1
        await screens.look()
        assert "It│·came│.│<|im_end|>" in screens.text


@pytest.mark.slow
async def test_on_a_small_terminal_the_span_list_takes_the_place_of_the_stream(busy: Built) -> None:
    async with opened(busy, NARROW) as screens:
        await open_on(screens, "s-000012")
        assert "[·l│amp]" in screens.text
        assert "┌─ Spans" not in screens.text
        await screens.press("m")
        assert "┌─ Spans" in screens.text
        assert "[·l│amp]" not in screens.text
        await screens.press("m")
        assert "[·l│amp]" in screens.text
        assert len(screens.lines) == 24


@pytest.mark.slow
async def test_the_stream_is_laid_out_anew_when_the_terminal_changes(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await open_on(screens, "s-000012")
        await screens.press("n")
        await screens.resize(NARROW)
        assert "Span 2 of 2" in screens.text
        await screens.resize(WIDE)
        assert "[·│wick]" in screens.text
        assert screens.text.count("span 2 of 2:") == 1


async def test_a_span_is_copied_and_the_sample_is_saved(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await open_on(screens, "s-000012")
        await screens.press("y")
        assert "to the terminal clipboard (tmux needs: set -s set-clipboard on)" in screens.text
        assert screens.app.clipboard == "s-000012 byte 13: proved [303, 1613] canonical [17559]"
        await screens.press("Y")
        saved = list((busy.path / "clips").iterdir())
        assert len(saved) == 1
        assert saved[0].stat().st_mode & 0o777 == 0o600
        assert "span at byte 13, 5 bytes, ~ a=[303, 1613] b=[17559]" in saved[0].read_text()
        assert saved[0].name in screens.text


@pytest.mark.slow
async def test_without_the_vocabulary_the_inspector_says_so(busy: Built) -> None:
    (busy.path / "vocabulary.msgpack").unlink()
    async with opened(busy, WIDE) as screens:
        await open_on(screens, "s-000012")
        assert "The run folder has no vocabulary" in screens.text


@pytest.mark.slow
async def test_a_span_deep_in_a_long_answer_is_brought_into_view(busy: Built) -> None:
    text = "Eira kept the lamp.\n\n" * 4_000
    add_prompts(busy, [("long", "b3_magicoder", "Long.")])
    vocabulary = tokenizer().vocabulary
    canonical = tokenizer().encode(text)
    proved = split_one(canonical, vocabulary, len(canonical) - 20)
    with busy.writer() as writer:
        attempts = send(writer, 20)
        tokens = replace(
            result_for("x", "streamed"),
            output_ids=proved,
            raw=text,
            spans=align(proved, canonical, vocabulary),
        )
        answer(writer, attempts[-1], tokens)
    async with opened(busy, NARROW) as screens:
        await open_on(screens, "long")
        assert "> " in screens.line_with("proved  ")
        assert "canonical  " in screens.text
        await screens.press("w")
        assert "a line a row" in screens.text
        assert "> " in screens.line_with("proved  ")


@pytest.mark.slow
async def test_w_shows_each_line_of_the_text_in_one_row(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await open_on(screens, "s-000006")
        assert "as text, wrapped" in screens.text
        assert "·kept│·the│[" in screens.text
        await screens.press("w")
        assert "a line a row" in screens.text
        await screens.press("l", "l", "l", "l")
        assert "·kept│·the│[" not in screens.text
        assert "·vinegar│.│⏎" in screens.text
        await screens.press("w")
        assert "·kept│·the│[" in screens.text


@pytest.mark.slow
async def test_a_wrong_end_is_told_without_being_asked_for(busy: Built) -> None:
    add_prompts(busy, [("wrong", "b3_magicoder", "Wrong.")])
    with busy.writer() as writer:
        attempts = send(writer, 20)
        answer(writer, attempts[-1], result_for("It ends in cha", "streamed", finish="length"))
    async with opened(busy, WIDE) as screens:
        await open_on(screens, "wrong")
        assert "<|im_end|> (2) should end the answer, but the last id is" in screens.text
