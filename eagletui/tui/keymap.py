"""Other keys for the app's actions, from a file of the person's own.

```toml
[keys]
"run.pause" = "f5"              # one key
"list.down" = ["down", "n"]     # or several
```

Ids are those of `eagletui.tui.keys`; the help screen shows the keys as they are then.
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from textual.app import App

from eagletui.core.errors import ConfigError
from eagletui.tui.keys import APP_KEYS, PRINTED, VIEW_KEYS, Key, View

VARIABLE: Final = "EAGLETUI_KEYS"
_NAME: Final = re.compile(r"((ctrl|alt|shift|super)\+)*([a-z][a-z0-9_]*|[A-Z]|.)")
_NAMES: Final = {printed: name for name, printed in PRINTED.items()}


@dataclass(frozen=True)
class Keymap:
    """Which actions have other keys than the table says."""

    moved: Mapping[str, str] = field(default_factory=dict)
    """Textual key names, comma-separated, by the action's id."""

    def placed(self, key: Key) -> Key:
        """Give a key as it is now."""
        moved = self.moved.get(key.id)
        return key if moved is None else replace(key, keys=moved, shown="")

    def name(self, key_id: str) -> str:
        """Write the key of an action, as of the first screen that has it."""
        keys = (key for keys in (APP_KEYS, *VIEW_KEYS.values()) for key in keys)
        return next((_first(self.placed(key)) for key in keys if key.id == key_id), key_id)


def _first(key: Key) -> str:
    return PRINTED.get(key.keys.split(",")[0], key.keys.split(",")[0])


def keymap_of(app: App[Any]) -> Keymap:
    """Give the keys of a running app."""
    found = getattr(app, "placed_keys", None)
    return found if isinstance(found, Keymap) else Keymap()


def keymap_path(environ: Mapping[str, str]) -> Path:
    """Say where the file lies: `EAGLETUI_KEYS`, else `eagletui/keys.toml` among the person's configs."""
    if environ.get(VARIABLE):
        return Path(environ[VARIABLE]).expanduser()
    base = environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(base) / "eagletui" / "keys.toml"


def load_keymap(environ: Mapping[str, str]) -> Keymap:
    """Read the person's keys; without a file the table holds.

    Raises:
        ConfigError: the file is wrong; one line per fault, with file, id, what was found and what is expected.
    """
    path = keymap_path(environ)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if environ.get(VARIABLE):
            raise ConfigError(f"{path}: no such file; {VARIABLE} names it, expected a TOML file with [keys]") from None
        return Keymap()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); expected a TOML file with [keys]") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    unknown = [name for name in data if name != "keys"]
    if unknown or not isinstance(data.get("keys", {}), dict):
        raise ConfigError(
            f'{path}: found {unknown[0] if unknown else "keys"}, expected one table [keys] of "id" = "key"'
        )
    return read_keymap(data.get("keys", {}), str(path))


def read_keymap(given: Mapping[str, object], where: str) -> Keymap:
    """Check what a table of keys says.

    Args:
        given: a key or a list of keys by action id.
        where: names the file in messages.

    Raises:
        ConfigError: an unknown id, no key, or a key that two actions of a screen would share.
    """
    known = {key.id: key for keys in (APP_KEYS, *VIEW_KEYS.values()) for key in keys}
    faults: list[str] = []
    moved: dict[str, str] = {}
    for name, value in given.items():
        keys = [value] if isinstance(value, str) else value
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"the nearest is {near[0]}" if near else f"known are {', '.join(sorted(known))}"
            faults.append(f"{where}: {name}: found an unknown action; {hint}")
        elif (
            not isinstance(keys, list)
            or not keys
            or not all(isinstance(key, str) and _NAME.fullmatch(key) for key in keys)
        ):
            faults.append(f'{where}: {name}: found {value!r}, expected a key such as "f5", "ctrl+t" or "x", or a list')
        else:
            moved[name] = ",".join(_NAMES.get(str(key), str(key)) for key in keys)
    keymap = Keymap(moved)
    if not faults:
        faults = [f"{where}: {fault}" for fault in _clashes(keymap)]
    if faults:
        raise ConfigError("\n".join(faults))
    return keymap


def _clashes(keymap: Keymap) -> list[str]:
    found: dict[str, None] = {}
    views: tuple[View, ...] = tuple(VIEW_KEYS)
    for view in views:
        keys = (*VIEW_KEYS[view], *(VIEW_KEYS["list"] if view != "list" else ()), *APP_KEYS)
        by_key: dict[str, list[Key]] = defaultdict(list)
        for key in keys:
            for name in keymap.placed(key).keys.split(","):
                by_key[name].append(key)
        for name, sharing in by_key.items():
            ids = {key.id for key in sharing}
            is_ours = any(name not in key.keys.split(",") for key in sharing)
            if len(ids) > 1 and is_ours:
                shown = PRINTED.get(name, name)
                found[f"{shown}: {' and '.join(sorted(ids))} would share it; give one of them another key"] = None
    return list(found)
