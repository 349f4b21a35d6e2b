"""Did the target model say this: how likely it finds its own answers, against how likely they should be.

Sampled tokens have on average the log-probability that the sampled distribution has by itself, its negative entropy.
Another model is told by a mean that lies off it, to either side: text of a sharper model looks better than the
target's own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

from eagletui.core.findings import Finding

KINDS: Final = ("impostor", "structure")
"""Kinds of findings that rest on a target model; nothing but the arbiter opens or closes them."""

LEAST_TOKENS: Final = 400
"""Tokens of an endpoint below which nothing is said."""

OFF: Final = 0.05
"""Nats a token off the expected mean from which it is another model; low precision and 4-bit weights stay below."""

FAR_OFF: Final = 0.25
"""The same where the cuts are not those that were sampled: they look unlikely too, but do not explain so much."""

SIGMAS: Final = 4.0
"""Standard errors that the mean must be off as well."""

IMPROBABLE: Final = -9.0
"""Log-probability of a structural token below which it was hardly sampled."""

_ANOTHER: Final = (
    "Compare the model, its quantization and the sampling with what was asked for; do not take features of these ids."
)
_STRUCTURE: Final = "Look at the raw text around the token: the format or the loss profile may put it where it was not."


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How likely the target finds tokens, and how likely it should. Sums add."""

    tokens: int = 0
    own: float = 0.0
    """Log-probability of the tokens that came."""
    expected: float = 0.0
    """Of tokens that the target would sample at these places."""
    variance: float = 0.0
    """Of that sum."""

    def __add__(self, other: "Likelihood") -> "Likelihood":
        """Put two sets of tokens together."""
        return Likelihood(
            self.tokens + other.tokens,
            self.own + other.own,
            self.expected + other.expected,
            self.variance + other.variance,
        )

    @property
    def off(self) -> float:
        """Nats a token by which they are likelier than expected."""
        return (self.own - self.expected) / self.tokens if self.tokens else 0.0

    @property
    def sigmas(self) -> float:
        """The same in standard errors."""
        return (self.own - self.expected) / sqrt(self.variance) if self.variance > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Structure:
    """A special token inside an answer."""

    sample: str
    text: str
    """Its literal text."""
    score: float
    """Log-probability under the sampling."""


def impostor_finding(
    endpoint: str, samples: Sequence[tuple[str, Likelihood]], *, least_off: float = OFF
) -> Finding | None:
    """Tell that answers do not come from the target model; None where nothing speaks for it.

    Args:
        endpoint: empty for a direct server.
        samples: ids and likelihoods of its answers.
        least_off: nats a token off the expected mean, to either side, from which it is said.
    """
    total = sum((likelihood for _, likelihood in samples), Likelihood())
    if total.tokens < LEAST_TOKENS or abs(total.off) < least_off or abs(total.sigmas) < SIGMAS:
        return None
    side = "more" if total.off > 0 else "less"
    odd = [(name, one) for name, one in samples if one.off * total.off > 0 and abs(one.off) >= OFF]
    example = max(odd, key=lambda pair: abs(pair[1].sigmas), default=samples[0])[0]
    sentence = (
        f"Answers of {f'endpoint {endpoint}' if endpoint else 'the server'} are {abs(total.off):.2f} nats a token "
        f"{side} likely than what the target samples ({abs(total.sigmas):.0f} standard errors over "
        f"{total.tokens:,} tokens): another model, quantization or sampling than recorded"
    )
    return Finding("impostor", sentence, len(odd), len(samples), example, _ANOTHER, endpoint)


def structure_findings(tokens: Iterable[Structure]) -> list[Finding]:
    """Name structural tokens that the target would hardly have sampled where the format puts them."""
    by_text: dict[str, list[Structure]] = {}
    for token in tokens:
        by_text.setdefault(token.text, []).append(token)
    found: list[Finding] = []
    for text, seen in by_text.items():
        odd = [token for token in seen if token.score < IMPROBABLE]
        if odd:
            samples = len({token.sample for token in odd})
            worst = min(odd, key=lambda token: token.score)
            sentence = (
                f"The target hardly samples {text!r} where the ids have it in {samples} answers "
                f"(log-probability {worst.score:.1f} at worst)"
            )
            examined = len({token.sample for token in seen})
            found.append(Finding("structure", sentence, samples, examined, worst.sample, _STRUCTURE))
    return found
