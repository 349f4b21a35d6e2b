"""SGLang as the engine: `return_hidden_states` with auxiliary layers, in the body of the answer.

Read from SGLang 0.5.23 and tested against a server of its wire format; never run against SGLang itself, which needs a
GPU. Auxiliary streams come back *in place of* the last one, and the last one without them comes after the final norm.
So slot 3 of a record, the last layer's output before the norm, can be had only as a fourth auxiliary stream, and only
from models whose class keeps the stream behind its last layer (gpt-oss, Gemma 3, MiniMax M3, Nemotron H and others do;
Llama, Qwen, DeepSeek and Kimi do not: SGLang stops at the first forward). Everything else is refused with that reason.

The ids trap: see `core.sglang_layers`. The ids asked for here begin with 1 where records have the usual layers, and
then mean the same everywhere.

States travel as JSON numbers, about 10 bytes each and 32 in memory: `--engine vllm` is the fast way.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import torch

from eagletui.core.features import AUX_LAYERS, SLOTS, FeatureLayers
from eagletui.core.sglang_layers import misread_by_sglang
from eagletui.core.text import clean_line
from eagletui.extract.backends.http import ServerClient
from eagletui.extract.backends.refusals import Unusable
from eagletui.extract.backends.states_server import Answer, Declined, Unanswered, require_record
from eagletui.models.facts import ModelFacts

CONVENTION: Final = "eagle3"
"""What `--speculative-algorithm` has to name: model classes take layer ids by it, and DSPARK's streams are others."""

KEPT_FREE: Final = 6
"""A prompt of the context's length less this is too long: one token, and five of `max_req_input_len`, are kept."""

IN_FLIGHT: Final = 2
"""Requests at once: an answer takes some 30 bytes of memory a number."""

_NO_LAST: Final = (
    "Slot 3 of a record, the last layer's output before the final norm, cannot be had from it: {why} SGLang returns "
    "auxiliary streams in place of the last one, which it has after the norm only. Models whose class keeps the stream "
    "behind its last layer give it as a fourth auxiliary stream; start the server with\n{command}\n"
    "For Llama, Qwen, DeepSeek and Kimi take --engine vllm or --engine local."
)


def layer_ids(layers: FeatureLayers) -> tuple[int, ...]:
    """Return the ids that make SGLang give a record's slots: layers whose output is kept."""
    return (*layers.outputs, layers.num_layers - 1)


def start_command(facts: ModelFacts, layers: FeatureLayers) -> str:
    """Return the command that starts a server for these records.

    Raises:
        Unusable: SGLang would take their layer ids for other layers.
    """
    _require_same_layers(facts.architecture, layers)
    parts = ["python", "-m", "sglang.launch_server", "--model-path", str(facts.path), "--dtype", facts.dtype]
    parts += ["--enable-return-aux-hidden-states", "--speculative-algorithm", "EAGLE3"]
    parts += ["--return-aux-hidden-state-layer-ids", *map(str, layer_ids(layers))]
    parts += ["--disable-radix-cache", "--chunked-prefill-size", "-1"]
    return shlex.join(parts)


def _require_same_layers(kind: str, layers: FeatureLayers) -> None:
    misread = misread_by_sglang(kind, layer_ids(layers))
    if misread is not None:
        raise Unusable(
            f"{misread} Layer L cannot be named among them. Leave extract.layers at 2, L//2, L-3, or take "
            "--engine vllm or --engine local."
        )


