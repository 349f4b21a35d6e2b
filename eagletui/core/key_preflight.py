"""What is to be known of the provider's key before a run spends with it. Pure; amounts in picodollars.

The key's own limit is the second wall behind the cap: it holds even where this program errs. A key without one is
therefore refused unless the person says otherwise.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from eagletui.core.money import PICO, format_usd, limit_text

OWN_HOST: Final = "openrouter.ai"
KEYS_PAGE: Final = "https://openrouter.ai/settings/keys"
CREDITS_PAGE: Final = "https://openrouter.ai/settings/credits"
CAPPED_KEY: Final = (
    'curl https://openrouter.ai/api/v1/keys -H "Authorization: Bearer $MANAGEMENT_KEY" -H \'Content-Type: '
    'application/json\' -d \'{{"name": "{name}", "limit": {limit}}}\''
)
"""https://openrouter.ai/docs/features/provisioning-api-keys: a key of its own for a run, with its own limit."""

FEE_PERCENT: Final = "5.5"
LEAST_FEE_USD: Final = "0.80"
CRYPTO_FEE_PERCENT: Final = "5"
"""Of a purchase of credits (https://openrouter.ai/docs/faq); no request's cost contains it."""
COMFORT_PICO: Final = 10 * PICO
"""Near the end of a balance the router checks more strictly, and refuses what would fit."""
_STEP: Final = PICO // 10_000
FAR_ABOVE: Final = 2
"""A limit of more than twice the cap does not stand behind it."""


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What the provider says of a key and of the account behind it; None: it does not say."""

    limit_pico: int | None
    """None: the key has no limit."""
    remaining_pico: int | None
    """Of the limit."""
    limit_reset: str | None = None
    """`daily`, `weekly`, `monthly`: the limit comes back."""
    expires_at: datetime | None = None
    is_free_tier: bool = False
    balance_pico: int | None = None
    """Credits of the account; only management keys may ask."""


@dataclass(frozen=True, slots=True)
class RunNeeds:
    """What a run may ask of its key."""

    name: str
    cap_pico: int
    spent_pico: int = 0
    """By this run already."""
    worst_case_pico: int | None = None
    """If every answer were cut at max_tokens; None: not worked out."""
    largest_hold_pico: int | None = None
    """The bound of the dearest single request; None: not worked out."""
    unlimited_key: bool = False
    """The person allows a key without a limit."""
    base_url: str | None = None
    """Where another server speaks for the provider; None: OpenRouter's own."""

    @property
    def is_own(self) -> bool:
        """OpenRouter itself is asked, so that its pages and its API are where keys are changed."""
        return self.base_url is None or urlsplit(self.base_url).hostname == OWN_HOST

    @property
    def keys_at(self) -> str:
        """Where the key's limit is changed."""
        return f"at {KEYS_PAGE}" if self.is_own else self._other

    @property
    def credits_at(self) -> str:
        """Where credits are bought."""
        return f"at {CREDITS_PAGE}" if self.is_own else self._other

    @property
    def _other(self) -> str:
        return f"at the provider, {urlsplit(self.base_url or '').netloc.rpartition('@')[2]}"

    @property
    def still_pico(self) -> int:
        """The most that may still be committed."""
        room = max(0, self.cap_pico - self.spent_pico)
        return room if self.worst_case_pico is None else min(room, self.worst_case_pico)


class Preflight(NamedTuple):
    """What was found; each sentence ends with what to do."""

    refusals: list[str]
    notes: list[str]


def inspect_key(key: KeyFacts, needs: RunNeeds, now: datetime) -> Preflight:
    """Compare a key with what a run may ask of it."""
    found = Preflight([], [])
    _inspect_limit(key, needs, found)
    _inspect_time(key, needs, now, found)
    _inspect_balance(key, needs, found)
    if key.is_free_tier:
        found.notes.append(
            f"The account has never bought credits: its free tier allows a few requests a day. Buy some "
            f"{needs.credits_at}."
        )
    return found


def fee_note() -> str:
    """Name what a purchase costs beside the credits themselves."""
    return (
        f"Not in these figures: buying credits costs {FEE_PERCENT} % on top (at least ${LEAST_FEE_USD}; "
        f"{CRYPTO_FEE_PERCENT} % with crypto). Web search and file plugins, which cost extra, are never asked for."
    )


