"""Fault scripts: which request goes wrong, and how.

A script is TOML, one `[[fault]]` a fault; the first that fires decides what happens to a request:

    [[fault]]
    kind = "http_429"                     # a name in fault_kinds.KINDS
    match = { nth = 3 }                   # all of these must hold; {} is every request
    times = 1                             # fire at most so often; left out: always
    params = { retry_after_s = 2 }        # keyword arguments of the kind, all with defaults

    [[price]]
    after = 20                            # once so many chat requests have been routed ...
    factor = "1.5"                        # ... the prices are multiplied
    endpoint = "embedded/stream"          # tag or base slug; left out: all

`match` first filters chat requests: `endpoint` (tag or base slug of the one that answers), `prompt_contains` (in any
turn), `stream` (true or false). Those that pass are counted from 1, also when another fault takes them, and `nth` (that
one), `every` (each multiple) and `probability` with `seed` (the same requests in every run) choose among them.
A fault is what the client sees: the router never hides it by asking another endpoint.
"""

import difflib
import hashlib
import inspect
import re
import tomllib
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from aiohttp import web

from eagletui.core.errors import InputError, Problem
from eagletui.embedded.asks import Ask
from eagletui.embedded.exchange import Exchange
from eagletui.embedded.fault_kinds import KINDS
from eagletui.embedded.market import ENDPOINTS, Endpoint, matches

_FAULT_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*fault[ \t]*\]\]", re.MULTILINE)
_Positive = Annotated[int, msgspec.Meta(ge=1)]


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which chat requests a fault takes."""

    endpoint: str | None = None
    """Tag or base slug of the endpoint that answers."""
    prompt_contains: str | None = None
    """Text that any turn holds."""
    stream: bool | None = None
    nth: _Positive | None = None
    """The one with this number, from 1."""
    every: _Positive | None = None
    """Those whose number is a multiple."""
    probability: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    seed: int = 0
    """Chooses which ones `probability` takes."""

    def concerns(self, ask: Ask, endpoint: Endpoint) -> bool:
        """Tell whether a request is counted for this fault."""
        if self.endpoint is not None and not matches(self.endpoint, endpoint.tag):
            return False
        if self.stream is not None and self.stream != ask.stream:
            return False
        wanted = self.prompt_contains
        return wanted is None or any(wanted in message.text for message in ask.messages)

    def chooses(self, number: int) -> bool:
        """Tell whether the request with this number is taken."""
        if self.nth is not None and number != self.nth:
            return False
        if self.every is not None and number % self.every:
            return False
        return self.probability is None or _roll(self.seed, number) < self.probability


class _FaultRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    match: Match = Match()
    times: _Positive | None = None
    params: dict[str, Any] = {}


class PriceChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Other prices from some request on; several multiply."""

    after: Annotated[int, msgspec.Meta(ge=0)]
    """Requests routed before it takes effect."""
    factor: Decimal
    endpoint: str | None = None
    """Tag or base slug; None: all."""

    def applied(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint at its new price, in whole picodollars."""
        if self.endpoint is not None and not matches(self.endpoint, endpoint.tag):
            return endpoint
        prompt, completion = endpoint.prompt_pico * self.factor, endpoint.completion_pico * self.factor
        return replace(endpoint, prompt_pico=int(prompt), completion_pico=int(completion))


class _ScriptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fault: tuple[dict[str, Any], ...] = ()
    price: tuple[PriceChange, ...] = ()


@dataclass(slots=True)
class Fault:
    """One fault of a script and how often it was met."""

    kind: str
    match: Match
    times: int | None
    params: dict[str, Any]
    counted: int = 0
    """Requests that passed the filters."""
    fired: int = 0

    async def serve(self, exchange: Exchange) -> web.StreamResponse:
        """Answer a request with this fault."""
        exchange.fault = self.kind
        return await KINDS[self.kind](exchange, **self.params)


@dataclass(slots=True)
class FaultScript:
    """The faults of a server, in the order of the file, and its changes of price."""

    faults: list[Fault] = field(default_factory=list)
    prices: tuple[PriceChange, ...] = ()
    routed: int = 0
    """Chat requests that an endpoint has taken."""

    def offer(self) -> tuple[Endpoint, ...]:
        """Return the endpoints at their present prices."""
        offered: tuple[Endpoint, ...] = ENDPOINTS
        for change in self.prices:
            if self.routed >= change.after:
                offered = tuple(map(change.applied, offered))
        return offered

    def pick(self, ask: Ask, endpoint: Endpoint) -> Fault | None:
        """Count a request for every fault it concerns and return the first that fires."""
        self.routed += 1
        chosen: Fault | None = None
        for fault in self.faults:
            if not fault.match.concerns(ask, endpoint):
                continue
            fault.counted += 1
            spent = fault.times is not None and fault.fired >= fault.times
            if chosen is None and not spent and fault.match.chooses(fault.counted):
                fault.fired += 1
                chosen = fault
        return chosen


def load_faults(path: Path) -> FaultScript:
    """Read a fault script.

    Raises:
        InputError: the file cannot be read, or a fault names an unknown key, kind or parameter.
    """
    try:
        text = path.read_text(encoding="utf-8")
        script = msgspec.convert(tomllib.loads(text), _ScriptFile)
    except OSError as error:
        raise InputError(f"{path}: the fault script cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InputError(f"{path}: not a fault script: {error}. Expected [[fault]] and [[price]] tables.") from error
    lines = [text.count("\n", 0, found.start()) + 1 for found in _FAULT_HEADER.finditer(text)]
    faults = []
    for position, row in enumerate(script.fault):
        line = lines[position] if position < len(lines) else None
        faults.append(_read_fault(row, str(path), line))
    if any(not change.factor.is_finite() or change.factor < 0 for change in script.price):
        raise InputError(f"{path}: field price.factor: expected a number of zero or more, such as 1.5")
    return FaultScript(faults, script.price)


def _read_fault(raw: dict[str, Any], file: str, line: int | None) -> Fault:
    def wrong(where: str, found: str, expected: str) -> InputError:
        return InputError(str(Problem(file, line, where, found, expected)))

    try:
        row = msgspec.convert(raw, _FaultRow)
    except msgspec.ValidationError as error:
        raise wrong(
            "fault", str(error), "kind, match, times, params; `eagletui serve --kinds` lists the kinds"
        ) from error
    if row.kind not in KINDS:
        raise wrong("kind", repr(row.kind), _nearest(row.kind, list(KINDS)))
    known = {name: hint for name, hint in get_type_hints(KINDS[row.kind]).items() if name not in ("exchange", "return")}
    params = {}
    for name, value in row.params.items():
        if name not in known:
            raise wrong(f"params.{name}", "an unknown parameter", _nearest(name, list(known)))
        try:
            params[name] = msgspec.convert(value, known[name])
        except msgspec.ValidationError as error:
            default = inspect.signature(KINDS[row.kind]).parameters[name].default
            raise wrong(f"params.{name}", repr(value), f"a value such as {default!r}") from error
    return Fault(row.kind, row.match, row.times, params)


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return repr(close[0]) if close else "one of " + ", ".join(sorted(known))


def _roll(seed: int, number: int) -> float:
    digest = hashlib.sha256(f"{seed}:{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
