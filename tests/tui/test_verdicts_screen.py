"""Verdicts: what a signature rests on, and that it is the one `eagletui accept` writes."""

import pytest

from eagletui.core.tokdiff import Span
from eagletui.core.verdicts import Doubtful, basis
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import VerdictRow
from eagletui.tui.verdict_text import basis_lines, signature_lines
from tests.tui.driving import NARROW, WIDE, opened
from tests.tui.factory import Built
from tests.tui.test_launching import plain


def test_a_basis_tells_kinds_spans_and_cost() -> None:
    spans = (Span(3, 2, (1, 2), (3,), "~"), Span(9, 2, (5,), (6, 7), "!"))
    doubtful = [Doubtful("streamed", spans[:1], 0), Doubtful("logprobs", spans, 0), Doubtful("conflict", (), -4)]
    found = basis(samples=200, proved=150, counted=30, output_tokens=10_000, doubtful=doubtful)
    text = plain(basis_lines(found))
    assert "200: 150 proved, 30 whose count agrees" in text
    assert "3   1.50 % of the samples" in text
    assert "1 proved ids that stand for another text" in text
    assert "~ 2 same bytes, other ids   ! 1 other text" in text
    # Two, two and two tokens in spans, and four that the count is off by.
    assert "at least 10 of 10,000 output tokens differ (0.100 %)" in text


def test_the_latest_signature_stands_first() -> None:
    old = VerdictRow(1, 0.0, "a", "same bytes", "Kim", 3, 20, "{}")
    new = VerdictRow(2, 60.0, "a", "too many", "Lee", 9, 40, '{"refused": true}')
    text = plain(signature_lines([old, new], "a"))
    assert text.splitlines()[0] == "signed     refused by Lee, 1970-01-01 00:01, at 9 of 40: too many"
    assert "accepted by Kim" in text
    assert plain(signature_lines([old], "b")) == "signed     by nobody yet"
    assert new.sentence == "9 of 40 samples of a mismatched, refused by Lee: too many"


@pytest.mark.slow
async def test_a_data_set_is_signed_for_and_another_refused_by_keys(
    busy: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "kim")
    async with opened(busy, NARROW) as screens:
        await screens.press("6")
        assert "unsigned" in screens.line_with("> b1_glaive")
        assert "Verdict on b1_glaive" in screens.text
        assert "signed     by nobody yet" in screens.text
        await screens.press("enter")
        assert "Sign for b1_glaive" in screens.text
        await screens.press("right", "enter")
        assert "Sign for b1_glaive" in screens.text, "without a rule neither is possible"
        screens.app.screen.query_one("#sign-rule").focus()
        await screens.write("same bytes")
        await screens.press("enter", "right", "right", "enter")
        assert "accepted" in screens.line_with("> b1_glaive")
        assert "Accepted b1_glaive, signed by kim: same bytes" in screens.text
        await screens.press("j", "enter")
        await screens.write("[/no] \u2066way")
        await screens.press("enter", "right", "enter")
        assert "refused" in screens.line_with("> b3_magicoder")
        with LedgerReader(busy.ledger) as reader:
            first, second = reader.verdicts()
        assert (first.dataset, first.rule, first.accepted_by, first.is_refused) == (
            "b1_glaive",
            "same bytes",
            "kim",
            False,
        )
        assert (second.dataset, second.is_refused) == ("b3_magicoder", True)
        await screens.resize(WIDE)
        await screens.press("s")
        assert "dataset:b3_magicoder spans>0" in screens.text
