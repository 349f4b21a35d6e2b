"""The sections of a config, with the default, the range and the meaning of every key."""

import re
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field, model_validator

from eagletui.config.values import FilePath, FilePaths, ModelName, Money, Part, Place, Section
from eagletui.core.notices import NoticeKind

RUN_NAME: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
"""What may name a run: it becomes a folder."""

ProviderKind = Literal["openrouter", "vllm", "sglang", "llama.cpp", "embedded"]


class RunSection(Section):
    """`[run]`"""

    name: str = Field(pattern=RUN_NAME.pattern)
    """Name of the run folder."""
    seed: int = 7
    """Root of every random choice of the run."""
    part: Part | None = None
    """`I/N`: this run asks the prompts of part I of N, with that part's share of stop-at and cap."""
    mirror: Place | None = None
    """A folder or URL (`s3://BUCKET/PREFIX`) under which a copy of the run is kept, at most a minute old."""


class PromptsSection(Section):
    """`[prompts]`"""

    path: FilePaths
    """Prompt files, in the order they are ingested: JSON lines, Parquet, or the folder of a Hugging Face data set."""
    turns: Literal["last", "all"] = "last"
    """Answer the last turn, or every assistant turn of a conversation."""
    answers: int = Field(default=1, ge=1, le=1000)
    """Answers per prompt."""
    limit: int | None = Field(default=None, ge=1)
    """At most this many samples."""
    pick: Literal["first", "spread"] = "first"
    """Which prompts `limit` takes: the first ones, or some from everywhere in the files, as probes do."""
    canary_every: int = Field(default=0, ge=0)
    """Ask one of the prompts of `[check.canary]` among every so many others; 0: only where the files hold them."""


class ModelSection(Section):
    """`[model]`"""

    id: ModelName
    """The model's name at the provider. A free model (`:free`) is one of its own."""
    tokenizer: FilePath
    """Folder with `tokenizer.json` or `tiktoken.model`."""
    format: str = Field(min_length=1)
    """Output format, as `eagletui formats` lists them."""
    chat_template: FilePath | None = None
    """Overrides the template of the tokenizer folder."""
    template_kwargs: dict[str, Any] = Field(default={})
    """Extra variables of the chat template."""
    profile: str = "auto"
    """What the server strips: `auto`, `raw`, `SERVER` or `SERVER@VERSION`."""
    weights: FilePath | None = None
    """The target model for extraction: a folder or a `.gguf` file."""


class ProviderSection(Section):
    """`[provider]`"""

    kind: ProviderKind
    base_url: str | None = Field(default=None, pattern=r"^https?://")
    """Overrides the default of the kind, up to and including the version part (`.../v1`)."""
    api_key_env: str | None = None
    """Environment variable that holds the key."""
    api_key_file: FilePath | None = None
    """File that holds the key; only its owner may read it."""
    api_key_command: str | None = None
    """Shell command that prints the key."""
    only: list[str] = Field(default=[])
    """Endpoints that may answer; empty: all."""
    ignore: list[str] = Field(default=[])
    """Endpoints that may not answer."""
    quantizations: list[str] = Field(default=[])
    """Accepted quantizations; empty: all."""
    prompt_usd_per_million: Money | None = None
    """Price for a provider that states none."""
    completion_usd_per_million: Money | None = None
    """Price for a provider that states none."""
    backend: Literal["model", "replay"] = "model"
    """Embedded provider only: a real model or recorded replies."""
    faults: FilePath | None = None
    """Embedded provider only: a TOML script of faults."""
    distillable_text: bool = True
    """Use only endpoints whose terms allow training on the output."""

    @model_validator(mode="after")
    def _check(self) -> "ProviderSection":
        keys = [name for name in ("api_key_env", "api_key_file", "api_key_command") if getattr(self, name)]
        if len(keys) > 1:
            raise ValueError(f"one source for the key, not {' and '.join(keys)}")
        if (self.prompt_usd_per_million is None) != (self.completion_usd_per_million is None):
            raise ValueError("both prompt_usd_per_million and completion_usd_per_million, or neither")
        if self.kind != "embedded" and self.faults is not None:
            raise ValueError('faults only with kind = "embedded"')
        return self


class SpendSection(Section):
    """`[spend]`"""

    stop_at_usd: Money
    """Stop admitting once this much is settled."""
    cap_usd: Money
    """Never committed beyond, worst case included."""
    unlimited_key: bool = False
    """Allow a key that has no limit of its own to stand behind the cap."""

    @model_validator(mode="after")
    def _check(self) -> "SpendSection":
        if self.stop_at_usd > self.cap_usd:
            raise ValueError(f"stop_at_usd at most cap_usd, not {self.stop_at_usd} above {self.cap_usd}")
        return self


