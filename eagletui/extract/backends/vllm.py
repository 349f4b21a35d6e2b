"""vLLM as the engine: its `extract_hidden_states` method and its connector that writes states into files.

Read from vLLM 0.33 and hs-connectors 0.9 and tested against a server of their wire format; never run against vLLM
itself, which needs a GPU. Kimi and other models with multi-head latent attention are accepted by vLLM's own checks,
but nobody here has seen it; pipeline parallelism works with few models and tensor parallelism with all.

A request is a completion of token ids with `max_tokens` 1. The answer names a safetensors file on a file system that
both see, with `hidden_states` [T, 4, H] and `token_ids` [T]. The server holds a lock on `FILE.lock` while it writes;
a write that fails is only logged there, so a lock that is gone does not mean that the file is whole.
"""

import json
import re
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from eagletui.core.context import batched_tokens, served_length
from eagletui.core.features import FeatureLayers
from eagletui.core.text import clean_line
from eagletui.extract.backends.http import ServerClient
from eagletui.extract.backends.refusals import Unusable
from eagletui.extract.backends.states_server import Answer, Declined, Unanswered, require_record
from eagletui.files.locked import held
from eagletui.models.facts import ModelFacts

DEVELOPMENT: Final = "VLLM_SERVER_DEV_MODE"
"""Variable of the server's environment: where it is 1, `/server_info` tells the layers and chunked prefill. Nothing
else does, and of the auxiliary streams no answer shows from which layers they are."""

FILE_TIMEOUT_S: Final = 120.0
"""From the answer until its file must be whole."""

_UNTOLD: Final = "NOT CHECKED (trusted as told by a person)"

_FILE_LOOK_S: Final = 0.05
_CLOCK_S: Final = 60.0
"""By so much the clock of a shared file system may differ."""

_CACHE_INFO: Final = re.compile(r'^vllm:cache_config_info\{[^}]*enable_prefix_caching="(\w+)"', re.MULTILINE)
_LAYER_IDS: Final = re.compile(r"eagle_aux_hidden_state_layer_ids\W+\[([\d,\s]*)\]")


def layer_ids(layers: FeatureLayers) -> tuple[int, ...]:
    """Return the ids that make vLLM give a record's slots: streams after so many layers."""
    return (*layers.entering, layers.num_layers)


def start_command(facts: ModelFacts, layers: FeatureLayers, longest: int | None = None) -> str:
    """Return the command that starts a server for these records.

    Args:
        facts: of the model.
        layers: the streams wanted.
        longest: tokens of the longest sample; None where none is known yet.
    """
    length = served_length(longest, facts.context)
    ids = list(layer_ids(layers))
    speculative = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": ids}},
    }
    transfer = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": "/dev/shm/states", "use_synchronization_lock": True},
    }
    parts = ["vllm", "serve", str(facts.path), "--dtype", facts.dtype, "--no-enable-prefix-caching"]
    parts += ["--no-enable-chunked-prefill", "--max-model-len", str(length)]
    parts += ["--max-num-batched-tokens", str(batched_tokens(length))]
    parts += ["--speculative-config", json.dumps(speculative), "--kv-transfer-config", json.dumps(transfer)]
    return f"{DEVELOPMENT}=1 {shlex.join(parts)}"


