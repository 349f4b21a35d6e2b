"""The computing around a request, away from the event loop: render and count the prompt, judge the reply."""

import asyncio
import random
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

import msgspec

from eagletui.core.answer_traits import Traits, traits_of
from eagletui.core.chat import Prompt
from eagletui.core.drift import Verdict, distrust, relabel
from eagletui.core.errors import EagleError
from eagletui.core.reply import Reply
from eagletui.core.text import clean_line
from eagletui.engine.live_profiles import LiveProfiles, unprofiled
from eagletui.ledger.orders import QueuedSample, TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_samples import ToRebuild
from eagletui.providers.base import RawReply, Sampling
from eagletui.providers.reading import read_kept, read_reply
from eagletui.run_ids import RunIds, as_stored
from eagletui.tokens.answer import Rebuilt
from eagletui.tokens.live_check import LiveCheck
from eagletui.tokens.profiles import ProfileChoice

T = TypeVar("T")

SEED_BITS: Final = 31
HURRIED: Final = 20
"""With so many replies waiting, the content of only every fourth is looked at."""


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
    profile: str = ""
    """Name of the loss profile it was rebuilt under."""
    chosen: ProfileChoice | None = None
    """What `auto` chose for the endpoint on this answer, which is rebuilt under it already."""
    trouble: str = ""
    traits: Traits | None = None
    """What the answer looks like; None where the content is not checked."""
    encoders_differ: bool = False
    """The fast encoder was found wrong on this answer and is used no more."""


class Restored(NamedTuple):
    """What an earlier engine left of endpoints without a profile."""

    samples: Mapping[str, Sequence[int]]
    """Answered ones on disk, by endpoint."""
    chosen: Mapping[str, ProfileChoice]
    """Profiles that these choose already."""


class Remade(NamedTuple):
    """A kept answer, rebuilt."""

    sample_id: int
    sample_key: str
    reply: Reply
    rebuilt: Rebuilt
    """Before any label was taken back."""
    result: TokensResult


