"""Answer from recordings: no model, no torch, the same API."""

import asyncio
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import zstandard

from eagletui.embedded.asks import Ask
from eagletui.embedded.backend import Answer


class Recording(msgspec.Struct, frozen=True):
    """One recorded answer."""

    id: str
    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]


def load_recordings(path: Path) -> tuple[Recording, ...]:
    """Read a file of recordings (zstd JSON lines)."""
    text = zstandard.ZstdDecompressor().decompress(path.read_bytes())
    return tuple(msgspec.json.decode(line, type=Recording) for line in text.splitlines())


@dataclass(slots=True)
class ReplayBackend:
    """Gives any prompt a recorded answer, chosen by a hash of the conversation and the attempt.

    The attempt is the request's `seed` where one is given, so that a repeated request gets the same answer; else how
    often this server saw the conversation.
    """

    recordings: tuple[Recording, ...]
    latency_s: float = 0.05
    """Wait before the first token."""
    tokens_per_s: float | None = None
    """Pace of the tokens after it; None sends them at once."""
    name: str = "replay"
    _seen: dict[bytes, int] = field(default_factory=dict)

    async def answer(self, ask: Ask, prompt_tokens: int) -> Answer:
        """Return the recording for this request, cut at its token limit."""
        recording = self.recordings[self._pick(ask)]
        await asyncio.sleep(self.latency_s)
        ids = recording.output_ids[: ask.token_limit]
        return Answer(
            prompt_tokens=prompt_tokens,
            output_ids=ids,
            logprobs=recording.logprobs[: len(ids)],
            finish_reason=recording.finish_reason if len(ids) == len(recording.output_ids) else "length",
            token_interval_s=0.0 if self.tokens_per_s is None else 1 / self.tokens_per_s,
        )

    async def close(self) -> None:
        """Hold nothing, release nothing."""

    def _pick(self, ask: Ask) -> int:
        turns = msgspec.json.encode([(message.role, message.text) for message in ask.messages])
        key = hashlib.sha256(turns).digest()
        attempt = ask.seed
        if attempt is None:
            attempt = self._seen.get(key, 0)
            self._seen[key] = attempt + 1
        digest = hashlib.sha256(key + str(attempt).encode()).digest()
        return int.from_bytes(digest[:8], "big") % len(self.recordings)
