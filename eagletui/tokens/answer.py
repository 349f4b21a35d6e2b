"""A reply, a tokenizer and a format in; token ids with their evidence out.

The engine and every command call `rebuild`. It undoes the server's losses (`core/assembly`), lets the billed count
choose among the raw texts that are left (`core/choice`), and then climbs the ladder of `core/fidelity`: served ids,
logprob bytes, stream boundaries, and below those the canonical encoding with what a count can say about it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from eagletui.core.assembly import candidates
from eagletui.core.chat import Prompt
from eagletui.core.choice import Choice, TokenCounts, choose
from eagletui.core.fidelity import REPLACEMENT, Evidence, Proof, Usability, judge_count
from eagletui.core.outputs import Assembly, LossProfile, OutputFormat, Part, fitted
from eagletui.core.reply import UNREADABLE, Reply
from eagletui.core.tokdiff import Span, align
from eagletui.core.vocabulary import Vocabulary
from eagletui.tokens.load import Tokenizer
from eagletui.tokens.parts import encode_parts, measure_encoded, remembering
from eagletui.tokens.proofs import climb
from eagletui.tokens.reply_faults import (
    arguments_kept,
    sample_faults,
    sampled_end,
    says_twice,
    stream_holds,
    text_faults,
)

_SEEN: Final[Mapping[str, str]] = {"served": "served", "logprobs": "logged", "streamed": "streamed"}


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Token ids of one answer, and why they are believed."""

    output_ids: tuple[int, ...] | None
    """The end token included where the answer has one. None at text level, without a tokenizer."""
    raw: str
    """The text these ids stand for, specials at their literal text."""
    evidence: Evidence
    usability: Usability
    reason: str
    """Why not a better rung, or what makes the text doubtful; one sentence, empty on proof of a sound text."""
    counted: int | None
    """Length of `output_ids`."""
    billed: int | None
    """The provider's completion tokens; None when it sent no usage."""
    offset: int | None
    """Named, proved constant between them: the endpoint's, plus the tokens of a trimmed tail. None without a bill."""
    drift: int | None
    """billed - counted - offset; None without a bill."""
    tail_trimmed: bool
    """A cut in mid-character left tokens that no text shows."""
    spans: tuple[Span, ...]
    """Where proved and canonical tokenization differ."""
    findings: tuple[str, ...] = ()
    """Kinds of faults that this sample shows; `core/findings.py` words them."""
    parts: tuple[Part, ...] = ()
    """The raw text as the format has it, for naming a fault."""
    excess: int | None = None
    """billed - counted with nothing undone; None where a count says nothing about these ids."""
    plain_excess: int | None = None
    """The same for the plain reading of the format, before counts chose among readings: what an endpoint is judged by.
    None where nothing can be learned from it."""
    canonical_excess: int | None = None
    """billed - counted of the canonical encoding of the raw text, whatever proves the ids: comparable everywhere."""
    ended: bool = False
    """The model ended the answer itself."""
    leans_on_format: bool = False
    """Structural tokens among the ids are the format's word, so a doubted format doubts the label."""
    sampled_end: int | None = None
    """The token that ended the answer, where proved ids or the server name it."""
    stream_holds: bool | None = None
    """The pieces of the stream are tokens by the bill (False: they need more tokens); None where that stays open."""
    arguments_kept: bool | None = None
    """The reply shows tool arguments as the proved ids write them; None without such calls or without proof."""

    @property
    def proved(self) -> bool:
        """Tell whether the ids are proved."""
        return self.evidence in ("served", "logprobs", "streamed")


