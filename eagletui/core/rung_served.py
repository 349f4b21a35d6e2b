"""The best rung: ids that the server returned, if they decode to the text it shows."""

from collections.abc import Collection, Sequence

from eagletui.core.fidelity import Proof, covers
from eagletui.core.reply import Reply
from eagletui.core.vocabulary import Vocabulary


def served(
    reply: Reply,
    shown: Sequence[str],
    around: Collection[str] | None,
    vocabulary: Vocabulary,
    end_id: int | None,
    *,
    may_stop_early: bool = False,
) -> Proof | None:
    """Judge served ids.

    Args:
        reply: the answer.
        shown: its texts in the order in which the model wrote them.
        around: literals that may stand around them; None where anything may.
        vocabulary: the tokenizer's.
        end_id: the token that ends this answer; None for a cut one.
        may_stop_early: a stop string may have ended it in place of that token.

    Returns:
        None when the server returned no ids.
    """
    ids = reply.token_ids
    if not ids:
        return None
    unknown = vocabulary.first_unknown(ids)
    if unknown is not None:
        return Proof("served", (), f"served id {unknown} is not in the vocabulary of {vocabulary.size}")
    billed = reply.usage.completion_tokens if reply.usage else None
    ends = vocabulary.is_special(ids[-1])
    # A model that ended its answer sampled the end token; some servers neither return nor bill it.
    lost_end = end_id is not None and not ends and not may_stop_early
    possible = (len(ids), len(ids) + 1) if lost_end else (len(ids), len(ids) - 1) if ends else (len(ids),)
    if billed is not None and billed not in possible:
        return Proof("served", ids, f"{len(ids)} ids were served and {billed} billed")
    if lost_end and end_id is not None:
        ids = (*ids, end_id)
    if end_id is not None and end_id in ids[:-1]:
        return Proof("served", ids, "the served ids go on behind the end token")
    if not _decodes_to(ids, shown, around, vocabulary):
        return Proof("served", ids, "the served ids decode to other text than the reply shows")
    return Proof("served", ids, leans_on_format=lost_end)


def _decodes_to(
    ids: Sequence[int], shown: Sequence[str], around: Collection[str] | None, vocabulary: Vocabulary
) -> bool:
    """Specials may be shown at their literal text or skipped, as the server was told."""
    specials = {vocabulary.bytes_of(i).decode("utf-8", "replace") for i in ids if vocabulary.is_special(i)}
    if covers(vocabulary.decode(ids), shown, None if around is None else {*around, *specials}):
        return True
    return covers(vocabulary.decode(i for i in ids if not vocabulary.is_special(i)), shown, around)
