"""How answers are drawn: `[sampling]`, what a data set changes of it, and what a row of a prompt file does."""

import difflib
import json
from collections.abc import Collection
from typing import Annotated, Final

from pydantic import Field, model_validator

from eagletui.config.values import Section
from eagletui.core.errors import ConfigError

Reasoning = Annotated[str, Field(pattern=r"^(default|off|minimal|low|medium|high|xhigh|max|[1-9][0-9]{0,6})$")]

_NAMED: Final = 10
"""So many data sets are listed where none has a similar name."""


class SamplingOverride(Section):
    """`[sampling.DATASET]`: what differs for one data set."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    reasoning: Reasoning | None = None
    seed: bool | None = None


class SamplingSection(Section):
    """`[sampling]`"""

    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: float = Field(default=0.95, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    """None: not sent."""
    max_tokens: int = Field(default=4096, ge=1)
    """Also the money bound of an answer."""
    reasoning: Reasoning = "default"
    """`default` sends nothing; `off`, an effort (`minimal` to `max`) or a number of tokens as text are sent."""
    seed: bool = False
    """Send a seed per attempt, made from `[run] seed`."""
    overrides: dict[str, SamplingOverride] = Field(default={})
    """By data set; written as `[sampling.DATASET]`."""

    @model_validator(mode="before")
    @classmethod
    def _gather_overrides(cls, data: object) -> object:
        if not isinstance(data, dict) or "overrides" in data:
            return data
        tables = {key: value for key, value in data.items() if isinstance(value, dict)}
        return {**{key: value for key, value in data.items() if key not in tables}, "overrides": tables}

    @property
    def longest(self) -> int:
        """The most output tokens of one answer, over all data sets."""
        return max(self.max_tokens, *(override.max_tokens or 0 for override in self.overrides.values()), 0)

    def require_known(self, datasets: Collection[str]) -> None:
        """Refuse sampling for a data set that no prompt is of, whose prompts would be drawn like all others.

        Args:
            datasets: names of those that the prompt files have.

        Raises:
            ConfigError: with the nearest name for each unknown one.
        """
        names = sorted(datasets)
        lines = []
        for unknown in [name for name in self.overrides if name not in datasets]:
            near = difflib.get_close_matches(unknown, names, n=1, cutoff=0.4)
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            hint = f"the nearest is {near[0]}" if near else f"they have {', '.join(names[:_NAMED])}{more}"
            lines.append(f"[sampling.{unknown}]: found a data set that the prompt files do not have; {hint}")
        if lines:
            raise ConfigError("\n".join(lines))

    def drawn_for(self, dataset: str, row: str | None = None) -> "SamplingSection":
        """Return how an answer is drawn: `[sampling]`, with `[sampling.DATASET]` and the row's own over it.

        Args:
            dataset: the data set's name.
            row: `Prompt.sampling_json`; its `max_tokens` is bounded by that of the data set, which money is bounded by.
        """
        override = self.overrides.get(dataset)
        changes = override.model_dump(exclude_none=True) if override else {}
        common = self.model_copy(update={**changes, "overrides": {}})
        if row is None:
            return common
        own = json.loads(row)
        return common.model_copy(update={**own, "max_tokens": min(own.get("max_tokens", 2**31), common.max_tokens)})
