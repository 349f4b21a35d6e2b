"""The OpenRouter-shaped API in front of a backend."""

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from eagletui.core.vocabulary import Vocabulary
from eagletui.embedded import wire
from eagletui.embedded.asks import Ask, AskError, read_ask
from eagletui.embedded.backend import Backend, BackendError, PromptCounter
from eagletui.embedded.books import Books
from eagletui.embedded.exchange import Accounts, Exchange
from eagletui.embedded.faults import FaultScript
from eagletui.embedded.market import MODEL_SLUG, NoEndpointError, Window, choose, eligible
from eagletui.embedded.pacer import Pacer
from eagletui.embedded.wire import Shaper, Shapes

log = logging.getLogger("eagletui.embedded")

_BODY_LIMIT_BYTES = 32 * 2**20


@dataclass(slots=True)
class Front:
    """The API. One instance serves one port; money and truth lie in its books."""

    backend: Backend
    books: Books
    vocabulary: Vocabulary
    counter: PromptCounter
    faults: FaultScript
    accounts: Accounts = field(default_factory=Accounts)
    key_limit_pico: int | None = None
    """What the key may spend; None: no limit."""
    bought_pico: int | None = None
    """Credits of the account; None: enough, and `/credits` is for other keys."""
    window: Window = field(default_factory=Window)
    """How long conversations and answers may be."""
    pacer: Pacer = field(default_factory=Pacer)
    comment_every_s: float = 1.0
    clock: Callable[[], float] = time.time
    dice: random.Random = field(default_factory=lambda: random.Random(7))
    """Spreads requests that pin no endpoint."""
    draining: bool = False
    shapes: Shapes = field(default_factory=Shapes)
    in_flight: int = 0
    """Chat requests being answered."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while nothing is in flight."""

    def application(self) -> web.Application:
        """Return the routes."""
        app = web.Application(client_max_size=_BODY_LIMIT_BYTES)
        app.router.add_post("/api/v1/chat/completions", self._chat)
        app.router.add_get("/api/v1/models", self._models)
        app.router.add_get("/api/v1/models/{author}/{slug}/endpoints", self._endpoints)
        app.router.add_get("/api/v1/generation", self._generation)
        app.router.add_get("/api/v1/key", self._key)
        app.router.add_get("/api/v1/credits", self._credits)
        app.router.add_get("/embedded/books", self._books)
        self.idle.set()
        return app

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        started = time.monotonic()
        generation_id = f"gen-{int(self.clock())}-{uuid.uuid4().hex[:20]}"
        self.in_flight += 1
        self.idle.clear()
        exchange: Exchange | None = None
        status: int | str = "failed"
        try:
            ask = read_ask(await self._admitted_body(http), self.window)
            exchange = self._exchange(http, ask, generation_id)
            fault = self.faults.pick(ask, exchange.endpoint)
            response = await (exchange.serve() if fault is None else fault.serve(exchange))
            status = response.status
            return response
        except AskError as error:
            status = error.status
            return _refused(error, generation_id)
        except BackendError as error:
            status = 502
            return _broken(error, generation_id)
        finally:
            self.in_flight -= 1
            if self.in_flight == 0:
                self.idle.set()
            _log_chat(exchange, status, time.monotonic() - started, generation_id)

    async def _admitted_body(self, http: web.Request) -> bytes:
        _require_key(http)
        if self.draining:
            raise AskError(
                "The provider is shutting down.",
                status=503,
                error_type="provider_overloaded",
                availability="overloaded",
            )
        if self.key_limit_pico is not None and self.books.spent_pico >= self.key_limit_pico:
            raise AskError("Key limit exceeded (total limit).", status=403, error_type="payment_required")
        return await http.read()

    def _exchange(self, http: web.Request, ask: Ask, generation_id: str) -> Exchange:
        try:
            candidates = eligible(
                ask.provider, stream=ask.stream, parameters=ask.parameters, endpoints=self.faults.offer()
            )
        except NoEndpointError as error:
            raise AskError(
                str(error), status=404, error_type="constraint_filtered", availability="constraint_filtered"
            ) from error
        prompt_tokens = self.counter.count(ask.messages)
        if prompt_tokens + ask.token_limit > self.window.context_tokens:
            raise AskError(
                f"This endpoint's maximum context length is {self.window.context_tokens} tokens; the request asks for "
                f"{prompt_tokens} of input and {ask.token_limit} of output.",
                error_type="context_length_exceeded",
            )
        endpoint = choose(candidates, ask.provider, self.dice)
        self._require_credits(endpoint.cost_pico(prompt_tokens, ask.token_limit), ask.token_limit)
        shaper = Shaper(
            generation_id=generation_id,
            created=int(self.clock()),
            endpoint=endpoint,
            vocabulary=self.vocabulary,
            logprobs=ask.logprobs and endpoint.logprobs,
            shapes=self.shapes,
        )
        return Exchange(
            http=http,
            ask=ask,
            endpoint=endpoint,
            prompt_tokens=prompt_tokens,
            backend=self.backend,
            books=self.books,
            accounts=self.accounts,
            shaper=shaper,
            pacer=self.pacer,
            comment_every_s=self.comment_every_s,
        )

    def _require_credits(self, bound_pico: int, token_limit: int) -> None:
        """Refuse what the account could not pay in the worst case, as the router does."""
        if self.bought_pico is None or bound_pico <= self.bought_pico - self.books.spent_pico:
            return
        raise AskError(
            f"This request requires more credits, or fewer max_tokens. You requested up to {token_limit} tokens.",
            status=402,
            error_type="payment_required",
        )

    async def _models(self, http: web.Request) -> web.Response:
        return _json(wire.models(self.window))

    async def _endpoints(self, http: web.Request) -> web.Response:
        slug = f"{http.match_info['author']}/{http.match_info['slug']}"
        if slug != MODEL_SLUG:
            return _not_found(f"Model {slug} does not exist", availability="model_not_found")
        return _json(wire.endpoints(self.faults.offer(), self.window))

    async def _generation(self, http: web.Request) -> web.Response:
        try:
            _require_key(http)
        except AskError as error:
            return _refused(error, None)
        generation_id = http.query.get("id", "")
        row = self.books.rows.get(generation_id) if self.accounts.knows(generation_id) else None
        return _not_found(f"Generation {generation_id} not found") if row is None else _json(wire.generation(row))

    async def _key(self, http: web.Request) -> web.Response:
        try:
            _require_key(http)
        except AskError as error:
            return _refused(error, None)
        return _json(wire.key(self.accounts.shown(self.books.spent_pico), self.key_limit_pico))

    async def _credits(self, http: web.Request) -> web.Response:
        try:
            _require_key(http)
            if self.bought_pico is None:
                raise AskError("Only management keys can perform this operation", status=403, error_type="forbidden")
        except AskError as error:
            return _refused(error, None)
        return _json(wire.credits_left(self.bought_pico, self.books.spent_pico))

    async def _books(self, http: web.Request) -> web.Response:
        return _json(wire.books(self.books.spent_pico, list(self.books.rows.values())))


