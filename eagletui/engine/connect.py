"""Make the provider client that a config asks for."""

import json
from decimal import Decimal
from functools import partial
from typing import Final

from eagletui.config.run_config import RunConfig
from eagletui.core.errors import RunError
from eagletui.core.money import Price
from eagletui.providers.base import Provider, Timeouts
from eagletui.providers.offer import Routing
from eagletui.providers.openai_compatible import OpenAiCompatible
from eagletui.providers.openrouter import BASE_URL, OpenRouter
from eagletui.run_ids import router_fields, router_kwargs, template_kwargs
from eagletui.runs.folder import RunFolder
from eagletui.tokens.formats import load_format

EMBEDDED_KEY: Final = "embedded"
"""The embedded provider takes any key and no secret."""


def connect(config: RunConfig, folder: RunFolder, key: str | None = None) -> Provider:
    """Return a client; nothing is sent yet.

    Args:
        config: of the run.
        folder: where the embedded provider of the run says where it listens.
        key: the API key; None: read it from where the config says.

    Raises:
        ConfigError: the key cannot be read.
        RunError: the embedded provider of the run is not there.
    """
    section, pace = config.provider, config.pace
    timeouts = Timeouts(
        connect_s=pace.connect_timeout_s,
        first_event_s=pace.first_event_timeout_s,
        event_s=pace.event_timeout_s,
        total_s=pace.total_timeout_s,
    )
    key = config.secret().reveal() if key is None else key
    fmt = load_format(config.model.format)
    if section.kind in ("vllm", "sglang", "llama.cpp"):
        return OpenAiCompatible(
            section.kind,
            section.base_url,
            model_id=config.model.id,
            key=key,
            timeouts=timeouts,
            typed_price=_typed_price(config),
            kwargs_for=partial(template_kwargs, config, fmt),
        )
    longest = config.sampling.longest
    routing = Routing(
        only=tuple(section.only),
        ignore=tuple(section.ignore),
        quantizations=tuple(section.quantizations),
        max_tokens=longest,
        parameters=_parameters(config),
        distillable_text=section.distillable_text,
        typed_price=_typed_price(config),
        template_kwargs=router_kwargs(config, fmt),
    )
    base_url = section.base_url or BASE_URL
    if section.kind == "embedded":
        base_url = section.base_url or f"{_embedded_url(folder)}/api/v1"
        key = key or EMBEDDED_KEY
    return OpenRouter(
        base_url,
        config.model.id,
        routing,
        key=key,
        timeouts=timeouts,
        fields_for=partial(router_fields, config, fmt),
    )


def _parameters(config: RunConfig) -> frozenset[str]:
    """Name the optional parameters that some request of the run sets; an endpoint without one of them refuses it."""
    sections = [config.sampling.drawn_for(name) for name in ("", *config.sampling.overrides)]
    named = {"temperature", "top_p"}
    named |= {"top_k" for section in sections if section.top_k is not None}
    named |= {"seed" for section in sections if section.seed}
    named |= {"reasoning" for section in sections if section.reasoning != "default"}
    return frozenset(named)


def _typed_price(config: RunConfig) -> Price | None:
    prompt, completion = config.provider.prompt_usd_per_million, config.provider.completion_usd_per_million
    if prompt is None or completion is None:
        return None
    return Price(prompt.scaleb(-6), completion.scaleb(-6), Decimal(0))


def _embedded_url(folder: RunFolder) -> str:
    path = folder.provider_dir / "address.json"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["base_url"]).rstrip("/").removesuffix("/api/v1")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} does not say where the embedded provider listens. Start the run with `eagletui run` or "
            "`eagletui demo`, which start it, or give base_url in [provider]."
        ) from error
