"""What a provider bills for a request that is broken off (OpenRouter's page on streaming, section on cancellation)."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

CancelBill = Literal["stops", "full", "unknown"]
"""`stops`: generation and bill end with the connection; `full`: the whole answer is made and billed."""

STOPS: Final = (
    "anthropic anyscale avian azure chutes cloudflare cohere deepinfra deepseek fireworks friendli hyperbolic "
    "infermatic lepton liquid mancer nineteen novita octoai openai recursal sfcompute together xai"
).split()
FULL: Final = (
    "ai21 aistudio alibaba amazonbedrock bedrock featherless google groq huggingface inferencenet kluster lambda "
    "minimax mistral modal nebius perplexity replicate sambanova targon"
).split()
"""Plain names of providers, each also the beginning of its longer ones (`Nebius AI Studio`)."""


class BrokenOff(NamedTuple):
    """One request that was broken off."""

    endpoint: str
    provider_name: str
    streamed: bool


def cancel_bill(broken: BrokenOff) -> CancelBill:
    """Tell what is billed; a request that was not streamed is answered, and billed, as a whole."""
    name = re.sub(r"[\W_]", "", broken.provider_name.casefold())
    if not broken.streamed or name.startswith(tuple(FULL)):
        return "full"
    return "stops" if name.startswith(tuple(STOPS)) else "unknown"


def broken_off_words(broken: Iterable[BrokenOff]) -> str:
    """Say which endpoints bill whole answers all the same; empty where none does."""
    counts: dict[CancelBill, Counter[str]] = {"full": Counter(), "unknown": Counter(), "stops": Counter()}
    for one in broken:
        counts[cancel_bill(one)][one.endpoint] += 1
    told: dict[CancelBill, str] = {"full": "Billed in full all the same", "unknown": "Perhaps billed in full"}
    return " ".join(
        f"{words}: {', '.join(f'{endpoint} ({number})' for endpoint, number in sorted(counts[bill].items()))}."
        for bill, words in told.items()
        if counts[bill]
    )
