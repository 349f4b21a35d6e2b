"""`auto`: which loss profile an endpoint's samples speak for.

A server that strips whitespace shows in the histogram of what its fields start and end with: a family that writes
`\\n</think>\\n\\n` gives fields that nearly always start and end with newlines, unless someone took them off. Where a
tokenizer is at hand, the billed counts speak too. Fewer than `ENOUGH` samples say nothing.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eagletui.core.assembly import candidates
from eagletui.core.chat import Prompt
from eagletui.core.choice import TokenCounts
from eagletui.core.outputs import Assembly, LossProfile, OutputFormat
from eagletui.core.reply import Reply
from eagletui.tokens.formats import AUTO, load_profile

UNTOUCHED = "kept"
"""The profile of an endpoint that nothing speaks against, and the one to begin with: drift tells where it is wrong."""
ENOUGH = 20
"""Answers that ended by themselves, below which nothing is chosen."""
MOSTLY = 0.8
"""A share that speaks for whitespace being kept."""
HARDLY = 0.2
"""A share that speaks for whitespace being stripped."""
BETTER = 0.05
"""How much more of the counts another profile must explain to be preferred to the plain one."""
COUNTED = 200
"""Samples whose counts are compared at most."""

Measure = Callable[[Assembly], TokenCounts]


@dataclass(frozen=True, slots=True)
class Observed:
    """One answer of the endpoint."""

    reply: Reply
    prompt: Prompt | None = None
    max_tokens: int | None = None
    thinking: bool | None = None


@dataclass(frozen=True, slots=True)
class ProfileChoice:
    """The profile that `auto` stands for, and why."""

    profile: LossProfile
    reason: str
    """One sentence for the person."""
    samples: int
    """Answers looked at."""
    histogram: tuple[tuple[str, int, int], ...]
    """What was counted: (place, with whitespace, of all)."""


def settle_profile(
    name: str, observed: Sequence[Observed], fmt: OutputFormat, measure: Measure | None = None
) -> ProfileChoice:
    """Load a profile by name, or choose one from what an endpoint sent when the name is `auto`.

    Args:
        name: a profile's name, or `auto`.
        observed: the endpoint's answers; all of one endpoint, in any order.
        fmt: how the family writes.
        measure: counts the tokens of a raw text; None without a tokenizer.
    """
    if name == AUTO:
        return choose_profile(observed, fmt, measure)
    return ProfileChoice(load_profile(name), f"Profile {name} as asked.", len(observed), ())


def choose_profile(observed: Sequence[Observed], fmt: OutputFormat, measure: Measure | None = None) -> ProfileChoice:
    """Choose between `kept` and `trimmed` from whitespace and counts; never from fewer than 20 samples."""
    ended = [answer for answer in observed if fmt.end_token(answer.reply.finish_reason) is not None]
    histogram = whitespace_histogram([answer.reply for answer in ended])
    kept, trimmed = load_profile(UNTOUCHED), load_profile("trimmed")
    if len(ended) < ENOUGH:
        reason = f"{len(ended)} answers that the model ended, auto needs {ENOUGH}: fields are taken as they came."
        return ProfileChoice(kept, reason, len(ended), histogram)
    verdict = _by_whitespace(histogram, fmt)
    if verdict is not None:
        profile = kept if verdict[0] else trimmed
        return ProfileChoice(profile, f"{verdict[1]}: {profile.title.lower()}.", len(ended), histogram)
    if measure is None:
        reason = f"The whitespace of {len(ended)} samples does not tell: fields are taken as they came."
        return ProfileChoice(kept, reason, len(ended), histogram)
    shares = {profile.name: _explained(ended[:COUNTED], fmt, profile, measure) for profile in (kept, trimmed)}
    profile = trimmed if shares["trimmed"] > shares[UNTOUCHED] + BETTER else kept
    told = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    reason = f"Billed counts that the plain reading explains: {told}: {profile.title.lower()}."
    return ProfileChoice(profile, reason, len(ended), histogram)


def whitespace_histogram(replies: Sequence[Reply]) -> tuple[tuple[str, int, int], ...]:
    """Count where fields start or end with whitespace: (place, with whitespace, of all)."""
    seen: Counter[str] = Counter()
    of_all: Counter[str] = Counter()
    for reply in replies:
        places: dict[str, str] = {}
        if reply.reasoning:
            places |= {"reasoning starts": reply.reasoning[0], "reasoning ends": reply.reasoning[-1]}
        if reply.content:
            start = "content starts after reasoning" if reply.reasoning else "content starts"
            places |= {start: reply.content[0], "content ends": reply.content[-1]}
        for place, character in places.items():
            of_all[place] += 1
            seen[place] += character.isspace()
    return tuple((place, seen[place], of_all[place]) for place in sorted(of_all))


def _by_whitespace(histogram: Sequence[tuple[str, int, int]], fmt: OutputFormat) -> tuple[bool, str] | None:
    """Judge the places where this family itself writes whitespace; None where they disagree or too few were seen."""
    rule = fmt.reasoning
    places = {"content starts after reasoning": rule.after_close, "reasoning ends": rule.before_close}
    if rule.opened_by == "model":
        places["reasoning starts"] = rule.after_open
    verdicts: list[tuple[bool, str]] = []
    for place, seen, of_all in histogram:
        if of_all < ENOUGH or not places.get(place, "").isspace():
            continue
        share = seen / of_all
        if HARDLY < share < MOSTLY:
            return None
        only = "" if share >= MOSTLY else "only "
        verdicts.append((share >= MOSTLY, f"The {place} with whitespace in {only}{seen} of {of_all} samples"))
    return verdicts[0] if len({kept for kept, _ in verdicts}) == 1 else None


def _explained(answers: Sequence[Observed], fmt: OutputFormat, profile: LossProfile, measure: Measure) -> float:
    """Return the share of billed counts that the most likely raw text has under a profile."""
    agreed = of_all = 0
    for answer in answers:
        billed = answer.reply.usage.completion_tokens if answer.reply.usage else None
        if billed is None:
            continue
        reading = candidates(
            answer.reply, fmt, profile, answer.prompt, max_tokens=answer.max_tokens, thinking=answer.thinking
        )[0]
        of_all += 1
        agreed += measure(reading).total == billed
    return agreed / of_all if of_all else 0.0
