"""One chat request being answered: generate, bill, deliver. Faults are other orders of the same steps."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from eagletui.core.money import pico_to_usd_string
from eagletui.embedded import wire
from eagletui.embedded.asks import Ask
from eagletui.embedded.backend import Answer, Backend, BackendError
from eagletui.embedded.books import BookRow, Books
from eagletui.embedded.market import Endpoint
from eagletui.embedded.pacer import Pacer
from eagletui.embedded.wire import Shaper

_LOOK_S: Final = 0.05
"""A stalled answer looks this often whether its client is still there."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """A stream's events in the order in which they are sent."""

    deltas: tuple[bytes, ...]
    finish: bytes
    usage: bytes
    done: bytes = wire.SSE_DONE

    def events(self) -> list[bytes]:
        """Return what is sent, piece by piece."""
        return [piece for piece in (*self.deltas, self.finish, self.usage, self.done) if piece]

    def joined(self) -> bytes:
        """Return the whole stream."""
        return b"".join(self.events())


@dataclass(slots=True)
class Accounts:
    """What the accounting answers, where that differs from the books."""

    silent_for: dict[str, int] = field(default_factory=dict)
    """By generation id: so many questions are still answered 404."""
    extra_pico: int = 0
    """What `/key` shows above the books."""
    extra_looks: int = 0
    """How many looks still show it."""

    def knows(self, generation_id: str) -> bool:
        """Count a question about a generation, and tell whether it is answered."""
        left = self.silent_for.get(generation_id, 0)
        if left:
            self.silent_for[generation_id] = left - 1
        return left == 0

    def shown(self, spent_pico: int) -> int:
        """Count a look at the key, and return what it shows."""
        if not self.extra_looks:
            return spent_pico
        self.extra_looks -= 1
        return spent_pico + self.extra_pico