def rebuild(
    reply: Reply,
    tokenizer: Tokenizer | None,
    fmt: OutputFormat,
    profile: LossProfile,
    *,
    max_tokens: int | None,
    offset: int | None = None,
    prompt: Prompt | None = None,
    thinking: bool | None = None,
    stop_strings: Sequence[str] = (),
) -> Rebuilt:
    """Rebuild the ids of one answer.

    Args:
        reply: as parsed.
        tokenizer: the target model's; None works at text level.
        fmt: how the family writes.
        profile: what the server strips.
        max_tokens: the request's limit.
        offset: the endpoint's named constant for answers that the model ended; None when none is proved.
        prompt: the request; its tools give argument types.
        thinking: whether the prompt asked for thinking; None means the format's default.
        stop_strings: the request's; a server that looks for them shows text late, so deltas prove nothing.

    Returns:
        Ids of the best rung that holds, with the reason why no better one does.
    """
    tokenizer = None if tokenizer is None else tokenizer.remembering()
    fmt = fmt if tokenizer is None else fitted(fmt, tokenizer.vocabulary.specials)
    encode = None if tokenizer is None else remembering(tokenizer.encode)
    measure = None if encode is None else measure_encoded(encode)
    trimmed_reply, shows_tail = _without_replaced_tail(reply)
    readings = candidates(trimmed_reply, fmt, profile, prompt, max_tokens=max_tokens, thinking=thinking)
    if isinstance(reply.stopped_by, str):
        readings = tuple(_without_end(reading) for reading in readings)
    unsaid = bool(stop_strings) and reply.stopped_by is None and not reply.names_stop
    billed = reply.usage.completion_tokens if reply.usage else None
    applied = offset or 0 if readings[0].end is not None else 0
    choice = choose(
        readings,
        profile.losses(fmt.name),
        measure=measure,
        billed=None if shows_tail else billed,
        billed_reasoning=reply.usage.reasoning_tokens if reply.usage and not shows_tail else None,
        offset=applied,
    )
    assembly = choice.assembly
    if tokenizer is None or measure is None:
        return _text_level(assembly, billed)
    canonical, unresolved = encode_parts(assembly.parts, tokenizer, encode)
    if assembly.open_ended and billed is not None:
        canonical = canonical[:billed]
    early = unsaid or isinstance(reply.stopped_by, str)
    around = None if early or reply.tool_calls or fmt.content.open else {fmt.reasoning.open, fmt.reasoning.close}
    proofs = climb(
        reply,
        assembly,
        canonical,
        tokenizer,
        billed,
        applied,
        around,
        may_stop_early=early,
        looks_for_stops=bool(stop_strings),
    )
    rebuilt = _settle(reply, choice, canonical, proofs, tokenizer, billed, applied, unresolved, shows_tail)
    if unsaid and rebuilt.ended and not rebuilt.proved:
        rebuilt = _unsure_of_end(rebuilt)
    proved = rebuilt.output_ids if rebuilt.proved else None
    return replace(
        rebuilt,
        plain_excess=_plain_excess(rebuilt, readings[0], measure, shows_tail),
        arguments_kept=arguments_kept(reply, fmt, proved or (), tokenizer.vocabulary),
    )


def _plain_excess(
    rebuilt: Rebuilt, plain: Assembly, measure: Callable[[Assembly], TokenCounts], shows_tail: bool
) -> int | None:
    """What this answer says about its endpoint's counting."""
    if rebuilt.billed is None or rebuilt.tail_trimmed or shows_tail or rebuilt.usability == "unusable":
        return None
    if rebuilt.proved:
        return rebuilt.excess
    return None if plain.open_ended else rebuilt.billed - measure(plain).total


def _without_replaced_tail(reply: Reply) -> tuple[Reply, bool]:
    """Take U+FFFD off the end of a cut answer: llama.cpp shows it for an unfinished character."""
    if reply.finish_reason != "length":
        return reply, False
    if reply.content and reply.content.endswith(REPLACEMENT) and not reply.tool_calls:
        return replace(reply, content=reply.content.rstrip(REPLACEMENT)), True
    if not reply.content and reply.reasoning and reply.reasoning.endswith(REPLACEMENT) and not reply.tool_calls:
        return replace(reply, reasoning=reply.reasoning.rstrip(REPLACEMENT)), True
    return reply, False


def _without_end(reading: Assembly) -> Assembly:
    """The reading of an answer that a stop string ended: the model did not sample the end token."""
    if reading.end is None:
        return reading
    return replace(reading, parts=reading.parts[:-1], end=None)


def _unsure_of_end(rebuilt: Rebuilt) -> Rebuilt:
    """The label of an answer that a stop string may have ended: its end token is a guess that no count proves."""
    why = "the request has stop strings, and the server does not say whether one ended the answer"
    return replace(
        rebuilt,
        evidence="conflict" if rebuilt.evidence == "counted" else rebuilt.evidence,
        usability="text_suspect" if rebuilt.usability in ("usable", "resegmented") else rebuilt.usability,
        reason=_sentence([why, rebuilt.reason]),
        excess=None,
    )


