"""What the engine and its receivers say to each other over a socket pair that nobody else can reach.

A message is its length, four bytes, and a pickle: both ends are this program, started by itself.
"""

import asyncio
import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from eagletui.engine.taking import Order, Taken

_LENGTH: Final = struct.Struct("<I")
LIMIT_BYTES: Final = 2**22
"""Of the read buffer; a longer message arrives in parts."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message to a receiver, and a later one where the key changes.

    The key must not be asked for twice, nor lie in the receiver's arguments.
    """

    key: str

    def __repr__(self) -> str:
        return "Hello()"


@dataclass(frozen=True, slots=True)
class Headers:
    """Headers arrived; the body waits for `Go`."""

    attempt_id: int
    generation_id: str | None
    http_status: int


@dataclass(frozen=True, slots=True)
class Go:
    """The generation id is on disk."""

    attempt_id: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Break a request off; `Ended` follows all the same."""

    attempt_id: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A request has ended, and its reply is in the spool."""

    attempt_id: int
    taken: Taken


@dataclass(frozen=True, slots=True)
class Filed:
    """The ledger has these."""

    attempt_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life."""

    cpu_s: float
    """Used by the process so far."""
    lag_s: float
    """How late its loop was, at most, since the last beat."""
    in_flight: int
    unjudged: int


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing more comes: end."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The receiver can take orders."""


Message = Hello | Order | Headers | Go | Abort | Ended | Filed | Beat | Close | Ready


def send(writer: asyncio.StreamWriter, message: Message) -> None:
    """Write a message; one to a process that is gone is lost without a word, because the reader notices."""
    if not writer.is_closing():
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        writer.write(_LENGTH.pack(len(data)) + data)


async def receive(reader: asyncio.StreamReader) -> Any:
    """Read a message, or None once the other end is gone."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return pickle.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
