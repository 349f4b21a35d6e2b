"""Climb the ladder of `core/fidelity` for one answer: what each rung says of its ids."""

from collections.abc import Collection, Sequence

from eagletui.core.fidelity import Proof
from eagletui.core.outputs import Assembly, Part, Text
from eagletui.core.reply import UNREADABLE, Reply
from eagletui.core.rung_logprobs import logprobs
from eagletui.core.rung_served import served
from eagletui.core.rung_streamed import pieces, streamed
from eagletui.core.vocabulary import Vocabulary
from eagletui.tokens.load import Tokenizer


def climb(
    reply: Reply,
    assembly: Assembly,
    canonical: tuple[int, ...],
    tokenizer: Tokenizer,
    billed: int | None,
    applied: int,
    around: Collection[str] | None,
    *,
    may_stop_early: bool,
    looks_for_stops: bool,
) -> list[Proof]:
    """Return what each rung that has anything to say says, best first.

    Args:
        reply: as parsed.
        assembly: its raw text.
        canonical: the canonical encoding of that.
        tokenizer: the target model's.
        billed: completion tokens of the bill.
        applied: the endpoint's named constant in the bill.
        around: literals that may stand around what the server shows; None where anything may.
        may_stop_early: a stop string may have ended the answer.
        looks_for_stops: the server looks for stop strings, so it shows text late.
    """
    vocabulary = tokenizer.vocabulary
    end_id = vocabulary.specials.get(assembly.end) if assembly.end is not None else None
    shown = _shown(reply)
    proofs = [
        served(reply, shown, around, vocabulary, end_id, may_stop_early=may_stop_early),
        logprobs(reply, shown, around, vocabulary, end_id, canonical, offset=applied, may_stop_early=may_stop_early),
        _streamed(
            reply,
            assembly,
            canonical,
            tokenizer,
            None if billed is None else billed - applied,
            may_stop_early or looks_for_stops,
        ),
    ]
    return [proof for proof in proofs if proof is not None]


def _shown(reply: Reply) -> list[str]:
    """Texts of a reply in the order in which models write them."""
    texts = [reply.reasoning, reply.content, *(call.name for call in reply.tool_calls)]
    return [text for text in texts if text]


def _streamed(
    reply: Reply,
    assembly: Assembly,
    canonical: tuple[int, ...],
    tokenizer: Tokenizer,
    billed: int | None,
    looks_for_stops: bool,
) -> Proof | None:
    """Lay the deltas along the raw text and judge them."""
    if not reply.deltas:
        return None
    if reply.reasoning_kind in UNREADABLE:
        return Proof("streamed", (), "the reasoning is not among the deltas")
    if looks_for_stops:
        return Proof("streamed", (), "the server looks for stop strings, so deltas need not end with a token")
    if reply.finish_reason is None and assembly.end is not None:
        return Proof("streamed", (), "the stream gives no finish reason, so it may have broken off")
    if not assembly.verbatim:
        return Proof("streamed", (), "the server strips text, so the deltas are not the raw text")
    texts, between, after = _layout(assembly.parts, tokenizer.vocabulary)
    stream = pieces(reply.deltas, texts, between) if texts is not None else None
    if not stream:
        return Proof("streamed", (), "the deltas are not the raw text")
    return streamed(
        stream,
        tokenizer.vocabulary,
        tokenizer.encode,
        after=after,
        billed=billed,
        cut=assembly.end is None,
        canonical=canonical,
    )


def _layout(
    parts: Sequence[Part], vocabulary: Vocabulary
) -> tuple[list[tuple[str, str]] | None, list[tuple[int, ...]], tuple[int, ...]]:
    """Cut a raw text into the server's own texts, the structural tokens before each, and those after the last."""
    texts: list[tuple[str, str]] = []
    between: list[tuple[int, ...]] = []
    pending: list[int] = []
    for part in parts:
        if isinstance(part, Text):
            if part.field not in ("reasoning", "content") or (texts and not pending):
                return None, [], ()
            texts.append((part.field, part.text))
            between.append(tuple(pending))
            pending = []
        elif part.text not in vocabulary.specials:
            return None, [], ()
        else:
            pending.append(vocabulary.special_id(part.text))
    return texts, between, tuple(pending)
