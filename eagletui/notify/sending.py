"""Send one notice by the command and the webhook of `[notify]`.

Texts may quote models and providers. They reach a command as environment variables and as JSON on stdin, never as part
of its line, so no shell reads them; they reach a webhook as JSON. Nothing secret is in them, and the provider's key is
taken out of the command's environment.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from eagletui.config.run_config import RunConfig
from eagletui.config.sections import NotifySection
from eagletui.core.money import pico_to_usd_string
from eagletui.core.notices import Look, Notice
from eagletui.core.text import clean_line

COMMAND_TIMEOUT_S: Final = 30.0
WEBHOOK_TIMEOUT_S: Final = 10.0
WEBHOOK_TRIES: Final = 3
WEBHOOK_PAUSE_S: Final = 2.0
TEXT_CELLS: Final = 1_500
_KEPT_OUTPUT: Final = 200


@dataclass(frozen=True, slots=True)
class Sent:
    """How one way of sending went."""

    way: str
    """`command` or `webhook`."""
    ok: bool
    detail: str
    """Why not, or what answered; without the webhook's path, which may be secret."""


def send(notice: Notice, look: Look, config: RunConfig, at: float) -> list[Sent]:
    """Send a notice by every way that the config names, and say how each went; nothing is raised.

    Args:
        notice: what to tell.
        look: the run it is about.
        config: of the run.
        at: Unix seconds.
    """
    message = payload(notice, look, at)
    results = []
    if config.notify.command:
        results.append(_by_command(config.notify.command, message, _environment(config)))
    url = webhook_url(config.notify)
    if url is not None:
        results.append(_by_webhook(url, message))
    return results


def payload(notice: Notice, look: Look, at: float) -> dict[str, str | int | float | None]:
    """Return what a webhook receives, and a command on stdin: one flat JSON object."""
    title, text = clean_line(notice.title, 200), clean_line(notice.text, TEXT_CELLS, newline=" ")
    return {
        "kind": notice.kind,
        "run": clean_line(look.name, 100),
        "title": title,
        "text": f"{title}. {text}",
        "content": f"{title}. {text}",  # what Discord shows; Slack and Mattermost show `text`
        "at": round(at, 3),
        "state": look.state,
        "pause_reason": look.pause_reason,
        "answered": look.answered,
        "samples": look.samples,
        "spent_usd": pico_to_usd_string(look.spent_pico),
        "stop_at_usd": pico_to_usd_string(look.stop_at_pico),
    }


def webhook_url(section: NotifySection) -> str | None:
    """Return where to post; None where nothing is set."""
    if section.webhook_env is not None:
        return os.environ.get(section.webhook_env, "").strip() or None
    return section.webhook or None


def _environment(config: RunConfig) -> dict[str, str]:
    secret = (config.provider.api_key_env, "OPENROUTER_API_KEY", config.notify.webhook_env)
    return {name: value for name, value in os.environ.items() if name not in secret}


def _by_command(command: str, message: Mapping[str, object], environment: Mapping[str, str]) -> Sent:
    told = {f"EAGLETUI_{key.upper()}": "" if value is None else str(value) for key, value in message.items()}
    try:
        process = subprocess.Popen(
            command,
            shell=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**environment, **told},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Sent("command", False, clean_line(f"it did not start: {error}", _KEPT_OUTPUT))
    try:
        _, said = process.communicate((json.dumps(message) + "\n").encode(), timeout=COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Sent("command", False, f"it did not end within {COMMAND_TIMEOUT_S:.0f} s and was killed")
    if process.returncode:
        words = clean_line(said.decode("utf-8", "replace").strip(), _KEPT_OUTPUT)
        return Sent("command", False, f"exit {process.returncode}{f': {words}' if words else ''}")
    return Sent("command", True, "exit 0")


def _by_webhook(url: str, message: Mapping[str, object]) -> Sent:
    import httpx

    place = clean_line(urlsplit(url).hostname or "the webhook", 80)
    detail = ""
    for attempt in range(WEBHOOK_TRIES):
        if attempt:
            time.sleep(WEBHOOK_PAUSE_S)
        try:
            response = httpx.post(url, json=message, timeout=WEBHOOK_TIMEOUT_S, follow_redirects=False)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            detail = f"{place}: {type(error).__name__}"  # its words may hold the address
            continue
        if response.is_success:
            return Sent("webhook", True, f"{place} answered {response.status_code}")
        detail = f"{place} answered {response.status_code}, expected 2xx"
        if response.status_code < 500 and response.status_code != 429:
            break
    return Sent("webhook", False, detail)
