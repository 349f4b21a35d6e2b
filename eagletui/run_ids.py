"""The ids of a run's samples as its config asks: the same for the engine, live, and for a rebuild of kept replies."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from eagletui.config.run_config import RunConfig
from eagletui.config.sampling import SamplingSection
from eagletui.core.chat import Prompt
from eagletui.core.errors import EagleError, ReplyError
from eagletui.core.fidelity import CANARIES
from eagletui.core.outputs import LossProfile, OutputFormat
from eagletui.core.reply import Reply
from eagletui.ledger.orders import TokensResult
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import EndpointRow
from eagletui.providers.base import reasoning_field
from eagletui.providers.reading import read_kept
from eagletui.tokens.answer import Rebuilt, rebuild
from eagletui.tokens.formats import AUTO, asked_thinking, load_profile, thinking_kwargs
from eagletui.tokens.load import Tokenizer
from eagletui.tokens.profiles import UNTOUCHED, Observed
from eagletui.tokens.prompt import render_prompt

_WATCHES: Final = "A canary: asked to watch the endpoint, not to train on."


@dataclass(frozen=True, slots=True)
class RunIds:
    """What the prompts and answers of a run are tokenized with."""

    config: RunConfig
    tokenizer: Tokenizer
    fmt: OutputFormat
    profiles: Mapping[str, LossProfile] = field(default_factory=dict)
    """By endpoint; others have the config's profile, and `auto` begins with fields as they come."""
    _sampling: dict[str, SamplingSection] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By data set, as they are asked for."""

    def sampling(self, dataset: str, prompt: Prompt | None = None) -> SamplingSection:
        """The sampling section of a data set, with a prompt's own over it."""
        if prompt is not None and prompt.sampling_json is not None:
            return self.config.sampling.drawn_for(dataset, prompt.sampling_json)
        if dataset not in self._sampling:
            self._sampling[dataset] = self.config.sampling.drawn_for(dataset)
        return self._sampling[dataset]

    def profile(self, endpoint: str) -> LossProfile:
        """What an endpoint's server strips."""
        name = self.config.model.profile
        return self.profiles.get(endpoint) or load_profile(UNTOUCHED if name == AUTO else name)

    def prompt_ids(self, prompt: Prompt, dataset: str, at: float | None = None) -> "array[int] | None":
        """Render a prompt; None when the chat template refuses the conversation.

        Args:
            prompt: up to where the answer begins.
            dataset: whose sampling section it is asked with.
            at: Unix seconds that a template sees as the present time; None for now.
        """
        now = None if at is None else datetime.fromtimestamp(at).astimezone()
        kwargs = template_kwargs(self.config, self.fmt, self.sampling(dataset, prompt).reasoning)
        try:
            rendered = render_prompt(prompt, self.tokenizer, self.fmt, kwargs, now=now)
        except EagleError:
            return None
        return array("i", rendered.ids)

    def rebuild(
        self, reply: Reply, prompt: Prompt, dataset: str, endpoint: str, *, offset: int | None = None
    ) -> Rebuilt:
        """Rebuild the ids of an answer.

        Args:
            reply: as parsed.
            prompt: up to where the answer begins.
            dataset: whose sampling section it was asked with.
            endpoint: the one that answered.
            offset: the endpoint's accepted constant between counted and billed tokens.

        Raises:
            EagleError: the format has no place for the reply.
        """
        rebuilt = rebuild(
            reply,
            self.tokenizer,
            self.fmt,
            self.profile(endpoint),
            max_tokens=self.sampling(dataset, prompt).max_tokens,
            offset=offset,
            prompt=prompt,
            thinking=self.thinking(dataset, prompt),
        )
        return rebuilt if dataset != CANARIES else replace(rebuilt, usability="unusable", reason=_WATCHES)

    def observed(self, reader: LedgerReader, sample_ids: Iterable[int]) -> Iterator[Observed]:
        """Read kept answers for a choice of loss profiles; one that cannot be read is left out.

        Args:
            reader: of the run's ledger.
            sample_ids: of answered samples.
        """
        for sample_id in sample_ids:
            for item in reader.to_rebuild(sample_id - 1, 1):
                try:
                    reply = read_kept(item.reply.encoding, item.reply.body)
                except ReplyError:
                    continue  # named when the sample itself is rebuilt
                dataset = item.row.dataset
                max_tokens = self.sampling(dataset, item.prompt).max_tokens
                yield Observed(reply, item.prompt, max_tokens, self.thinking(dataset, item.prompt))

    def thinking(self, dataset: str, prompt: Prompt | None = None) -> bool | None:
        """Whether the requests of a data set, or of one prompt, switch thinking on or off; None: they say nothing."""
        asked = self.sampling(dataset, prompt).reasoning
        said: dict[str, object] = {"chat_template_kwargs": self.config.model.template_kwargs}
        return asked_thinking(self.fmt, {**said, **reasoning_field(asked)})


