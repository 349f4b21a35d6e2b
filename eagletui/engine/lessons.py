"""What every end of a request teaches: prompt bounds, endpoints to avoid, offsets, breaches, failures."""

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import NamedTuple

from eagletui.config.sections import CheckSection
from eagletui.core.drift import Cause, Verdict
from eagletui.core.findings import Finding
from eagletui.core.money import format_usd
from eagletui.core.prompt_counts import PromptCounts
from eagletui.core.reply import Reply
from eagletui.engine.answers import ReadySample, Remade
from eagletui.engine.budget import PromptBounds
from eagletui.engine.dispatch import THROTTLED, Landing
from eagletui.engine.gates import Gates
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.pace import Pace
from eagletui.engine.second_look import SecondLook
from eagletui.engine.watch import Review, Watch, labels_alike, write_review
from eagletui.ledger.orders import Finished, Overrun
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import Stranger
from eagletui.tokens.profiles import UNTOUCHED, ProfileChoice


class _Judgement(NamedTuple):
    endpoint: str
    verdict: Verdict
    """In force when the answer was labelled."""
    sample_id: int
    ended: bool
    """The model ended the answer itself, so that a constant of the end token applies."""
    outdated: bool
    """Rebuilt under another loss profile than the endpoint has now, so it is rebuilt once it is on disk."""