def _settle(
    reply: Reply,
    choice: Choice,
    canonical: tuple[int, ...],
    proofs: Sequence[Proof],
    tokenizer: Tokenizer,
    billed: int | None,
    applied: int,
    unresolved: str | None,
    shows_tail: bool,
) -> Rebuilt:
    """Take the best rung that holds, or say what the count makes of the rest."""
    assembly, vocabulary = choice.assembly, tokenizer.vocabulary
    holding = [proof for proof in proofs if proof.holds]
    reasons = [proof.reason for proof in proofs if not proof.holds and (not holding or proof is not holding[0])]
    contradiction = not all(_agree(holding[0], proof) for proof in holding[1:])
    findings = sample_faults(reply, assembly, holding, vocabulary, unresolved)
    raw = assembly.raw
    tail = 0
    followed = False
    hidden = reply.reasoning_kind in UNREADABLE
    faults = text_faults(reply, assembly.raw) if not holding else []
    doubted = bool(faults or assembly.open_ended or assembly.misfit or unresolved or hidden)
    if holding and not contradiction:
        evidence, ids, tail = holding[0].evidence, holding[0].ids, holding[0].hidden_tail
        raw = vocabulary.decode(ids).decode("utf-8", "replace").rstrip(REPLACEMENT if assembly.end is None else "")
        reasons = []
    else:
        proof = next((proof for proof in proofs if proof.ids and not contradiction), None)
        ids = proof.ids if proof is not None and _same_bytes(proof.ids, canonical, vocabulary) else canonical
        evidence = judge_count(len(ids), billed, applied)
        if evidence == "conflict":
            named = f", offset {applied}" if applied else ""
            reasons.append(f"{len(ids)} tokens counted and {billed} billed{named}")
        if shows_tail and evidence != "canonical":
            evidence = "conflict"
            reasons.append("the cut tail hides tokens, so the count proves nothing")
        if assembly.open_ended and ids == canonical:
            raw = vocabulary.decode(ids).decode("utf-8", "replace").rstrip(REPLACEMENT)
        if contradiction:
            evidence = "conflict"
            reasons.insert(0, f"{' and '.join(proof.evidence for proof in holding)} give different ids")
        if evidence == "counted" and doubted:
            evidence = "conflict"
        followed = evidence != "canonical" and ids != canonical
        if followed and proof is not None:
            evidence = "conflict"
            reasons.append(f"the canonical cut contradicts what was {_SEEN[proof.evidence]}")
    offset = None if billed is None else applied + tail
    drift = None if billed is None or offset is None else billed - len(ids) - offset
    usability = _usability(assembly, evidence)
    if usability == "resegmented" and drift is not None and says_twice(reply, -drift, tokenizer.encode):
        usability = "text_suspect"
        reasons.append("a chunk of the stream comes twice, and the text is longer than the bill by as much")
    if faults:
        usability = "unusable" if usability == "unusable" else "text_suspect"
        reasons += faults
    trimmed = tail > 0 or shows_tail
    reasons += [reason for reason in assembly.reasons if usability != "usable"]
    silent = trimmed or doubted or contradiction or followed
    return Rebuilt(
        output_ids=ids,
        raw=raw,
        evidence=evidence,
        usability=usability,
        reason=_sentence(reasons),
        counted=len(ids),
        billed=billed,
        offset=offset,
        drift=drift,
        tail_trimmed=trimmed,
        spans=align(ids, canonical, vocabulary) if ids != canonical else (),
        findings=findings,
        parts=assembly.parts,
        excess=None if billed is None or silent else billed - len(ids),
        canonical_excess=None if billed is None or trimmed or assembly.open_ended else billed - len(canonical),
        ended=assembly.end is not None,
        leans_on_format=bool(holding) and holding[0].leans_on_format,
        sampled_end=sampled_end(reply, holding, vocabulary),
        stream_holds=stream_holds(proofs),
    )


def _same_bytes(ids: Sequence[int], canonical: Sequence[int], vocabulary: Vocabulary) -> bool:
    return vocabulary.first_unknown(ids) is None and vocabulary.decode(ids) == vocabulary.decode(canonical)


def _agree(better: Proof, other: Proof) -> bool:
    """Two rungs give the same ids, save those that the lower one knows to be hidden behind its own."""
    return other.ids == better.ids or other.ids == better.ids[: len(better.ids) - other.hidden_tail]


def _usability(assembly: Assembly, evidence: Evidence) -> Usability:
    """Proved ids carry the model's own text; below proof the text's doubts and the segmentation's count."""
    if assembly.usability == "unusable":
        return "unusable"
    if evidence in ("served", "logprobs", "streamed"):
        return "usable"
    if assembly.usability == "usable" and evidence == "conflict":
        return "resegmented"
    return assembly.usability


def _text_level(assembly: Assembly, billed: int | None) -> Rebuilt:
    """What can be said without a tokenizer."""
    return Rebuilt(
        output_ids=None,
        raw=assembly.raw,
        evidence="canonical",
        usability=assembly.usability,
        reason=_sentence(["there is no tokenizer, so no ids", *assembly.reasons]),
        counted=None,
        billed=billed,
        offset=None,
        drift=None,
        tail_trimmed=False,
        spans=(),
        findings=("misfit",) if assembly.misfit else (),
        parts=assembly.parts,
        ended=assembly.end is not None,
    )


def _sentence(reasons: Sequence[str]) -> str:
    text = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
    return text[:1].upper() + text[1:]