class SglangServer:
    """A running SGLang server that returns auxiliary hidden states."""

    def __init__(self, url: str, facts: ModelFacts, layers: FeatureLayers) -> None:
        """Take its address.

        Args:
            url: up to the port.
            facts: of the model.
            layers: the streams wanted.
        """
        self.versions: Mapping[str, str] = {}
        self._client = ServerClient(url)
        self.url = self._client.url
        self._facts = facts
        self._layers = layers
        self._command = start_command(facts, layers)
        self._too_long: int | None = None
        """Tokens from which on the server refuses a prompt; None: it does not tell."""

    def check(self) -> str:
        """Ask for the server's arguments: it tells all of them."""
        info = self._client.get("/server_info", _ServerInfo)
        model = self._client.get("/model_info", _ModelInfo)
        if info is None or model is None:
            raise Unusable(f"{self.url} has no /server_info: it is no SGLang. Start one with\n{self._command}")
        self.versions = {"sglang": info.version}
        context = info.context_length or self._facts.context
        # Of a small key-value cache the server takes less than of its context.
        self._too_long = info.max_req_input_len or (None if context is None else context - KEPT_FREE)
        self._require_streams(info)
        if info.aux_hidden_state_capture != CONVENTION:
            told = clean_line(info.aux_hidden_state_capture or "nothing", 40)
            raise Unusable(
                f"The server captures by the convention of {told}, a record needs {CONVENTION}'s, in which its layers "
                f"are numbered. Start it with\n{self._command}"
            )
        ids = tuple(info.return_aux_hidden_state_layer_ids or ())
        if ids != layer_ids(self._layers):
            raise Unusable(
                f"The server returns layers {list(ids)}, a record needs {list(layer_ids(self._layers))} (outputs, "
                f"counted from 0). Start it with\n{self._command}"
            )
        _require_same_layers(clean_line(model.model_type or "", 40), self._layers)
        for is_on, what in (
            (not info.disable_radix_cache, "its radix cache"),
            (info.chunked_prefill_size is None or info.chunked_prefill_size > 0, "chunked prefill"),
        ):
            if is_on:
                raise Unusable(f"The server at {self.url} runs with {what}. Start it with\n{self._command}")
        return (
            f"sglang {info.version} running {clean_line(model.model_path, 80)}, radix cache off, chunked prefill off, "
            "layers as asked"
        )

    def ask(self, token_ids: Sequence[int]) -> Answer:
        """Generate one token and take the prompt's states out of the answer."""
        if self._too_long is not None and len(token_ids) >= self._too_long:
            raise Declined(f"{len(token_ids)} tokens do not fit: the server takes {self._too_long - 1}.")
        body = {
            "input_ids": list(token_ids),
            "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
            "return_hidden_states": True,
            "return_logprob": True,
        }
        meta = self._client.post("/generate", body, _Generated).meta_info
        if meta.prompt_tokens != len(token_ids):
            raise Unanswered(f"The server counts {meta.prompt_tokens} tokens of {len(token_ids)}.")
        if meta.cached_tokens or not meta.hidden_states:
            what = f"{meta.cached_tokens} tokens came from a cache" if meta.cached_tokens else "there are no states"
            raise Unusable(f"Of {len(token_ids)} tokens {what}. Start the server with\n{self._command}")
        streams = self._streams(meta.hidden_states[0], len(token_ids))
        logprob, token_id = meta.output_token_logprobs[0][:2] if meta.output_token_logprobs else (None, None)
        if not isinstance(logprob, float) or not isinstance(token_id, int):
            raise Unusable("The server's answer has no next token with its log-probability.")
        return Answer(streams, token_id, logprob)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _require_streams(self, info: "_ServerInfo") -> None:
        """Refuse a server that leaves a slot out, and say which one and why."""
        if not info.enable_return_aux_hidden_states:
            why = "it is started without auxiliary streams, so slots 0 to 2 are missing too."
            raise Unusable(f"The server at {self.url} is no use: " + self._no_last(why))
        ids = info.return_aux_hidden_state_layer_ids
        if ids is None or len(ids) == AUX_LAYERS:
            raise Unusable(
                f"The server at {self.url} returns slots 0 to 2. "
                + self._no_last("it captures three auxiliary streams.")
            )

    def _no_last(self, why: str) -> str:
        return _NO_LAST.format(why=why, command=self._command)

    def _streams(self, rows: list[list[float]], tokens: int) -> torch.Tensor:
        """Make a record of the numbers, [T, 4 H] in the order of the layers."""
        width = self._facts.hidden_size
        try:
            numbers = torch.tensor(rows, dtype=torch.float32)
        except (ValueError, TypeError) as error:
            raise Unanswered(f"The server's states cannot be read: {clean_line(str(error), 160)}.") from error
        if numbers.dim() != 2 or numbers.shape[1] % width:
            raise Unusable(
                f"The server returns {list(numbers.shape)} numbers; {self._facts.path} has width {width}: it runs "
                "another model."
            )
        if numbers.shape[1] != SLOTS * width:
            raise Unusable(
                f"The server returns {numbers.shape[1] // width} streams a token. " + self._no_last("one is missing.")
            )
        streams = numbers.reshape(len(numbers), SLOTS, width)
        stored = streams.to(getattr(torch, self._facts.dtype))
        if not torch.equal(stored.float(), streams) and bool(torch.isfinite(streams).all()):
            raise Unusable(f"The server computes in another type than {self._facts.dtype}: give --dtype with its own.")
        return require_record(stored, self._facts, tokens, self._command)


class _ServerInfo(msgspec.Struct):
    version: str
    enable_return_aux_hidden_states: bool = False
    aux_hidden_state_capture: str | None = None
    return_aux_hidden_state_layer_ids: list[int] | None = None
    disable_radix_cache: bool = False
    chunked_prefill_size: int | None = None
    context_length: int | None = None
    max_req_input_len: int | None = None


class _ModelInfo(msgspec.Struct):
    model_path: str
    model_type: str | None = None


class _Meta(msgspec.Struct):
    prompt_tokens: int
    cached_tokens: int = 0
    hidden_states: list[list[list[float]]] | None = None
    output_token_logprobs: list[list[Any]] | None = None


class _Generated(msgspec.Struct):
    meta_info: _Meta