class VllmServer:
    """A running vLLM server that extracts hidden states."""

    def __init__(
        self,
        url: str,
        facts: ModelFacts,
        layers: FeatureLayers,
        *,
        longest: int | None = None,
        file_timeout_s: float = FILE_TIMEOUT_S,
        trust: bool = False,
    ) -> None:
        """Take its address.

        Args:
            url: up to the port.
            facts: of the model.
            layers: the streams wanted.
            longest: tokens of the longest sample, for the command that starts a right server.
            file_timeout_s: from an answer until its file must be whole.
            trust: take a server that does not tell its layers or chunked prefill; the manifest says so.
        """
        self._trust = trust
        self.versions: Mapping[str, str] = {}
        self._client = ServerClient(url)
        self.url = self._client.url
        self._facts = facts
        self._layers = layers
        self._command = start_command(facts, layers, longest)
        self._file_timeout_s = file_timeout_s
        self._model = ""
        self._longest: int | None = None
        self._folder: Path | None = None
        """Where the server writes, known from the first answer that held the ids that were asked for."""
        self._closed = threading.Event()

    def check(self) -> str:
        """Ask for the model, the version and, as far as the server tells, its flags."""
        models = self._client.get("/v1/models", _Models)
        if models is None or not models.data:
            raise Unusable(f"{self.url} has no /v1/models: it is no vLLM server. Start one with\n{self._command}")
        self._model, self._longest = models.data[0].id, models.data[0].max_model_len
        version = self._client.get("/version", _Version)
        self.versions = {"vllm": version.version if version is not None else "unknown"}
        info = self._client.get("/server_info?config_format=json", _ServerInfo)
        config = info.vllm_config if info is not None else _Config()
        metrics = _CACHE_INFO.search(self._client.get("/metrics", str) or "")
        caches = config.cache_config.enable_prefix_caching
        if caches is None and metrics is not None:
            caches = metrics.group(1) == "True"
        chunks = config.scheduler_config.enable_chunked_prefill
        for is_on, what in ((caches, "prefix caching"), (chunks, "chunked prefill")):
            if is_on:
                raise Unusable(f"The server at {self.url} runs with {what}. Start it with\n{self._command}")
        ids = _stated_layers(config.speculative_config)
        if ids is not None and ids != layer_ids(self._layers):
            raise Unusable(
                f"The server extracts layers {list(ids)}, a record needs {list(layer_ids(self._layers))}. "
                f"Start it with\n{self._command}"
            )
        untold = [
            what
            for what, told in (("layers", ids), ("prefix caching", caches), ("chunked prefill", chunks))
            if told is None
        ]
        if untold and not self._trust:
            raise Unusable(
                f"The server at {self.url} does not tell its {' and '.join(untold)}, and streams of other layers would "
                f"look like these. Start it with {DEVELOPMENT}=1 where nobody else reaches it, or look yourself and "
                f"add --trust-server:\n{self._command}"
            )
        return (
            f"vllm {self.versions['vllm']} running {clean_line(self._model, 80)}, prefix caching {_said(caches)}, "
            f"chunked prefill {_said(chunks)}, layers {'as asked' if ids is not None else _UNTOLD}"
        )

    def ask(self, token_ids: Sequence[int]) -> Answer:
        """Ask for a completion and take the file that its answer names."""
        if self._longest is not None and len(token_ids) >= self._longest:
            raise Declined(f"{len(token_ids)} tokens do not fit: the server takes {self._longest - 1}.")
        body = {
            "model": self._model,
            "prompt": list(token_ids),
            "max_tokens": 1,
            "temperature": 0.0,
            "repetition_penalty": 1.0,
            "logprobs": 1,
            "return_token_ids": True,
        }
        asked_at = time.time()
        completion = self._client.post("/v1/completions", body, _Completion)
        choice = completion.choices[0]
        if choice.prompt_token_ids != list(token_ids):
            raise Unusable(
                "The server answers without the ids it was asked for, or with others: it is no vLLM >= 0.18."
            )
        where = completion.kv_transfer_params
        if where is None or not where.hidden_states_path:
            raise Unusable(f"The server returns no hidden states. Start it with\n{self._command}")
        file = Path(where.hidden_states_path)
        if not file.is_absolute() or file.suffix != ".safetensors":
            raise Unusable(f"The server names {clean_line(str(file), 120)}, which is no safetensors file.")
        try:
            streams, ids = self._take(file)
            if ids.tolist() != list(token_ids):
                raise Unanswered(f"{file.name} holds other ids than were asked for.")
            self._folder = file.parent
            require_record(streams, self._facts, len(token_ids), self._command)
        finally:
            if file.parent == self._folder:  # elsewhere nothing shows that the file is an answer to us
                _discard(file, asked_at)
        logprob = next(iter(choice.logprobs.token_logprobs), None) if choice.logprobs is not None else None
        if not choice.token_ids or logprob is None:
            raise Unusable("The server's answer has no next token with its log-probability.")
        return Answer(streams, choice.token_ids[0], logprob)

    def close(self) -> None:
        """Close the connections and give up waiting for files."""
        self._closed.set()
        self._client.close()

    def _take(self, file: Path) -> tuple[torch.Tensor, torch.Tensor]:
        """Read a file once the server has let go of it."""
        if not file.parent.is_dir():
            raise Unusable(
                f"The server writes into {clean_line(str(file.parent), 120)}, which is no folder on this machine. "
                "Give it a shared_storage_path that both see under the same name."
            )
        deadline = time.monotonic() + self._file_timeout_s
        while True:
            is_written = held(file.with_name(file.name + ".lock"))  # None: it uses no lock
            try:
                if not is_written:
                    return _read(file)
                fault = "is still being written"
            except FileNotFoundError:
                fault = "is missing"
            except (OSError, SafetensorError) as error:
                fault = f"is not whole: {clean_line(str(error), 160)}"
            if is_written is False or time.monotonic() > deadline or self._closed.wait(_FILE_LOOK_S):
                raise Unanswered(f"{file} {fault}. The server's log may say why: a full disk, for one.")