@dataclass(slots=True)
class Lessons:
    """Draws the conclusions."""

    ledger: LedgerThread
    gates: Gates
    pace: Pace
    check: CheckSection
    watch: Watch
    bounds: PromptBounds
    second_look: SecondLook
    avoid: dict[int, str] = field(default_factory=dict)
    """By sample id: the endpoint that failed it last."""
    _judged: dict[int, _Judgement] = field(default_factory=dict)
    _ended: dict[str, "array[int]"] = field(default_factory=dict)
    """By endpoint: samples on disk that a constant of the end token would rebuild."""
    _causes: dict[str, Cause | None] = field(default_factory=dict)
    """By endpoint: the constant under which they are rebuilt."""
    _stale: dict[str, "array[int]"] = field(default_factory=dict)
    """By endpoint: samples on disk that were labelled before the verdict in force."""
    unprofiled: dict[str, "array[int]"] = field(default_factory=dict)
    """By endpoint whose profile `auto` has not chosen: samples on disk."""
    _profiles: dict[str, str] = field(default_factory=dict)
    """By endpoint: the profile that `auto` chose in this engine's life."""
    _chosen: list[tuple[str, ProfileChoice]] = field(default_factory=list)
    """Choices that the ledger does not know yet."""
    _strangers: dict[str, Stranger] = field(default_factory=dict)
    """Those who answered unasked and are not in the ledger yet, by label."""
    _outdated: dict[str, "array[int]"] = field(default_factory=dict)
    """By endpoint: samples on disk to be rebuilt under its profile."""

    async def doubt_format(self, findings: Sequence[Finding]) -> None:
        """Record what does not fit between format and tokenizer; a new fault pauses before anything is bought."""
        for finding in findings:
            is_new = await self.ledger.do(partial(LedgerWriter.put_finding, finding=finding))
            if is_new and self.check.on_breach != "warn":
                self.gates.want_pause("check", f"{finding.sentence}. {finding.action}")

    @property
    def is_busy(self) -> bool:
        """Whether something learned has not reached the ledger yet."""
        waiting = (self.second_look.waiting, self._chosen, self._outdated, self._strangers, self.watch.has_news)
        return any(map(bool, waiting))

    def landed(self, landing: Landing) -> None:
        """Learn from the end of a request."""
        flight, failure = landing.flight, landing.failure
        sample_id, tag = flight.ready.sample.id, flight.endpoint.tag
        if failure is None:
            self.avoid.pop(sample_id, None)
            self.watch.ended(tag, flight.ready.sample.key, failed=False)
            if landing.stranger is None:
                self.watch.served(tag, flight.ready.sample.key)
                self._see(landing)
            else:
                self._meet(landing, landing.stranger)
        elif failure.kind != "aborted":
            self.avoid[sample_id] = tag
            if failure.kind not in THROTTLED and failure.pause is None:
                self.watch.ended(tag, flight.ready.sample.key, failed=True)
            # A missing or dearer endpoint is taken out of the rotation; the run pauses when it was the last that
            # worked, or when the prices, which are fetched again, prove to have risen.
            spares = failure.pause == "breaker" or (failure.pause == "price" and self.pace.has_working_lane)
            if failure.pause is not None and not spares:
                self.gates.want_pause(failure.pause, failure.detail)

    def filed(self, batch: Sequence[Finished], overruns: Sequence[Overrun]) -> None:
        """Learn from rows that are on disk."""
        for finished in batch:
            judged = self._judged.pop(finished.attempt_id, None)
            if judged is None:
                continue
            if judged.endpoint not in self._profiles:
                self.unprofiled.setdefault(judged.endpoint, array("q")).append(judged.sample_id)
            if judged.outdated:
                self._outdated.setdefault(judged.endpoint, array("q")).append(judged.sample_id)
            if judged.ended:
                self._ended.setdefault(judged.endpoint, array("q")).append(judged.sample_id)
            if not labels_alike(judged.verdict, self.watch.verdict(judged.endpoint)):
                self._stale.setdefault(judged.endpoint, array("q")).append(judged.sample_id)
        self.overcharged(overruns)

    def overcharged(self, overruns: Sequence[Overrun]) -> None:
        """Stop admission when a cost was above its bound, name the row, and hold more at that endpoint from now on."""
        for overrun in overruns:
            charge = overrun.charge
            times = Decimal(self.bounds.learn_overcharge(overrun.endpoint, charge)) / 1000
            self.gates.want_pause(
                "breaker",
                f"Sample {overrun.sample_key}, attempt {overrun.attempt_id}: the provider charged "
                f"{format_usd(charge.cost_pico, 6)}, above the bound {format_usd(charge.hold_pico, 6)}. "
                f"Holds at {overrun.endpoint} are {times} times their bound from now on.",
            )

    async def review(self) -> None:
        """Judge the endpoints that answered, and act on a breach of `[check]`."""
        await self._write_choices()
        await self._write_news()
        await self._write_strangers()
        stale, self._stale = self._stale, {}
        for review in self.watch.review(stale):
            await self.ledger.do(partial(_write_review, review))
            self._look_again(review, stale.get(review.endpoint, ()))
            for breach in review.breaches:
                await self._breached(review.endpoint, breach)

    async def _write_news(self) -> None:
        """Put into the log which endpoints were taken out of the rotation, or are back in it."""
        news, self.pace.news = self.pace.news, []
        if news:
            await self.ledger.do(partial(_write_lines, news))

    async def _write_strangers(self) -> None:
        """Record those who answered unasked as endpoints, whose answers people can set aside, or release."""
        strangers, self._strangers = self._strangers, {}
        for stranger in strangers.values():
            await self.ledger.do(partial(_record_stranger, stranger))

    async def _write_choices(self) -> None:
        """Put new profiles into the ledger, and have what came before them rebuilt."""
        chosen, self._chosen = self._chosen, []
        outdated, self._outdated = self._outdated, {}
        for endpoint, choice in chosen:
            write = partial(_write_choice, endpoint, choice)
            if samples := outdated.pop(endpoint, None):
                self.second_look.ask(endpoint, self.watch.verdict(endpoint), samples, self._recount, write)
            else:
                await self.ledger.do(write)
        for endpoint, samples in outdated.items():
            self.second_look.ask(endpoint, self.watch.verdict(endpoint), samples, self._recount)

    def _recount(self, endpoint: str, made: Remade) -> None:
        self.watch.see(endpoint, made.sample_key, made.reply, made.rebuilt)

    def take_profile(self, endpoint: str, choice: ProfileChoice) -> None:
        """Have everything before this choice rebuilt where it was rebuilt under another profile."""
        name = choice.profile.name
        self._profiles[endpoint] = name
        self._chosen.append((endpoint, choice))
        earlier = self.unprofiled.pop(endpoint, None)
        self.watch.decided(endpoint, anew=name != UNTOUCHED)
        if name == UNTOUCHED:
            return
        if earlier:
            self._outdated.setdefault(endpoint, array("q")).extend(earlier)
        for attempt_id, judged in self._judged.items():
            if judged.endpoint == endpoint:
                self._judged[attempt_id] = judged._replace(outdated=True)

    def _look_again(self, review: Review, stale: Sequence[int]) -> None:
        """Have answers rebuilt that were filed under another constant of their endpoint: labels alone cannot prove."""
        cause, endpoint = review.verdict.cause, review.endpoint
        if not review.relabels:
            return
        if cause != self._causes.get(endpoint):
            self._causes[endpoint] = cause
            self.second_look.ask(endpoint, review.verdict, tuple(self._ended.get(endpoint, ())))
        elif cause is not None:
            self.second_look.ask(endpoint, review.verdict, stale)

    def _see(self, landing: Landing) -> None:
        flight, judged = landing.flight, landing.judged
        if judged is None:
            return
        tag = flight.endpoint.tag
        if judged.chosen is not None:
            self.take_profile(tag, judged.chosen)
        if judged.reply.usage is not None:
            self.bounds.learn(tag, flight.ready.prompt_tokens, judged.reply.usage.prompt_tokens)
        if judged.traits is not None:
            self.watch.look(tag, flight.ready.sample.key, judged.traits)
        if judged.rebuilt is not None:
            ready = flight.ready
            outdated = judged.profile != self._profiles.get(tag, judged.profile)
            if not outdated:
                self.watch.see(tag, ready.sample.key, judged.reply, judged.rebuilt, _prompt_counts(ready, judged.reply))
            self._causes.setdefault(tag, judged.verdict.cause)
            ended = judged.rebuilt.ended
            self._judged[flight.attempt_id] = _Judgement(tag, judged.verdict, ready.sample.id, ended, outdated)

    def _meet(self, landing: Landing, stranger: Stranger) -> None:
        """Take in an answer of another than the one asked, which says nothing about the latter."""
        tag, judged = landing.flight.endpoint.tag, landing.judged
        if judged is not None and judged.chosen is not None:
            self.take_profile(tag, judged.chosen)
        key = landing.flight.ready.sample.key
        self.watch.served(tag, key, stranger.label, other_model=stranger.is_other_model)
        self._strangers[stranger.label] = stranger

    async def _breached(self, endpoint: str, breach: Finding) -> None:
        message = f"{breach.sentence}. {breach.action}"
        await self.ledger.do(lambda writer: writer.event("warn", "engine", "check", message))
        if self.check.on_breach == "pause":
            self.gates.want_pause("check", f"{breach.sentence}.")
        elif self.check.on_breach == "quarantine":
            self.pace.lanes[endpoint].quarantined = True
            await self.ledger.do(partial(_close_endpoint, endpoint))


