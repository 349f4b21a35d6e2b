"""Answer from a real llama.cpp HTTP server, in this process, over loopback.

Its stream loses the ids of tokens that are held back inside a character, so the answer is asked in one piece with
`verbose` and `return_tokens`, whose `__verbose.tokens` are all the sampled ids, the stop token included. Its logprob
entries skip held-back tokens: a merged entry has the last token's id and the whole group's bytes.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import msgspec

from eagletui.core.errors import ModelError
from eagletui.core.vocabulary import Vocabulary
from eagletui.embedded.asks import Ask
from eagletui.embedded.backend import UNKNOWN_LOGPROB, Answer, BackendError
from eagletui.embedded.data import weights_path
from eagletui.embedded.market import CONTEXT_TOKENS

_STOP_TOKEN = "<|im_end|>"
_ANSWER_TIMEOUT_S = 600.0
_QUIET = -1
"""llama.cpp's verbosity that keeps its log off stderr."""


class LogprobRow(msgspec.Struct, frozen=True):
    """One entry of llama.cpp's `logprobs.content`."""

    id: int
    bytes_: tuple[int, ...] = msgspec.field(name="bytes")
    logprob: float


class _Verbose(msgspec.Struct):
    tokens: tuple[int, ...]


class _Logprobs(msgspec.Struct):
    content: tuple[LogprobRow, ...]


class _Choice(msgspec.Struct):
    finish_reason: Literal["stop", "length"]
    logprobs: _Logprobs | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int


class _Completion(msgspec.Struct):
    choices: tuple[_Choice, ...]
    usage: _Usage
    verbose: _Verbose = msgspec.field(name="__verbose")


def spread_logprobs(ids: tuple[int, ...], rows: tuple[LogprobRow, ...], vocabulary: Vocabulary) -> tuple[float, ...]:
    """Give each id the logprob that llama.cpp stated for it, and -9999.0 where it stated none.

    Args:
        ids: the sampled ids.
        rows: the server's entries. A row belongs to the next run of ids that ends with the row's id and has its bytes.
        vocabulary: bytes of each id; special tokens have none in a row.
    """
    spread = [UNKNOWN_LOGPROB] * len(ids)
    start = 0
    for row in rows:
        wanted = bytes(row.bytes_)
        group = b""
        for position in range(start, len(ids)):
            if vocabulary.special_text(ids[position]) is None:
                group += vocabulary.bytes_of(ids[position])
            if group == wanted and ids[position] == row.id:
                spread[position] = row.logprob
                start = position + 1
                break
            if not wanted.startswith(group):
                return tuple(spread)
    return tuple(spread)


@dataclass(slots=True)
class ModelBackend:
    """A llama.cpp server and the client that asks it."""

    url: str
    vocabulary: Vocabulary
    _server: Any
    _session: aiohttp.ClientSession
    name: str = "model"

    async def answer(self, ask: Ask, prompt_tokens: int) -> Answer:
        """Generate one answer; absent sampling parameters are neutral, not llama.cpp's own defaults."""
        try:
            async with self._session.post(f"{self.url}/v1/chat/completions", json=self._body(ask)) as response:
                status, body = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise BackendError(f"The model server did not answer: {error}") from error
        if status != 200:
            raise BackendError(f"The model server answered {status}: {body[:200].decode('utf-8', 'replace')}")
        try:
            completion = msgspec.json.decode(body, type=_Completion)
        except msgspec.ValidationError as error:
            raise BackendError(f"The model server's answer cannot be read: {error}") from error
        choice = completion.choices[0]
        ids = completion.verbose.tokens
        rows = choice.logprobs.content if choice.logprobs is not None else ()
        return Answer(
            prompt_tokens=completion.usage.prompt_tokens,
            output_ids=ids,
            logprobs=spread_logprobs(ids, rows, self.vocabulary),
            finish_reason=choice.finish_reason,
        )

    async def close(self) -> None:
        """Close the connections; the server's threads end with the process."""
        await self._session.close()

    def _body(self, ask: Ask) -> Mapping[str, Any]:
        body: dict[str, Any] = {
            "messages": [{"role": message.role, "content": message.text} for message in ask.messages],
            "max_tokens": ask.token_limit,
            "temperature": 1.0 if ask.temperature is None else ask.temperature,
            "top_p": 1.0 if ask.top_p is None else ask.top_p,
            "top_k": 0 if ask.top_k is None else ask.top_k,
            "min_p": 0.0,
            # The API's order, in which the temperature comes first; llama.cpp's own has it last.
            "samplers": ["temperature", "top_k", "top_p"],
            "verbose": True,
            "return_tokens": True,
            # Of the special tokens only the stop token is ever sampled: text would not show the others.
            "logit_bias": [[id_, False] for text, id_ in self.vocabulary.specials.items() if text != _STOP_TOKEN],
        }
        if ask.seed is not None:
            body["seed"] = ask.seed % 2**32
        if ask.logprobs:
            body |= {"logprobs": True, "top_logprobs": 1}
        return body


async def start_model(vocabulary: Vocabulary, *, slots: int, threads: int) -> ModelBackend:
    """Load SmolLM2 into a llama.cpp server on a free loopback port.

    Args:
        vocabulary: the model's.
        slots: answers computed at a time; each has the whole context.
        threads: CPU threads.

    Raises:
        ModelError: xllamacpp or the weights are not installed, or the server does not start.
    """
    try:
        import xllamacpp
    except ImportError as error:
        raise ModelError("The model server is not installed. Install it with: pip install 'eagletui[demo]'") from error
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights_path())
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_parallel = slots
    parameters.n_ctx = slots * CONTEXT_TOKENS
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    parameters.warmup = False
    parameters.ui = False
    parameters.verbosity = _QUIET
    try:
        server = await asyncio.to_thread(xllamacpp.Server, parameters)
    except RuntimeError as error:
        raise ModelError(f"The model server did not start: {error}") from error
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=_ANSWER_TIMEOUT_S)
    )
    return ModelBackend(server.listening_address, vocabulary, server, session)
