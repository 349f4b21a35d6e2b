"""Take another API key while the engine lives, from where the config says the key is."""

import asyncio
from dataclasses import dataclass
from functools import partial

from eagletui.config import RunConfig
from eagletui.core.errors import ConfigError, ProviderError
from eagletui.engine.fleet import Fleet
from eagletui.engine.ledger_thread import LedgerThread
from eagletui.engine.settle import Settler
from eagletui.ledger.writer import LedgerWriter
from eagletui.providers.base import Provider


@dataclass(slots=True)
class Rekey:
    """Knows the key in use and hands on another one."""

    config: RunConfig
    provider: Provider
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
            # What the run has spent so far was spent with the old key.
            spent_pico = (await self.ledger.do(lambda writer: writer.books(), urgent=True)).spent_pico
            usage_pico = status.usage_pico_usd - spent_pico
            await self.ledger.do(partial(_rebase, usage_pico), urgent=True)
            self.settler.key_usage_at_start_pico = usage_pico
        self.fleet.use_key(key)
        return "Another key is used from here on."


def _rebase(usage_pico: int, writer: LedgerWriter) -> None:
    with writer.transaction(durable=True):
        writer.set_key_usage_at_start(usage_pico, anew=True)
        writer.event("info", "engine", "key", "Another API key is used from here on.")