def _cents(pico: int) -> str:
    """Show an amount in cents, and one below a cent to its last digit: `$0.00` would say that there is nothing."""
    return limit_text(pico) if abs(pico) < PICO // 100 else format_usd(pico, 2)


def _no_more_than(pico: int) -> str:
    """Show an amount rounded down, because of what is left no more can be spent."""
    return limit_text(pico // _STEP * _STEP)


def _inspect_limit(key: KeyFacts, needs: RunNeeds, found: Preflight) -> None:
    wanted = limit_text(needs.cap_pico).replace(",", "")
    if key.limit_pico is None:
        curl = CAPPED_KEY.format(name=needs.name, limit=wanted.removeprefix("$"))
        make = f", or make a key with one: {curl} " if needs.is_own else ""
        sentence = (
            "The key has no limit of its own: nothing stands behind the cap if this program or the provider errs."
        )
        if needs.unlimited_key:
            found.notes.append(f"{sentence} You allowed that: [spend] unlimited_key.")
        else:
            found.refusals.append(
                f"{sentence} Set a limit of {wanted} {needs.keys_at}{make}; or allow it with "
                "[spend] unlimited_key = true or --unlimited-key."
            )
        return
    remaining = key.limit_pico if key.remaining_pico is None else key.remaining_pico
    if needs.largest_hold_pico is not None and remaining < needs.largest_hold_pico:
        found.refusals.append(
            f"The key has {format_usd(remaining)} left, less than one request of at most "
            f"{format_usd(needs.largest_hold_pico, 6)}: raise its limit {needs.keys_at}."
        )
    elif remaining < needs.still_pico:
        cap = _no_more_than(needs.spent_pico + remaining).removeprefix("$").replace(",", "")
        found.notes.append(
            f"The key has {_no_more_than(remaining)} left of its limit, and the run may commit "
            f"{format_usd(needs.still_pico)}: it would pause with key_limit. Raise the limit {needs.keys_at}"
            f"{f', or start with --cap {cap}' if remaining >= _STEP else ''}."
        )
    elif remaining > FAR_ABOVE * max(needs.still_pico, PICO):
        found.notes.append(
            f"The key has {_cents(remaining)} left, far more than this run may commit: it does not stand behind "
            f"the cap. Set its limit to {wanted} {needs.keys_at}."
        )
    if key.limit_reset is not None:
        found.notes.append(
            f"The key's limit comes back {key.limit_reset}, so it stands behind the cap for one such period only: set "
            f"it to never {needs.keys_at}."
        )


def _inspect_time(key: KeyFacts, needs: RunNeeds, now: datetime, found: Preflight) -> None:
    if key.expires_at is None:
        return
    if key.expires_at <= now:
        found.refusals.append(f"The key expired on {key.expires_at:%Y-%m-%d}: make a new one {needs.keys_at}.")
    else:
        hours = (key.expires_at.astimezone(UTC) - now.astimezone(UTC)).total_seconds() / 3600
        if hours < 48:
            found.notes.append(
                f"The key expires in {hours:.1f} hours; a run that lasts longer pauses then. Change that "
                f"{needs.keys_at}."
            )


def _inspect_balance(key: KeyFacts, needs: RunNeeds, found: Preflight) -> None:
    if key.balance_pico is None:
        return
    shown = _cents(key.balance_pico)
    if needs.largest_hold_pico and key.balance_pico < needs.largest_hold_pico:
        found.refusals.append(
            f"The account has {shown} of credits, less than one request of at most "
            f"{format_usd(needs.largest_hold_pico, 6)}: buy credits {needs.credits_at}."
        )
    elif key.balance_pico < needs.still_pico + (COMFORT_PICO if needs.still_pico else 0):
        short = needs.still_pico + COMFORT_PICO - key.balance_pico
        found.notes.append(
            f"The account has {shown} of credits and the run may commit {_cents(needs.still_pico)}: requests "
            f"may be refused as unaffordable before the money is gone. Buy {_cents(short)} {needs.credits_at}."
        )
