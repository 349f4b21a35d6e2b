"""Hold the last stream that a server returns against what the server itself says about its next token.

Put through the model's own norm and head it must give the server's log-probability; a stream after the norm, or of
another layer, does not. Where a token is all but certain, as behind the end of an answer, other streams give it too: so
samples are cut inside their answers, at places where the server is unsure.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from eagletui.core.features import AUX_LAYERS
from eagletui.extract.backends.refusals import Unusable
from eagletui.extract.backends.states_server import Answer
from eagletui.extract.shards import IdsSample
from eagletui.models.tail import Tail

PROVED_ANSWERS: Final = 4
PROOF_NATS: Final = 0.15
"""Median distance between the server's log-probability of its next token and ours. bfloat16 explains about 0.02. Of
SmolLM2-135M at unsure places, the stream before the last layer gave 0.76 or more, one after the norm 0.49 or more."""

UNSURE_NATS: Final = 0.5
"""An answer tells something about its stream where the most likely next token has this much less than certainty."""

_CUTS: Final = (1 / 2, 1 / 4, 3 / 4, 1 / 8, 3 / 8, 5 / 8)
"""Parts of an answer after which the server is asked for the next token, until enough answers are unsure."""


def unsure(answers: Iterable[Answer]) -> list[Answer]:
    """Take answers that tell something, until there are enough."""
    return list(islice((answer for answer in answers if answer.next_logprob <= -UNSURE_NATS), PROVED_ANSWERS))


def cut(samples: Sequence[IdsSample]) -> list[IdsSample]:
    """Cut samples inside their answers, in several places each, one of each first."""
    cuts = []
    for part in _CUTS:
        for sample in samples:
            prompt = sample.loss_mask.index(1) if 1 in sample.loss_mask else 0
            length = max(1, prompt + int((len(sample.token_ids) - prompt) * part))
            cuts.append(replace(sample, token_ids=sample.token_ids[:length], loss_mask=sample.loss_mask[:length]))
    return cuts


def held_against(tail: Tail, answers: Sequence[Answer]) -> str:
    """Compare the server's log-probabilities with what the last stream gives, and return the figures as a phrase.

    Args:
        tail: the model's final norm and head.
        answers: at least one.

    Raises:
        Unusable: the last stream is another one.
    """
    lasts = [(answer.streams[-1, AUX_LAYERS], answer) for answer in answers]
    before = statistics.median(abs(tail.logprob(last, answer.next_id) - answer.next_logprob) for last, answer in lasts)
    after = statistics.median(
        abs(tail.logprob(last, answer.next_id, is_normed=True) - answer.next_logprob) for last, answer in lasts
    )
    if before <= PROOF_NATS:
        return (
            f"the last slot gives the server's own log-probabilities within {before:.3f} nats ({len(answers)} answers)"
        )
    where = "is the stream after the final norm" if after <= PROOF_NATS else "is no stream before the model's head"
    raise Unusable(
        f"The server's last slot {where}: with the model's norm and head it gives log-probabilities that are "
        f"{before:.2f} nats from the server's own ({after:.2f} without the norm). A record needs the last layer's "
        "output before the norm. Start the server with the layers that this command asks for, on this very model."
    )
