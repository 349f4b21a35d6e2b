"""The computing around a request, away from the event loop: render and count the prompt, judge the reply."""

import asyncio
import random
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import msgspec

from eagletui.config import RunConfig
from eagletui.core.drift import Verdict, relabel
from eagletui.core.errors import EagleError
from eagletui.core.outputs import LossProfile, OutputFormat
from eagletui.core.reply import Reply
from eagletui.core.text import clean_line
from eagletui.ledger.orders import QueuedSample, TokensResult
from eagletui.providers.base import RawReply, Sampling
from eagletui.providers.reading import read_reply
from eagletui.tokens.answer import Rebuilt, rebuild
from eagletui.tokens.formats import asked_thinking
from eagletui.tokens.load import Tokenizer
from eagletui.tokens.prompt import render_prompt

T = TypeVar("T")

SEED_BITS: Final = 31


@dataclass(frozen=True, slots=True)
class ReadySample:
    """A sample whose prompt is rendered and counted: it needs only money and an endpoint."""

    sample: QueuedSample
    prompt_ids: "array[int] | None"
    """In our tokenizer; None when the template refused the conversation."""
    prompt_tokens: int
    """Counted, or the number of UTF-8 bytes, which no token count exceeds."""
    sampling: Sampling
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Judged:
    """What a reply says and what its ids are."""

    reply: Reply
    rebuilt: Rebuilt | None
    """None when rebuilding failed; `trouble` says why."""
    tokens: TokensResult | None
    """The same for the ledger."""
    verdict: Verdict
    """What was known of the endpoint then."""
    trouble: str = ""


class AnswerDesk:
    """Renders prompts and rebuilds answers in a thread of its own."""

    def __init__(
        self, config: RunConfig, tokenizer: Tokenizer, fmt: OutputFormat, profile: LossProfile, *, doubted: bool = False
    ) -> None:
        """Take what a run's answers are rebuilt with.

        Args:
            config: of the run.
            tokenizer: the target model's.
            fmt: how the family writes.
            profile: what the server strips.
            doubted: the format does not fit the tokenizer, so no count proves anything.
        """
        self._config = config
        self._tokenizer = tokenizer
        self._format = fmt
        self._profile = profile
        self._doubted = doubted
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="answers")
        self.waiting = 0
        """Replies received and not judged yet."""

    async def prepare(self, samples: list[QueuedSample]) -> list[ReadySample]:
        """Render prompts."""
        return await self._compute(lambda: [self._prepare(sample) for sample in samples])

    async def judge(self, raw: RawReply, ready: ReadySample, verdict: Verdict) -> Judged:
        """Parse a body and rebuild its ids.

        Args:
            raw: as received.
            ready: the sample it answers.
            verdict: what the endpoint's earlier answers say.

        Raises:
            ProviderFailure: the reply hides a failure.
        """
        self.waiting += 1
        try:
            return await self._compute(lambda: self._judge(raw, ready, verdict))
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def _compute(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, act)

    def _prepare(self, sample: QueuedSample) -> ReadySample:
        section = self._config.sampling_for(sample.dataset)
        dice = random.Random(f"{self._config.run.seed}:{sample.id}:{sample.attempts}")
        try:
            rendered = render_prompt(sample.prompt, self._tokenizer, self._format, self._config.model.template_kwargs)
            prompt_ids = array("i", rendered.ids)
            count = len(prompt_ids)
        except EagleError:
            prompt_ids = None
            count = len(msgspec.json.encode(sample.prompt))
        return ReadySample(
            sample=sample,
            prompt_ids=prompt_ids,
            prompt_tokens=count,
            sampling=Sampling(
                temperature=section.temperature,
                top_p=section.top_p,
                top_k=section.top_k,
                seed=dice.getrandbits(SEED_BITS) if section.seed else None,
                reasoning=section.reasoning,
            ),
            max_tokens=section.max_tokens,
        )

    def _judge(self, raw: RawReply, ready: ReadySample, verdict: Verdict) -> Judged:
        reply = read_reply(raw)
        try:
            rebuilt = rebuild(
                reply,
                self._tokenizer,
                self._format,
                self._profile,
                max_tokens=ready.max_tokens,
                offset=None if verdict.cause is None else verdict.cause.offset,
                prompt=ready.sample.prompt,
                thinking=asked_thinking(self._format, self._switches(ready.sampling)),
            )
        except EagleError as error:
            return Judged(reply, None, None, verdict, clean_line(str(error), 300))
        return Judged(reply, rebuilt, _tokens(labelled(rebuilt, reply, verdict, doubted=self._doubted), ready), verdict)

    def _switches(self, sampling: Sampling) -> dict[str, object]:
        """What the request says about thinking, as `asked_thinking` reads it."""
        said: dict[str, object] = {"chat_template_kwargs": self._config.model.template_kwargs}
        if sampling.reasoning == "off":
            said["reasoning"] = {"enabled": False}
        elif sampling.reasoning != "default":
            said["reasoning"] = {"effort": sampling.reasoning}
        return said


def labelled(rebuilt: Rebuilt, reply: Reply, verdict: Verdict, *, doubted: bool) -> Rebuilt:
    """Take back a label that rests on a count or a format that is not to be trusted."""
    finish_reason = reply.finish_reason if rebuilt.ended else None
    evidence = relabel(rebuilt.evidence, rebuilt.excess, finish_reason, verdict)
    if doubted and (evidence == "counted" or rebuilt.leans_on_format):
        evidence = "conflict"
    if evidence == rebuilt.evidence:
        return rebuilt
    reason = "A finding doubts the format." if doubted else "The endpoint's counts show an unexplained constant."
    usability = rebuilt.usability
    if usability == "usable":
        usability = "text_suspect" if doubted else "resegmented"
    return replace(rebuilt, evidence=evidence, reason=reason, usability=usability)


def _tokens(rebuilt: Rebuilt, ready: ReadySample) -> TokensResult:
    return TokensResult(
        output_ids=rebuilt.output_ids,
        raw=rebuilt.raw,
        evidence=rebuilt.evidence,
        usability=rebuilt.usability,
        prompt_ids=ready.prompt_ids,
        spans=rebuilt.spans,
        reason=rebuilt.reason,
        counted=rebuilt.counted,
        offset=rebuilt.offset,
        drift=rebuilt.drift,
        tail_trimmed=rebuilt.tail_trimmed,
        excess=rebuilt.excess,
        plain_excess=rebuilt.plain_excess,
        ended=rebuilt.ended,
    )