def _log_chat(exchange: Exchange | None, status: int | str, seconds: float, generation_id: str) -> None:
    if exchange is None:
        log.info("POST chat/completions %s refused %.2f s %s", status, seconds, generation_id)
        return
    shape = "stream" if exchange.ask.stream else "body"
    remarks = f" fault {exchange.fault}" if exchange.fault else ""
    remarks += " client gone" if exchange.client_gone else ""
    line = f"{status} {exchange.endpoint.tag} {shape} {exchange.outcome}{remarks} {seconds:.2f} s {generation_id}"
    log.info("POST chat/completions %s", line)


def _require_key(http: web.Request) -> None:
    scheme, _, key = http.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise AskError("No auth credentials found", status=401, error_type="authentication")


def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=wire.encode(body), content_type="application/json", headers=headers)


def _not_found(message: str, availability: str | None = None) -> web.Response:
    error = wire.error_object(404, message, error_type=availability or "not_found", availability=availability)
    return _json({"error": error}, 404)


def _refused(error: AskError, generation_id: str | None) -> web.Response:
    body = wire.error_object(error.status, str(error), error_type=error.error_type, availability=error.availability)
    headers = {} if generation_id is None else {"X-Generation-Id": generation_id}
    return _json({"error": body}, error.status, headers)


def _broken(error: BackendError, generation_id: str) -> web.Response:
    body = wire.error_object(502, str(error), error_type="provider_unavailable")
    return _json({"error": body}, 502, {"X-Generation-Id": generation_id})
