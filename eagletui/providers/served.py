"""Who answered, held against who was asked. A router names the provider for people, so that is what is compared."""

import re
from collections.abc import Collection, Mapping
from typing import Final

from eagletui.core.reply import Reply
from eagletui.core.text import clean_line
from eagletui.providers.base import Endpoint, Stranger

_DATE: Final = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|\d{4}|\d{6}|\d{8})$")


def stranger(
    reply: Reply, asked: Endpoint, model_id: str, tags_by_name: Mapping[str, Collection[str]]
) -> Stranger | None:
    """Tell who answered where it was not the one asked; what a reply does not say is taken to be right.

    Args:
        reply: as parsed.
        asked: the endpoint that the request was pinned to; one without a provider's name is on offer no longer, so that
            neither its names nor those it gives the model are known, and it is no stranger.
        model_id: the model that was asked for.
        tags_by_name: the tags on offer, by `plain_name` of their provider.
    """
    if not asked.provider_name:
        return None
    routed = reply.routed
    names = [name for name in (reply.endpoint, routed and routed.provider) if name]
    models = [name for name in (reply.model, routed and routed.model) if name]
    known = {plain_name(asked.provider_name), plain_name(asked.tag.split("/")[0])}
    other = next((name for name in names if plain_name(name) not in known), None)
    other_model = next((name for name in models if not _is_model(name, (model_id, *asked.model_names))), None)
    if other is None and other_model is None:
        return None
    provider_name = clean_line(other or asked.provider_name, 60)
    tags = tags_by_name.get(plain_name(other), ()) if other else (asked.tag,)
    label = next(iter(tags)) if len(tags) == 1 else provider_name
    if other_model is not None:
        label = f"{label} ({clean_line(other_model, 80)})"
    return Stranger(label, provider_name, other_model is not None)


def plain_name(name: str) -> str:
    """Return a provider's name without what its spellings differ in: `DeepInfra`, `deep-infra`."""
    return re.sub(r"[\W_]", "", name.casefold())


def _is_model(name: str, known: Collection[str]) -> bool:
    """Tell whether a name is one of those known, or one of them with a date."""
    words, date = _taken_apart(name)
    return any(words == its_words and its_date in (None, date) for its_words, its_date in map(_taken_apart, known))


def _taken_apart(model: str) -> tuple[list[str], str | None]:
    """Return a model's words, sorted, and its date.

    Routers are free with the order: `anthropic/claude-sonnet-4.5` is `anthropic/claude-4.5-sonnet-20250929`.
    """
    slug = model.casefold().split("/")[-1].split(":")[0]
    date = re.search(_DATE, slug)
    words = re.split(r"[\W_]+", slug[: date.start()] if date else slug)
    return sorted(filter(None, words)), re.sub(r"\D", "", date[0]) if date else None
