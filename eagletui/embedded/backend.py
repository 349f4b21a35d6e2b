"""What an answer is and who can give one: a real model, or recordings."""

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from eagletui.embedded.asks import Ask, AskMessage

UNKNOWN_LOGPROB = -9999.0
"""OpenAI's value for a logprob that is not known."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One generation, before it takes the shape of a body or a stream."""

    prompt_tokens: int
    output_ids: tuple[int, ...]
    """The sampled ids, the stop token included."""
    logprobs: tuple[float, ...]
    """Natural log per id; -9999.0 where not known."""
    finish_reason: Literal["stop", "length"]
    token_interval_s: float = 0.0
    """How long a stream waits per token, where time is simulated."""

    def cut(self, tokens: int) -> "Answer":
        """Return the answer's first tokens."""
        return replace(self, output_ids=self.output_ids[:tokens], logprobs=self.logprobs[:tokens])


class Backend(Protocol):
    """Gives answers. Both implementations keep no money and no HTTP."""

    name: str
    """`model` or `replay`."""

    async def answer(self, ask: Ask, prompt_tokens: int) -> Answer:
        """Generate one answer.

        Args:
            ask: the request; its prompt and token limit fit the context.
            prompt_tokens: the length of the rendered conversation.

        Raises:
            BackendError: the model server failed.
        """

    async def close(self) -> None:
        """Release what the backend holds."""


class BackendError(Exception):
    """The model behind the API failed; the API answers 502."""


@dataclass(frozen=True, slots=True)
class PromptCounter:
    """Counts prompt tokens as the model server does: the chat template's text, control tokens by their text."""

    tokenizer: Tokenizer
    template: Template

    def count(self, messages: tuple[AskMessage, ...]) -> int:
        """Return how many tokens the rendered conversation has."""
        turns = [{"role": message.role, "content": message.text} for message in messages]
        text = self.template.render(messages=turns, add_generation_prompt=True)
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)


@functools.cache
def load_prompt_counter(folder: Path) -> PromptCounter:
    """Load the tokenizer and template of a folder."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((folder / "chat_template.jinja").read_text(encoding="utf-8"))
    return PromptCounter(Tokenizer.from_file(str(folder / "tokenizer.json")), template)