def _prompt_counts(ready: ReadySample, reply: Reply) -> PromptCounts | None:
    billed = reply.usage.prompt_tokens if reply.usage else None
    if billed is None or ready.prompt_ids is None:
        return None
    return PromptCounts(billed, len(ready.prompt_ids), ready.sample.prompt.tools_json is not None)


def _write_lines(news: Sequence[str], writer: LedgerWriter) -> None:
    with writer.transaction():
        for line in news:
            writer.event("warn", "engine", "breaker", line)


def _write_choice(endpoint: str, choice: ProfileChoice, writer: LedgerWriter) -> None:
    writer.choose_profile(endpoint, choice.profile.name)
    writer.event("info", "engine", "profile", f"{endpoint}: loss profile {choice.profile.name}. {choice.reason}")


def _record_stranger(stranger: Stranger, writer: LedgerWriter) -> None:
    """Keep another model's answers out of training, unless a person has released them since."""
    if writer.knows_endpoint(stranger.label):
        return
    with writer.transaction():
        writer.upsert_endpoint(stranger.label, stranger.provider_name)
        if stranger.is_other_model:
            writer.quarantine(stranger.label)


def _close_endpoint(endpoint: str, writer: LedgerWriter) -> None:
    """Buy nothing more from an endpoint; what it answered so far keeps its labels until a person decides."""
    writer.quarantine(endpoint, since=time.time())


def _write_review(review: Review, writer: LedgerWriter) -> None:
    relabelled = write_review(writer, review)
    if relabelled:
        cause = review.verdict.cause
        named = f"offset {cause.offset} ({cause.name})" if cause else "no offset"
        trusted = "" if review.verdict.trusted else ", its counts are not trusted"
        message = f"{review.endpoint}: {named}{trusted}; {relabelled} samples are labelled again."
        writer.event("info", "engine", "offset", message)
