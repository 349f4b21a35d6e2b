"""What one reply shows against its format and its server. `tokens/judge.py` makes findings of it over many."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from eagletui.core.fidelity import REPLACEMENT, Proof
from eagletui.core.outputs import Assembly, OutputFormat
from eagletui.core.reply import Reply
from eagletui.core.vocabulary import Vocabulary


def sample_faults(
    reply: Reply, assembly: Assembly, holding: Sequence[Proof], vocabulary: Vocabulary, unresolved: str | None
) -> tuple[str, ...]:
    """Faults that one sample shows by itself."""
    found: list[str] = []
    if assembly.misfit:
        found.append("misfit")
    if unresolved is not None:
        found.append("unresolved")
    end_id = vocabulary.specials.get(assembly.end) if assembly.end is not None else None
    sampled = sampled_end(reply, holding, vocabulary)
    if assembly.end is not None and sampled is not None and sampled != end_id:
        found.append("end_token")
    return tuple(found)


def stream_holds(proofs: Sequence[Proof]) -> bool | None:
    """Whether a stream's pieces are tokens by its bill."""
    stream = next((proof for proof in proofs if proof.evidence == "streamed"), None)
    if stream is None or not (stream.holds or stream.refuted):
        return None
    return stream.holds


def says_twice(reply: Reply, surplus: int, encode: Callable[[str], Sequence[int]]) -> bool:
    """Whether one chunk of a stream comes twice in a row and is as long as the text is too long by its bill.

    Either alone says nothing: models repeat tokens, and counts differ for other reasons.

    Args:
        reply: as parsed.
        surplus: tokens that the text has beyond the billed ones, named constants undone.
        encode: canonical encoding of a text.
    """
    if surplus <= 0 or reply.deltas is None:
        return False
    shown = [delta for delta in reply.deltas if delta.content or delta.reasoning]
    sizes = [len(encode(one.content or one.reasoning)) for one, next_ in pairwise(shown) if one == next_]
    return surplus in sizes or surplus == sum(sizes)


def text_faults(reply: Reply, raw: str) -> list[str]:
    """What shows that a text is not what the model wrote, one phrase each; for ids that nothing proves.

    Args:
        reply: as parsed.
        raw: its rebuilt raw text, without the replaced tail of a cut.
    """
    found: list[str] = []
    if REPLACEMENT in raw:
        found.append("U+FFFD stands for bytes that are no character")
    counts = [delta.completion_tokens for delta in reply.deltas or () if delta.completion_tokens is not None]
    if any(one > next_ for one, next_ in pairwise(counts)):
        found.append("the counts of the stream run backward, so its chunks are out of order")
    return found


def arguments_kept(reply: Reply, fmt: OutputFormat, proved: Sequence[int], vocabulary: Vocabulary) -> bool | None:
    """Whether the server shows tool arguments as the proved ids write them."""
    if not reply.tool_calls or not proved or fmt.tools.codec != "json":
        return None
    raw = vocabulary.decode(proved).decode("utf-8", "replace")
    return all(call.arguments in raw for call in reply.tool_calls)


def sampled_end(reply: Reply, holding: Sequence[Proof], vocabulary: Vocabulary) -> int | None:
    """The token that ended the answer, as proved ids or the server's `stop_reason` tell it."""
    ends = [proof.ids[-1] for proof in holding if proof.ids and not proof.leans_on_format]
    sampled = next((token_id for token_id in ends if vocabulary.is_special(token_id)), None)
    if sampled is None and isinstance(reply.stopped_by, int) and reply.stopped_by in vocabulary:
        return reply.stopped_by
    return sampled
