"""Servers with the wire formats of vLLM 0.33 and SGLang 0.5.23, over a real tiny model, for extraction through them.

What they answer and how their files come about follows `ExampleHiddenStatesConnector` and vLLM's Completions protocol,
and SGLang's `/generate`, `/server_info`, `LogitsProcessor` and `set_eagle3_layers_to_capture`.
"""

import asyncio
import fcntl
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from aiohttp import web
from safetensors.torch import save_file

from eagletui.models.load import load_target

BLOCK: Final = 16
"""Tokens that a prefix cache keeps together."""

_START_TIMEOUT_S: Final = 30.0


class Forward(NamedTuple):
    """One forward of the model."""

    streams: list[torch.Tensor]
    """What enters layer 0, 1, ..., and last what leaves the last layer, each [T, H]."""
    normed: torch.Tensor
    """After the final norm, [T, H]."""
    next_id: int
    next_logprob: float


class ServedModel:
    """The model behind a server."""

    def __init__(self, folder: Path, dtype: str = "float32") -> None:
        """Load it."""
        self.target = load_target(folder, dtype="bfloat16" if dtype == "bfloat16" else "float32", device="cpu")
        self._turn = threading.Lock()

    def run(self, ids: Sequence[int]) -> Forward:
        """Compute everything a server may return."""
        kept: list[torch.Tensor] = []
        modules = [*self.target.layers, self.target.norm]

        def keep(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            kept.append((args[0] if args else kwargs["hidden_states"])[0].clone())

        with self._turn, torch.inference_mode():
            hooks = [module.register_forward_pre_hook(keep, with_kwargs=True) for module in modules]
            out = self.target.decoder(input_ids=torch.tensor([list(ids)]), use_cache=False).last_hidden_state
            for hook in hooks:
                hook.remove()
            logprobs = torch.log_softmax(self.target.head(out[0, -1]).float(), dim=-1)
        next_id = int(logprobs.argmax())
        return Forward(kept, out[0].clone(), next_id, float(logprobs[next_id]))


@lru_cache(maxsize=4)
def served_model(folder: Path, dtype: str = "float32") -> ServedModel:
    """Load a model that no test changes; the servers of one test after another answer with it."""
    return ServedModel(folder, dtype)


@dataclass(slots=True)
class VllmServing:
    """A server of vLLM's wire format and what it does wrong."""

    model: ServedModel
    folder: Path
    """Where states are written, its `shared_storage_path`."""
    layer_ids: tuple[int, ...] = (2, 4, 5, 8)
    last_is_normed: bool = False
    prefix_caching: bool = False
    chunked_prefill: bool = False
    tells: bool = True
    """It runs in development mode, where `/server_info` is open."""
    uses_lock: bool = True
    max_model_len: int = 4096
    faults: "deque[str]" = field(default_factory=deque)
    """One per completion, in the order they come: `missing`, `cut`, `nan`, `zeros`, `other ids`, `500`, or none."""
    away_answers: int = 0
    """So many of the next requests for its models are answered as by a proxy whose server is not there."""
    write_after: threading.Event | None = None
    """States are written once it is set."""
    certain_of: Callable[[int], bool] = lambda _tokens: False
    """Whether it calls the next token of a prompt of so many all but certain."""
    lengths: list[int] = field(default_factory=list)
    """Tokens of each request."""
    at_once: int = 0
    most_at_once: int = 0
    _seen: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def requests(self) -> int:
        """How many came."""
        return len(self.lengths)

    def app(self) -> web.Application:
        """Return its routes."""
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        if self.tells:
            app.router.add_get("/server_info", self._info)
        app.router.add_post("/v1/completions", self._complete)
        return app

    async def _models(self, _request: web.Request) -> web.Response:
        if self.away_answers:
            self.away_answers -= 1
            return web.Response(status=503, text="no upstream")
        card = {"id": "tiny", "object": "model", "root": str(self.folder), "max_model_len": self.max_model_len}
        return web.json_response({"object": "list", "data": [card]})

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": "0.33.0"})

    async def _metrics(self, _request: web.Request) -> web.Response:
        labels = f'block_size="16",cache_dtype="auto",enable_prefix_caching="{self.prefix_caching}",num_gpu_blocks="9"'
        return web.Response(text=f"# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{{labels}}} 1.0\n")

    async def _info(self, request: web.Request) -> web.Response:
        assert request.query["config_format"] == "json"
        shown = (
            f'ExtractHiddenStatesConfig {{\n  "eagle_aux_hidden_state_layer_ids": [\n    {self._shown_ids()}\n  ]\n}}'
        )
        config = {
            "cache_config": {"block_size": 16, "enable_prefix_caching": self.prefix_caching},
            "scheduler_config": {"enable_chunked_prefill": self.chunked_prefill},
            "speculative_config": {"method": "extract_hidden_states", "draft_model_config": {"hf_config": shown}},
        }
        return web.json_response({"vllm_config": config, "vllm_env": {}, "system_env": {}})

    def _shown_ids(self) -> str:
        return ",\n    ".join(map(str, self.layer_ids))

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        ids: list[int] = body["prompt"]
        assert (body["max_tokens"], body["return_token_ids"], body["model"]) == (1, True, "tiny")
        self.lengths.append(len(ids))
        fault = self.faults.popleft() if self.faults else ""
        if len(ids) + 1 > self.max_model_len or fault == "500":
            return web.json_response({"error": {"message": "the engine is busy dying"}}, status=500)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        file = self.folder / f"cmpl-{self.requests}-0.safetensors"
        lock = self._take_lock(file)
        forward = await asyncio.to_thread(self.model.run, ids)
        tensors = self._states(ids, forward, fault)
        threading.Thread(target=self._write, args=(tensors, file, lock, fault), daemon=True).start()
        self.at_once -= 1
        logprob = -0.001 if self.certain_of(len(ids)) else forward.next_logprob
        choice = {
            "index": 0,
            "text": "?",
            "finish_reason": "length",
            "logprobs": {"tokens": ["?"], "token_logprobs": [logprob], "top_logprobs": [{}]},
            "token_ids": [forward.next_id],
            "prompt_token_ids": ids,
        }
        answer = {"id": f"cmpl-{self.requests}", "object": "text_completion", "model": "tiny", "choices": [choice]}
        return web.json_response({**answer, "kv_transfer_params": {"hidden_states_path": str(file)}})

    def _take_lock(self, file: Path) -> int | None:
        if not self.uses_lock:
            return None
        descriptor = os.open(f"{file}.lock", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    def _states(self, ids: list[int], forward: Forward, fault: str) -> dict[str, torch.Tensor]:
        streams = [*forward.streams[:-1], forward.normed if self.last_is_normed else forward.streams[-1]]
        states = torch.stack([streams[index] for index in self.layer_ids], dim=1)
        if fault == "nan":
            states[1, 2, 3] = float("nan")
        if fault == "zeros":
            states[0] = 0
        cached = self._cached(ids)
        token_ids = [ids[0] + 1, *ids[1:]] if fault == "other ids" else ids
        return {"hidden_states": states[cached:].contiguous(), "token_ids": torch.tensor(token_ids)}

    def _cached(self, ids: list[int]) -> int:
        """Count the tokens that come from the cache: whole blocks, never the last token."""
        if not self.prefix_caching:
            return 0
        alike = [
            next((at for at, (a, b) in enumerate(zip(ids, old, strict=False)) if a != b), min(len(ids), len(old)))
            for old in self._seen
        ]
        self._seen.append(tuple(ids))
        return min(max(alike, default=0), len(ids) - 1) // BLOCK * BLOCK

    def _write(self, tensors: dict[str, torch.Tensor], file: Path, lock: int | None, fault: str) -> None:
        if self.write_after is not None:
            self.write_after.wait(_START_TIMEOUT_S)
        if fault != "missing":
            save_file(tensors, file)
        if fault == "cut":
            os.truncate(file, file.stat().st_size - 100)
        if lock is not None:
            os.close(lock)


@dataclass(slots=True)
class SglangServing:
    """A server of SGLang's wire format, as it was started."""

    model: ServedModel
    aux: bool = True
    """`--enable-return-aux-hidden-states`"""
    layer_ids: tuple[int, ...] | None = (1, 3, 4, 7)
    """`--return-aux-hidden-state-layer-ids`; None takes the model's own three."""
    model_type: str = "gpt_oss"
    convention: str = "eagle3"
    """Named by `--speculative-algorithm`."""
    radix_cache: bool = False
    chunked_prefill_size: int = -1
    context_length: int = 4096
    cached: int = 0
    """Tokens of every prompt that come from a cache, whatever the server says of itself."""

    def app(self) -> web.Application:
        """Return its routes."""
        app = web.Application()
        app.router.add_get("/server_info", self._info)
        app.router.add_get("/model_info", self._model)
        app.router.add_post("/generate", self._generate)
        return app

    async def _info(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "version": "0.5.23",
                "enable_return_aux_hidden_states": self.aux,
                "aux_hidden_state_capture": self.convention if self.aux else None,
                "return_aux_hidden_state_layer_ids": None if self.layer_ids is None else list(self.layer_ids),
                "disable_radix_cache": not self.radix_cache,
                "chunked_prefill_size": self.chunked_prefill_size,
                "context_length": None,
                "max_req_input_len": self.max_req_input_len,
            }
        )

    @property
    def max_req_input_len(self) -> int:
        """Tokens from which on the scheduler refuses a prompt (`validate_input_length`)."""
        return self.context_length - 1 - 5

    async def _model(self, _request: web.Request) -> web.Response:
        return web.json_response({"model_path": "/models/tiny", "model_type": self.model_type})

    def captured(self) -> list[int]:
        """Return the layers whose input is kept, as the model classes work them out from the given ids."""
        layers = self.model.target.num_layers
        if self.layer_ids is None:
            return [2, layers // 2, layers - 3]
        if self.model_type.startswith(("deepseek", "kimi")) and self.layer_ids[0] != 1:
            return list(self.layer_ids)
        return [layer + 1 for layer in self.layer_ids]

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        ids: list[int] = body["input_ids"]
        assert body["sampling_params"] == {"max_new_tokens": 1, "temperature": 0.0}
        if len(ids) >= self.max_req_input_len:
            return web.json_response({"error": {"message": f"Input length ({len(ids)} tokens) exceeds"}}, status=400)
        forward = await asyncio.to_thread(self.model.run, ids)
        kept = [forward.streams[index] for index in self.captured()] if self.aux else [forward.normed]
        rows = torch.cat(kept, dim=1)[self.cached :].float().tolist()
        meta = {
            "id": "1",
            "finish_reason": {"type": "length", "length": 1},
            "prompt_tokens": len(ids),
            "completion_tokens": 1,
            "cached_tokens": self.cached,
            "output_token_logprobs": [[forward.next_logprob, forward.next_id, None]],
            "hidden_states": [rows] if body["return_hidden_states"] is True else None,
        }
        return web.json_response({"text": "?", "output_ids": [forward.next_id], "meta_info": meta})


@contextmanager
def running(app: web.Application, port: int = 0) -> Iterator[str]:
    """Serve on loopback from a thread until the block ends, and yield the address; port 0 is any."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(app)
    addresses: list[str] = []
    started = threading.Event()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(runner.setup())
        loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", port).start())
        host, taken = runner.addresses[0][:2]
        addresses.append(f"http://{host}:{taken}")
        started.set()
        loop.run_forever()

    thread = threading.Thread(target=serve, name="model server", daemon=True)
    thread.start()
    assert started.wait(_START_TIMEOUT_S)
    try:
        yield addresses[0]
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(_START_TIMEOUT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_START_TIMEOUT_S)
        loop.close()
