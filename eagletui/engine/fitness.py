"""Which endpoints a request fits: they take what it sets, and it is not too long for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eagletui.core.chat import Prompt
from eagletui.engine.answers import ReadySample
from eagletui.providers.base import Endpoint, Sampling


class Limits(NamedTuple):
    """All of an endpoint that says what fits it."""

    parameters: frozenset[str]
    max_prompt_tokens: int | None
    context_tokens: int | None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a request asks of an endpoint."""

    parameters: frozenset[str]
    """Optional parameters that it sets, as endpoints list them."""
    prompt_tokens: int | None
    """Counted by our tokenizer; None where the prompt could not be rendered."""
    max_tokens: int


def limits_of(endpoint: Endpoint) -> Limits:
    """Return what `fits` looks at."""
    return Limits(endpoint.parameters, endpoint.max_prompt_tokens, endpoint.context_tokens)


def needs_of(ready: ReadySample) -> Needs:
    """Return what a sample's request asks of an endpoint."""
    prompt_tokens = None if ready.prompt_ids is None else len(ready.prompt_ids)
    return needs_for(ready.sample.prompt, ready.sampling, prompt_tokens, ready.max_tokens)


def needs_for(prompt: Prompt, sampling: Sampling, prompt_tokens: int | None, max_tokens: int) -> Needs:
    """Return what a request asks of an endpoint.

    Tools are among it: no router refuses them for an endpoint that does not list them, which then answers, and bills,
    as if there were none.
    """
    tools = {"tools"} if prompt.tools_json is not None else set()
    return Needs(sampling.parameters | tools, prompt_tokens, max_tokens)


def lacks(endpoint: Endpoint, needs: Needs) -> frozenset[str]:
    """Return the parameters that an endpoint, by its own list, does not take; empty where it has no list."""
    return needs.parameters - endpoint.parameters if endpoint.parameters else frozenset()


def too_long(endpoint: Endpoint, needs: Needs) -> str | None:
    """Say which limit of an endpoint a request passes, as a clause; None where it passes none."""
    if needs.prompt_tokens is None:
        return None
    most, context = endpoint.max_prompt_tokens, endpoint.context_tokens
    if most is not None and needs.prompt_tokens > most:
        return f"takes prompts of at most {most:,} tokens"
    if context is not None and needs.prompt_tokens + needs.max_tokens > context:
        return f"has a context of {context:,} tokens"
    return None


def fits(endpoint: Endpoint, needs: Needs) -> bool:
    """Tell whether an endpoint can be asked."""
    return not lacks(endpoint, needs) and too_long(endpoint, needs) is None


def why_none(endpoints: Mapping[str, Endpoint], needs: Needs) -> str:
    """Say why no endpoint can be asked.

    Args:
        endpoints: those on offer, by tag; none of them fits.
        needs: of the request.
    """
    lacking = {tag: missing for tag, endpoint in endpoints.items() if (missing := lacks(endpoint, needs))}
    if len(lacking) == len(endpoints):
        return (
            f"No endpoint on offer takes {' and '.join(sorted(frozenset().union(*lacking.values())))}, which it sets."
        )
    clauses = []
    for tag, endpoint in sorted(endpoints.items()):
        if tag in lacking:
            clauses.append(f"{tag} takes no {' and '.join(sorted(lacking[tag]))}")
        elif (limit := too_long(endpoint, needs)) is not None:
            clauses.append(f"{tag} {limit}")
    prompt = "unknown" if needs.prompt_tokens is None else f"{needs.prompt_tokens:,}"
    return (
        f"No endpoint can be asked for this prompt of {prompt} tokens with max_tokens = {needs.max_tokens:,}: "
        f"{'; '.join(clauses)}."
    )
