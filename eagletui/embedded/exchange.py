"""One chat request being answered: generate, bill, deliver. Faults are other orders of the same steps."""

import asyncio
from dataclasses import dataclass, field

from aiohttp import web

from eagletui.core.money import pico_to_usd_string
from eagletui.embedded import wire
from eagletui.embedded.asks import Ask
from eagletui.embedded.backend import Answer, Backend, BackendError
from eagletui.embedded.books import BookRow, Books
from eagletui.embedded.market import Endpoint
from eagletui.embedded.wire import Shaper


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
    shaper: Shaper
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
        interval_s = self._interval_s(answer)
        for chunk, tokens in self.shaper.chunks(answer):
            if interval_s > 0:
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