class AnswerDesk:
    """Renders prompts and rebuilds answers in a thread of its own."""

    def __init__(self, ids: RunIds, *, doubted: bool = False) -> None:
        """Take what a run's answers are rebuilt with.

        Args:
            ids: the run's tokenizer, format and profiles.
            doubted: the format does not fit the tokenizer, so no count proves anything.
        """
        self._ids = ids
        self._doubted = doubted
        self._check = LiveCheck()
        self._looks = 0
        self._canaries = {asked.strip(): re.compile(pattern) for asked, pattern in ids.config.check.canary.items()}
        self._live = LiveProfiles(ids)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="answers")
        self.waiting = 0
        """Replies received and not judged yet."""

    async def prepare(self, samples: list[QueuedSample]) -> list[ReadySample]:
        """Render prompts."""
        return await self._compute(lambda: [self._prepare(sample) for sample in samples])

    async def judge(self, raw: RawReply, ready: ReadySample, endpoint: str, verdict: Verdict) -> Judged:
        """Parse a body and rebuild its ids.

        Args:
            raw: as received.
            ready: the sample it answers.
            endpoint: the one that answered.
            verdict: what the endpoint's earlier answers say.

        Raises:
            ProviderFailure: the reply hides a failure.
        """
        self.waiting += 1
        try:
            return await self._compute(lambda: self._judge(raw, ready, endpoint, verdict))
        finally:
            self.waiting -= 1

    @property
    def awaits_profiles(self) -> bool:
        """Whether `auto` chooses and another choice than fields as they come would give other texts."""
        return self._live.matters

    def restore(self, reader: LedgerReader) -> Restored:
        """Take the answers from which `auto` has not chosen yet; call it before the first answer is judged."""
        kept = unprofiled(self._ids, reader)
        chosen = self._live.restore(self._ids, reader, kept)
        profiles = {endpoint: choice.profile for endpoint, choice in chosen.items()}
        self._ids = replace(self._ids, profiles={**self._ids.profiles, **profiles})
        return Restored(kept, chosen)

    async def again(self, items: Sequence[ToRebuild], verdict: Verdict) -> list[Remade]:
        """Rebuild kept answers of one endpoint.

        Args:
            items: as stored.
            verdict: what the endpoint's answers say now.

        Returns:
            What to store; answers that cannot be rebuilt are left out.
        """
        return await self._compute(lambda: [made for item in items for made in self._again(item, verdict)])

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def _compute(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, act)

    def _prepare(self, sample: QueuedSample) -> ReadySample:
        config = self._ids.config
        section = self._ids.sampling(sample.dataset, sample.prompt)
        dice = random.Random(f"{config.run.seed}:{sample.id}:{sample.attempts}")
        prompt_ids = self._ids.prompt_ids(sample.prompt, sample.dataset)
        count = len(msgspec.json.encode(sample.prompt)) if prompt_ids is None else len(prompt_ids)
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

    def _judge(self, raw: RawReply, ready: ReadySample, endpoint: str, verdict: Verdict) -> Judged:
        reply = read_reply(raw)
        sample = ready.sample
        traits = self._look(reply, sample)
        differ = False
        chosen = self._choose(reply, sample, endpoint)
        profile = self._ids.profile(endpoint).name
        try:
            rebuilt = self._rebuild(reply, sample.prompt, sample.dataset, endpoint, verdict)
            if self._check.differs(self._ids.tokenizer, self._checked_text(rebuilt, ready)):
                differ = True
                self._ids = replace(self._ids, tokenizer=self._ids.tokenizer.without_stand_in())
                rebuilt = self._rebuild(reply, sample.prompt, sample.dataset, endpoint, verdict)
        except EagleError as error:
            return Judged(reply, None, None, verdict, profile, chosen, clean_line(str(error), 300), traits)
        final = labelled(rebuilt, reply, verdict, doubted=self._doubted)
        prompt_ids = self._ids.prompt_ids(sample.prompt, sample.dataset) if differ else ready.prompt_ids
        stored = as_stored(final, reply, prompt_ids)
        return Judged(reply, rebuilt, stored, verdict, profile, chosen, traits=traits, encoders_differ=differ)

    def _look(self, reply: Reply, sample: QueuedSample) -> Traits | None:
        """Look at an answer's content, unless others wait for their ids."""
        self._looks += 1
        if not self._ids.config.check.content or (self.waiting > HURRIED and self._looks % 4):
            return None
        return traits_of(reply, sample.prompt, sample.dataset, self._canaries)

    def _choose(self, reply: Reply, sample: QueuedSample, endpoint: str) -> ProfileChoice | None:
        chosen = self._live.take(self._ids, reply, sample, endpoint)
        if chosen is not None:
            self._ids = replace(self._ids, profiles={**self._ids.profiles, endpoint: chosen.profile})
        return chosen

    def _rebuild(self, reply: Reply, prompt: Prompt, dataset: str, endpoint: str, verdict: Verdict) -> Rebuilt:
        offset = None if verdict.cause is None else verdict.cause.offset
        return self._ids.rebuild(reply, prompt, dataset, endpoint, offset=offset)

    def _checked_text(self, rebuilt: Rebuilt, ready: ReadySample) -> str:
        prompt = self._ids.tokenizer.vocabulary.decode(ready.prompt_ids or ()).decode("utf-8", "replace")
        return prompt + rebuilt.raw

    def _again(self, item: ToRebuild, verdict: Verdict) -> Iterator[Remade]:
        row = item.row
        try:
            reply = read_kept(item.reply.encoding, item.reply.body)
            rebuilt = self._rebuild(reply, item.prompt, row.dataset, row.endpoint or "", verdict)
        except EagleError:
            return  # it was named when it came
        final = labelled(rebuilt, reply, verdict, doubted=self._doubted)
        result = as_stored(final, reply, None if item.tokens is None else item.tokens.prompt_ids)
        yield Remade(row.id, row.sample_key, reply, rebuilt, result)


def labelled(rebuilt: Rebuilt, reply: Reply, verdict: Verdict, *, doubted: bool) -> Rebuilt:
    """Take back a label that rests on a count or a format that is not to be trusted."""
    finish_reason = reply.finish_reason if rebuilt.ended else None
    evidence = relabel(rebuilt.evidence, rebuilt.excess, finish_reason, verdict)
    if doubted and (evidence == "counted" or rebuilt.leans_on_format):
        evidence = "conflict"
    if evidence == rebuilt.evidence:
        return rebuilt
    reason = "A finding doubts the format." if doubted else distrust(rebuilt.evidence)
    usability = rebuilt.usability
    if usability == "usable":
        usability = "text_suspect" if doubted else "resegmented"
    excess = None if rebuilt.evidence == "streamed" else rebuilt.excess
    return replace(rebuilt, evidence=evidence, reason=reason, usability=usability, excess=excess)