BILL_WAITS_S: Final = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, *[60.0] * 14]
"""15 minutes: a router may bill an interrupted request so late (OpenRouter's `/generation`, seen by users)."""


class PaceSection(Section):
    """`[pace]`"""

    max_in_flight: int = Field(default=64, ge=1, le=20_000)
    stream: Literal["auto", "always", "never"] = "auto"
    spread: Literal["best", "even"] = "best"
    """How samples spread over endpoints: most to the best evidence at the best price, or to all alike, as probes do."""
    receivers: Literal["auto"] | Annotated[int, Field(ge=0, le=32)] = "auto"
    """Processes that take HTTP, parsing and ids off the engine; `auto`: one by one while it nears a core of its own."""
    max_attempts: int = Field(default=5, ge=1)
    """Requests per sample before it counts as failed, and again after each `ctl retry`; throttled ones rarely count."""
    connect_timeout_s: float = Field(default=10.0, gt=0)
    first_event_timeout_s: float = Field(default=300.0, gt=0)
    event_timeout_s: float = Field(default=120.0, gt=0)
    total_timeout_s: float = Field(default=1800.0, gt=0)
    generation_backoff_s: list[Annotated[float, Field(gt=0)]] = Field(default=BILL_WAITS_S, min_length=1)
    """Waits between questions to `/generation` for the cost of a broken reply. Their sum is also the time after the end
    of a request without a known cost before its hold may be released on the word of `/key`."""


class CheckSection(Section):
    """`[check]`"""

    max_drift_percent: float = Field(default=0.5, ge=0)
    max_unproven_percent: float = Field(default=100.0, ge=0, le=100)
    content: bool = True
    """Compare what answers say with what is usual."""
    canary: dict[str, str] = Field(default={})
    """Prompts with a known answer: the last turn of the user, and a regular expression that the answer must match."""
    on_breach: Literal["pause", "quarantine", "warn"] = "pause"
    """What a finding does that breaks a check."""

    @model_validator(mode="after")
    def _check(self) -> "CheckSection":
        for asked, pattern in self.canary.items():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"a regular expression for {asked!r}, not {pattern!r} ({error})") from None
        return self


class NotifySection(Section):
    """`[notify]`"""

    command: str = ""
    """Shell command; it gets the notice as `EAGLETUI_*` variables and as JSON on stdin."""
    webhook: str = Field(default="", pattern=r"^(https?://.*)?$")
    """Address that gets the notice as JSON."""
    webhook_env: str | None = None
    """Environment variable that holds the address, for one that is secret."""
    on: list[NoticeKind] = Field(default=list(get_args(NoticeKind)))
    """What is told."""

    @model_validator(mode="after")
    def _check(self) -> "NotifySection":
        if self.webhook and self.webhook_env is not None:
            raise ValueError("webhook or webhook_env, not both")
        return self

    @property
    def is_on(self) -> bool:
        """There is something to tell and a way to tell it."""
        return bool(self.on and (self.command or self.webhook or self.webhook_env))


class ExtractSection(Section):
    """`[extract]`"""

    engine: Literal["local", "vllm", "sglang", "ray"] = "local"
    server: str | None = Field(default=None, pattern=r"^https?://")
    """Address of the vLLM or SGLang server that computes, up to the port."""
    trust_server: bool = False
    """Take a vLLM server that does not tell from which layers its streams are (it does with VLLM_SERVER_DEV_MODE=1)."""
    when: Literal["live", "after", "off"] = "off"
    dtype: Literal["float32", "bfloat16", "float16", "fp8", "auto"] = "auto"
    """Of computation and states; `fp8` stores eight bits and a scale per token, computed in the model's own type."""
    shard_mib: int = Field(default=256, ge=1)
    device: str = "auto"
    storage: Annotated[str, Field(pattern=r"^[a-z0-9]+://")] | None = None
    """URL below which the shards go (`s3://BUCKET/PREFIX`, `gs://...`, `file:///...`); None: into the run folder."""
    layers: list[int] | None = None
    """Decoder layers whose input is recorded; None: 2, L//2, L-3."""
    stream_ahead: int | None = Field(default=None, ge=1)
    """Sealed shards that may wait for a trainer, which acknowledges and so deletes them; None: features are kept."""


class ExportSection(Section):
    """`[export]`"""

    to: list[Literal["jsonl", "specforge", "speculators", "torchspec", "parquet"]] = Field(default=["jsonl"])
    """What `eagletui export RUN` writes where no form is given."""
