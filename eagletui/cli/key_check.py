"""Look at the provider's key before money is committed: a limit behind the cap, and enough of it."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from eagletui.cli.wrong_address import address_of, wrong_config
from eagletui.config.run_config import RunConfig
from eagletui.core.errors import ConfigError
from eagletui.core.key_preflight import KeyFacts, Preflight, RunNeeds, inspect_key
from eagletui.core.money import usd_to_pico
from eagletui.core.reasoning_rule import inspect_reasoning
from eagletui.providers.base import ProviderFailure
from eagletui.runs.folder import RunFolder, runs_root

if TYPE_CHECKING:
    from eagletui.providers.base import Provider


COUNTED: Final = 2_000
"""So many samples are counted in about a second. The worst case of more is hardly ever below the cap, which then tells
what the run may commit."""


def require_key(config: RunConfig, spent_pico: int = 0, *, is_new: bool = False) -> list[str]:
    """Refuse to run with a key that nothing limits or that cannot pay, and return what else to know.

    A provider that does not answer now is no reason to refuse: the engine asks again, with patience.

    Args:
        config: of the run; only OpenRouter's own API has keys with limits.
        spent_pico: by the run already.
        is_new: nothing was answered yet, so that the config tells what the requests can cost.

    Raises:
        ConfigError: the key is not fit, with the command or page that mends it.
    """
    if config.provider.kind != "openrouter":
        return []
    try:
        found = asyncio.run(_ask(config, spent_pico, is_new=is_new))
    except ProviderFailure as failure:
        if (fault := wrong_config(failure, config)) is not None:
            raise fault from failure
        return [f"{address_of(config)} does not answer yet, so the key was not looked at: {failure}"]
    if found.refusals:
        raise ConfigError("\n".join(found.refusals))
    return found.notes


async def _look_at_key(provider: "Provider", needs: RunNeeds) -> Preflight:
    """Ask a provider about the key in use and judge it; nothing is found where there are no accounts.

    Raises:
        ProviderFailure: it does not answer.
    """
    status = await provider.key()
    if status is None:
        return Preflight([], [])
    facts = KeyFacts(
        limit_pico=status.limit_pico_usd,
        remaining_pico=status.remaining_pico_usd,
        limit_reset=status.limit_reset,
        expires_at=status.expires_at,
        is_free_tier=status.is_free_tier,
        balance_pico=await provider.balance(),
    )
    return inspect_key(facts, needs, datetime.now(UTC))


async def _look_at_reasoning(provider: "Provider", config: RunConfig) -> Preflight:
    """Ask what the model's reasoning allows where the config asks for something else than its default.

    Raises:
        ProviderFailure: the provider does not answer.
    """
    sampling = config.sampling
    asked = {"[sampling]": sampling.reasoning} | {
        f"[sampling.{name}]": own.reasoning for name, own in sampling.overrides.items() if own.reasoning is not None
    }
    asked = {section: value for section, value in asked.items() if value != "default"}
    rule = await provider.reasoning() if asked else None
    return inspect_reasoning(config.model.id, rule, asked)


async def look_at_key_and_reasoning(provider: "Provider", config: RunConfig, needs: RunNeeds) -> Preflight:
    """Ask a provider about both, and say what stands in the way.

    Raises:
        ProviderFailure: it does not answer.
    """
    key = await _look_at_key(provider, needs)
    reasoning = await _look_at_reasoning(provider, config)
    return Preflight(key.refusals + reasoning.refusals, key.notes + reasoning.notes)


async def _ask(config: RunConfig, spent_pico: int, *, is_new: bool) -> Preflight:
    from eagletui.engine.connect import connect
    from eagletui.plan import Bounds, bounds_of

    provider = connect(config, RunFolder(runs_root() / config.run.name))
    try:
        bounds = bounds_of(config, await provider.endpoints(), COUNTED) if is_new else Bounds(None, None)
        needs = RunNeeds(
            config.run.name,
            usd_to_pico(config.spend.cap_usd),
            spent_pico,
            worst_case_pico=bounds.worst_case_pico,
            largest_hold_pico=bounds.largest_hold_pico,
            unlimited_key=config.spend.unlimited_key,
            base_url=config.provider.base_url,
        )
        return await look_at_key_and_reasoning(provider, config, needs)
    finally:
        await provider.aclose()
