"""Take another API key, while the engine lives or between two engines: the cross-check begins anew with it."""

import asyncio
import hashlib
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from eagletui.config import RunConfig
from eagletui.core.errors import ConfigError, ProviderError
from eagletui.engine.fleet import Fleet
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.settle import Settler
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import KeyStatus, Provider
from eagletui.runs import RunFolder


@dataclass(slots=True)
class Rekey:
    """Knows the key in use and hands on another one."""

    config: RunConfig
    provider: Provider
    folder: RunFolder
    fleet: Fleet
    settler: Settler
    ledger: LedgerThread

    async def read_again(self) -> str:
        """Read the key again and use it where it is another one.

        Returns:
            One sentence about what came of it.

        Raises:
            ConfigError: the key cannot be read, or does not work; the old one stays in use.
        """
        section = self.config.provider
        if section.api_key_file is None and section.api_key_command is None:
            return (
                "The key is the same: a running engine does not see another environment. To give another key, end the "
                "engine with SIGTERM and `eagletui run RUN`, or let api_key_file or api_key_command give it."
            )
        key = (await asyncio.to_thread(self.config.secret)).reveal()
        old = self.fleet.key
        if key == old:
            return "The key is the same as before."
        self.provider.use_key(key)
        try:
            status = await self.provider.key()
        except ProviderError as error:
            self.provider.use_key(old)
            raise ConfigError(f"The other key does not work: {error}") from error
        if status is not None:
            self.settler.key_usage_at_start_pico = await self.ledger.do(partial(rebase, status), urgent=True)
        remember_key(self.folder, key)
        self.fleet.use_key(key)
        return "Another key is used from here on."


def is_other_key(folder: RunFolder, key: str) -> bool:
    """Tell whether a run's last engine used another key."""
    try:
        return _path(folder).read_text(encoding="ascii") != _mark(folder, key)
    except (OSError, UnicodeDecodeError):
        return False


def remember_key(folder: RunFolder, key: str) -> None:
    """Keep a mark from which the key cannot be told, but whether it is the same one can."""
    descriptor = os.open(_path(folder), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(_mark(folder, key))


def _path(folder: RunFolder) -> Path:
    return folder.path / "key.mark"


def _mark(folder: RunFolder, key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=8, person=b"eagletui", salt=_salt(folder)).hexdigest()


def _salt(folder: RunFolder) -> bytes:
    return hashlib.blake2b(folder.name.encode(), digest_size=16).digest()


def rebase(status: KeyStatus, writer: LedgerWriter) -> int:
    """Begin the cross-check anew with another key: what the run has spent so far was spent with the old one.

    Returns:
        What the key would have shown before the run, had the run used it from its start.
    """
    with writer.transaction(durable=True):
        usage_pico = status.usage_pico_usd - writer.books().spent_pico
        writer.set_key_usage_at_start(usage_pico, anew=True)
        writer.event("info", "engine", "key", "Another API key is used from here on.")
    return usage_pico