def _discard(file: Path, asked_at: float) -> None:
    """Delete what the server wrote for one answer, taken or not: it often lies in memory. Nothing older is its."""
    for path in (file, file.with_name(file.name + ".lock")):
        with suppress(OSError):  # it may be missing, or another user's
            if path.stat().st_mtime >= asked_at - _CLOCK_S:
                path.unlink()


def _read(file: Path) -> tuple[torch.Tensor, torch.Tensor]:
    with safe_open(file, framework="pt") as opened:
        missing = {"hidden_states", "token_ids"} - set(opened.keys())
        if missing:
            raise SafetensorError(f"it has no {' and no '.join(sorted(missing))}")
        # Copies: the tensors are views of a file that is about to go.
        return opened.get_tensor("hidden_states").clone(), opened.get_tensor("token_ids").clone()


def _stated_layers(config: "_Speculative | None") -> tuple[int, ...] | None:
    """Read the layer ids that a server states; its config of the extractor comes as text or as an object."""
    stated = None if config is None or config.draft_model_config is None else config.draft_model_config.hf_config
    found = _LAYER_IDS.search(stated if isinstance(stated, str) else json.dumps(stated))
    return None if found is None else tuple(int(number) for number in found.group(1).split(",") if number.strip())


def _said(is_on: bool | None) -> str:
    return _UNTOLD if is_on is None else "off"


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _Version(msgspec.Struct):
    version: str


class _Cache(msgspec.Struct):
    enable_prefix_caching: bool | None = None


class _Scheduler(msgspec.Struct):
    enable_chunked_prefill: bool | None = None


class _Draft(msgspec.Struct):
    hf_config: Any = None


class _Speculative(msgspec.Struct):
    draft_model_config: _Draft | None = None


class _Config(msgspec.Struct):
    cache_config: _Cache = msgspec.field(default_factory=_Cache)
    scheduler_config: _Scheduler = msgspec.field(default_factory=_Scheduler)
    speculative_config: _Speculative | None = None


class _ServerInfo(msgspec.Struct):
    vllm_config: _Config


class _Transfer(msgspec.Struct):
    hidden_states_path: str | None = None


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float | None]


class _Choice(msgspec.Struct):
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    kv_transfer_params: _Transfer | None = None
