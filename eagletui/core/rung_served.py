"""The best rung: ids that the server returned, if they decode to the text it shows."""

from collections.abc import Sequence

from eagletui.core.fidelity import Proof, covers
from eagletui.core.reply import Reply
from eagletui.core.vocabulary import Vocabulary


def served(reply: Reply, shown: Sequence[str], vocabulary: Vocabulary, end_id: int | None) -> Proof | None:
    """Judge served ids.

    Args:
        reply: the answer.
        shown: its texts in the order in which the model wrote them.
        vocabulary: the tokenizer's.
        end_id: the token that ends this answer; None for a cut one.

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
    ends, lost_end = vocabulary.is_special(ids[-1]), False
    if billed is not None and billed != len(ids):
        lost_end = billed == len(ids) + 1 and end_id is not None and not ends
        unbilled_end = billed == len(ids) - 1 and ends
        if not lost_end and not unbilled_end:
            return Proof("served", ids, f"{len(ids)} ids were served and {billed} billed")
        if lost_end and end_id is not None:
            ids = (*ids, end_id)
    if not _decodes_to(ids, shown, vocabulary):
        return Proof("served", ids, "the served ids decode to other text than the reply shows")
    return Proof("served", ids, leans_on_format=lost_end)


def _decodes_to(ids: Sequence[int], shown: Sequence[str], vocabulary: Vocabulary) -> bool:
    """Specials may be shown at their literal text or skipped, as the server was told."""
    if covers(vocabulary.decode(ids), shown):
        return True
    return covers(vocabulary.decode(i for i in ids if not vocabulary.is_special(i)), shown)