@dataclass(slots=True)
class Exchange:
    """The steps of one answer. A client that goes away is noticed, and its answer is still finished and billed."""

    http: web.Request
    ask: Ask
    endpoint: Endpoint
    prompt_tokens: int
    """As counted from the rendered conversation."""
    backend: Backend
    books: Books
    accounts: Accounts
    shaper: Shaper
    pacer: Pacer
    comment_every_s: float
    """Pause between keep-alive comments of a stream that has no token yet."""
    client_gone: bool = False
    outcome: str = "not billed"
    """For the request log."""
    fault: str | None = None
    """The kind that changed this exchange, for the request log."""
    headers: dict[str, str] = field(default_factory=dict)
    """Sent beside the usual ones."""
    extra_latency_s: float = 0.0
    """Waited before the first token."""
    token_interval_s: float | None = None
    """Pace of the answer; None takes the backend's."""
    price_factor: int = 1
    """Multiplies what the endpoint asks."""

    async def serve(self) -> web.StreamResponse:
        """Answer without any fault."""
        if self.ask.stream:
            response = await self.open_stream()
            try:
                answer = await self.generate(response)
            except BackendError as error:
                await self.send(response, self.shaper.error_chunk(502, str(error), "provider_unavailable"))
                return await self.end(response)
            row = await self.bill(answer)
            await self.send_deltas(response, answer)
            await self.send(response, self.shaper.finish_chunk(answer))
            await self.send(response, self.shaper.usage_chunk(row) + wire.SSE_DONE)
            return await self.end(response, whole=True)
        answer = await self.generate()
        row = await self.bill(answer)
        await asyncio.sleep(self._interval_s(answer) * len(answer.output_ids))
        return await self.send_json(200, self.shaper.body(answer, row), whole=True)

    async def generate(self, response: web.StreamResponse | None = None) -> Answer:
        """Let the backend answer; a stream given here gets keep-alive comments meanwhile."""
        work = asyncio.ensure_future(self._answer())
        while response is not None:
            done, _ = await asyncio.wait({work}, timeout=self.comment_every_s)
            if done:
                break
            await self.send(response, wire.SSE_COMMENT)
        return await work

    async def answer_and_bill(self) -> tuple[Answer, BookRow]:
        """Generate and enter in the books, before any byte of it is sent."""
        answer = await self.generate()
        return answer, await self.bill(answer)

    def pieces(self, answer: Answer, row: BookRow) -> Pieces:
        """Return the events of a whole stream, for a fault to change."""
        deltas = tuple(chunk for chunk, _ in self.shaper.chunks(answer))
        return Pieces(deltas, self.shaper.finish_chunk(answer), self.shaper.usage_chunk(row))

    async def bill(self, answer: Answer, finish_reason: str | None = None, *, free: bool = False) -> BookRow:
        """Enter an answer in the books; returns when that is on disk."""
        row = self._row(answer, finish_reason or answer.finish_reason, free=free)
        await self.books.bill(row)
        tokens, dollars = row.completion_tokens, pico_to_usd_string(row.cost_pico)
        self.outcome = f"{row.prompt_tokens}+{tokens} tokens ${dollars} {row.finish_reason}"
        return row

    def bill_later(self, answer: Answer, after_s: float) -> None:
        """Enter an answer in the books some time after the client has heard of it."""
        self.books.bill_later(self._row(answer, answer.finish_reason, free=False), after_s)
        self.outcome = f"billed in {after_s:g} s"

    def _row(self, answer: Answer, finish_reason: str, *, free: bool) -> BookRow:
        tokens = len(answer.output_ids)
        cost_pico = self.endpoint.cost_pico(answer.prompt_tokens, tokens) * self.price_factor
        return BookRow(
            id=self.shaper.generation_id,
            provider=self.endpoint.tag,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=tokens,
            cost_pico=0 if free else cost_pico,
            delivered=False,
            finish_reason=finish_reason,
            output_ids=answer.output_ids,
            created_at=float(self.shaper.created),
            streamed=self.ask.stream,
        )

    async def open_stream(self) -> web.StreamResponse:
        """Send the headers of a stream and a first comment."""
        stream = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        response = web.StreamResponse(headers={**stream, **self._id_header(), **self.headers})
        await self._prepare(response)
        await self.send(response, wire.SSE_COMMENT)
        return response

    async def open_body(self, length_bytes: int) -> web.StreamResponse:
        """Send the headers of a JSON body that follows in parts."""
        response = web.StreamResponse(headers=self._id_header())
        response.content_type = "application/json"
        response.content_length = length_bytes
        await self._prepare(response)
        return response

    async def send_deltas(self, response: web.StreamResponse, answer: Answer) -> None:
        """Send the text of an answer at its pace."""
        interval_s, chunks = self._interval_s(answer), self.shaper.chunks(answer)
        if interval_s > 0 and self.http.transport is not None and not self.client_gone:
            try:
                await self.pacer.send(response, self.http.transport, chunks, interval_s)
            except ConnectionResetError:
                self.client_gone = True
        for chunk, tokens in chunks:
            await asyncio.sleep(interval_s * tokens)
            await self.send(response, chunk)

    async def send(self, response: web.StreamResponse, data: bytes) -> None:
        """Send a part of a stream, or nothing once the client is gone."""
        if self.client_gone:
            return
        try:
            await response.write(data)
        except ConnectionResetError:
            self.client_gone = True

    async def send_json(self, status: int, body: object, *, whole: bool = False) -> web.StreamResponse:
        """Send a JSON document; `whole` as in `end`."""
        response = web.Response(
            status=status,
            body=wire.encode(body),
            content_type="application/json",
            headers={**self._id_header(), **self.headers},
        )
        return await self.end(response, whole=whole)

    async def send_bytes(self, body: bytes, *, whole: bool = False) -> web.StreamResponse:
        """Send a body as it is, as JSON where `headers` names no other type; `whole` as in `end`."""
        headers = {"Content-Type": "application/json", **self._id_header(), **self.headers}
        return await self.end(web.Response(body=body, headers=headers), whole=whole)

    async def send_events(self, pieces: Pieces, *, whole: bool = True) -> web.StreamResponse:
        """Send a stream without waiting between its events; `whole` as in `end`."""
        response = await self.open_stream()
        for event in pieces.events():
            await self.send(response, event)
        return await self.end(response, whole=whole)

    async def wait_for_client(self, seconds: float, response: web.StreamResponse | None = None) -> None:
        """Wait until the client goes away, at most so long; a stream gets keep-alive comments meanwhile."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not self._disconnected() and loop.time() < deadline:
            if response is not None:
                await self.send(response, wire.SSE_COMMENT)
            await asyncio.sleep(min(self.comment_every_s, _LOOK_S, max(0.0, deadline - loop.time())))

    async def end(self, response: web.StreamResponse, *, whole: bool = False) -> web.StreamResponse:
        """Send the last bytes.

        Args:
            response: what was begun, or a response not sent yet.
            whole: the client now has the whole billed answer, which the books note unless the client went away.
        """
        if not self._disconnected():
            try:
                await response.prepare(self.http)
                await response.write_eof()
            except ConnectionResetError:
                self.client_gone = True
        if whole and not self._disconnected():
            self.books.mark_delivered(self.shaper.generation_id)
        return response

    def cut_off(self) -> None:
        """Break the connection, as a crashed proxy does."""
        self.client_gone = True
        if self.http.transport is not None:
            self.http.transport.abort()

    def _id_header(self) -> dict[str, str]:
        return {"X-Generation-Id": self.shaper.generation_id} if self.shaper.generation_id else {}

    async def _answer(self) -> Answer:
        answer = await self.backend.answer(self.ask, self.prompt_tokens)
        await asyncio.sleep(self.extra_latency_s)
        return answer

    async def _prepare(self, response: web.StreamResponse) -> None:
        try:
            await response.prepare(self.http)
        except ConnectionResetError:
            self.client_gone = True

    def _interval_s(self, answer: Answer) -> float:
        return answer.token_interval_s if self.token_interval_s is None else self.token_interval_s

    def _disconnected(self) -> bool:
        if self.http.transport is None or self.http.transport.is_closing():
            self.client_gone = True
        return self.client_gone