def template_kwargs(config: RunConfig, fmt: OutputFormat, reasoning: str) -> dict[str, object]:
    """Return the chat template's variables for requests of a run.

    Args:
        config: its `template_kwargs` come last, so that a person has the last word.
        fmt: names the variables by which the family switches thinking.
        reasoning: `default`, `off` or an effort, as a data set asks.
    """
    kwargs = {} if reasoning == "default" else thinking_kwargs(fmt, reasoning != "off")
    if reasoning not in ("default", "off") and not reasoning.isdecimal():
        kwargs["reasoning_effort"] = reasoning
    return {**kwargs, **config.model.template_kwargs}


def router_kwargs(config: RunConfig, fmt: OutputFormat) -> dict[str, object]:
    """Return the template variables of a config that no field of a router's own stands for."""
    switches = {*fmt.reasoning.off, *fmt.reasoning.on, "reasoning_effort"}
    return {name: value for name, value in config.model.template_kwargs.items() if name not in switches}


def router_fields(config: RunConfig, fmt: OutputFormat, reasoning: str) -> dict[str, object]:
    """Return what carries the chat template's variables through a router.

    The router's own `reasoning` stands for the family's thinking switches and for `reasoning_effort`
    (https://openrouter.ai/docs/use-cases/reasoning-tokens); the rest goes as `chat_template_kwargs`.

    Args:
        config: its `template_kwargs` have the last word.
        fmt: names the variables by which the family switches thinking.
        reasoning: `default`, `off` or an effort, as a data set asks.
    """
    kwargs = config.model.template_kwargs
    fields = dict(reasoning_field(reasoning))
    switched = asked_thinking(fmt, {"chat_template_kwargs": kwargs})
    effort = kwargs.get("reasoning_effort")
    if switched is False:
        fields["reasoning"] = {"enabled": False}
    elif isinstance(effort, str):
        fields["reasoning"] = {"effort": effort}
    elif switched is True and reasoning in ("default", "off"):
        fields["reasoning"] = {"enabled": True}
    others = router_kwargs(config, fmt)
    return {**fields, "chat_template_kwargs": others} if others else fields


def chosen_profiles(config: RunConfig, endpoints: Iterable[EndpointRow]) -> dict[str, LossProfile]:
    """Return the profiles that `auto` has chosen for a run's endpoints; none where the config names one."""
    if config.model.profile != AUTO:
        return {}
    return {row.tag: load_profile(row.profile) for row in endpoints if row.profile is not None}


def as_stored(rebuilt: Rebuilt, reply: Reply, rendered: Sequence[int] | None) -> TokensResult:
    """Return what the ledger keeps of an answer.

    Args:
        rebuilt: its ids and labels.
        reply: as parsed; prompt ids that the server returned are the ones it used.
        rendered: the prompt's ids as rendered here.
    """
    return TokensResult(
        output_ids=rebuilt.output_ids,
        raw=rebuilt.raw,
        evidence=rebuilt.evidence,
        usability=rebuilt.usability,
        prompt_ids=rendered if reply.prompt_token_ids is None else reply.prompt_token_ids,
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
