"""The provider's API key: read from where the config says, and never shown."""

import os
import stat
import subprocess
from pathlib import Path
from typing import Any, Final

from eagletui.core.errors import ConfigError

COMMAND_TIMEOUT_S: Final = 60.0


class Secret:
    """A key that does not show itself in `repr`, `str`, logs or tracebacks."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        """Keep the value."""
        self._value = value

    def reveal(self) -> str:
        """Return the value, for the one line that sends it."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return "Secret(***)" if self._value else "Secret()"

    __str__ = __repr__

    def __reduce__(self) -> "str | tuple[Any, ...]":
        raise TypeError("a secret is not pickled")


def secret_of_environment(variable: str) -> Secret:
    """Read a key from an environment variable.

    Raises:
        ConfigError: it is not set, or empty.
    """
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(
            f"[provider] needs the API key: environment variable {variable} is not set. Set it, or give "
            "api_key_file (0600) or api_key_command, which also work after a restart from another shell."
        )
    return Secret(value)


def secret_of_file(path: Path) -> Secret:
    """Read a key from a file that only its owner may read.

    Raises:
        ConfigError: it cannot be read, others may read it, or it is empty.
    """
    try:
        mode = path.stat().st_mode
        value = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"[provider] api_key_file {path}: cannot be read ({type(error).__name__})") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"[provider] api_key_file {path}: others may read it; run: chmod 600 {path}")
    if not value:
        raise ConfigError(f"[provider] api_key_file {path}: empty; expected the API key")
    return Secret(value)


def secret_of_command(command: str) -> Secret:
    """Read a key from what a shell command prints, for password managers.

    Raises:
        ConfigError: it fails, prints nothing or takes longer than a minute.
    """
    try:
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"[provider] api_key_command: no answer in {COMMAND_TIMEOUT_S:.0f} s") from error
    value = done.stdout.strip()
    if done.returncode != 0 or not value:
        raise ConfigError(f"[provider] api_key_command: exit {done.returncode}, expected 0 and the key on stdout")
    return Secret(value)
