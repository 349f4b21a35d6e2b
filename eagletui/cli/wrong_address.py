"""Tell a provider that answers badly from a config that names another model or address than there is."""

from typing import Final

from eagletui.config.run_config import RunConfig
from eagletui.core.errors import ConfigError
from eagletui.core.text import clean_line
from eagletui.providers.base import ProviderFailure

NOT_FOUND: Final = 404
WEB_PAGE: Final = 200
"""The status of a web page where JSON was expected."""


def address_of(config: RunConfig) -> str:
    """Return the address that requests go to, and the key of the config that says so."""
    from eagletui.providers.openai_compatible import BASE_URLS
    from eagletui.providers.openrouter import BASE_URL

    kind = config.provider.kind
    default = BASE_URL if kind == "openrouter" or kind == "embedded" else BASE_URLS[kind]
    return f"{clean_line(config.provider.base_url or default, 200)} ([provider] base_url)"


def wrong_config(failure: ProviderFailure, config: RunConfig) -> ConfigError | None:
    """Return what is wrong with the config where that explains a failure for good: no such model, or no API there."""
    if failure.http_status == NOT_FOUND:
        return ConfigError(
            f'[model] id: found "{clean_line(config.model.id, 100)}", expected a model of {address_of(config)}, which '
            f"answered {failure.detail}"
        )
    if failure.kind == "not_json" and failure.http_status == WEB_PAGE:
        return ConfigError(
            f"{address_of(config)}: found no API there, expected one up to its version. {failure.detail}"
        )
    return None


def unreached(failure: ProviderFailure, config: RunConfig) -> ConfigError | None:
    """Return the same where nothing answers at the address at all: right for a look, too early for a run."""
    if failure.kind != "connect":
        return None
    return ConfigError(f"{address_of(config)}: found nobody there, expected a provider. {failure.detail}")
