"""Keys moved by a file: checked as a whole, shown where they are, and pressed."""

from pathlib import Path

import pytest

from eagletui.core.errors import ConfigError
from eagletui.tui.keymap import Keymap, keymap_path, load_keymap, read_keymap
from eagletui.tui.screens.help import help_lines
from tests.tui.driving import NARROW, opened
from tests.tui.factory import Built


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"run.puase": "f5"}, "keys: run.puase: found an unknown action; the nearest is run.pause"),
        ({"run.pause": ""}, "keys: run.pause: found '', expected a key such as"),
        ({"run.pause": 5}, "keys: run.pause: found 5, expected a key such as"),
        ({"run.pause": []}, "keys: run.pause: found [], expected a key such as"),
        ({"run.pause": "q"}, "keys: q: app.detach and run.pause would share it; give one of them another key"),
        ({"samples.filter": "f"}, "keys: f: samples.filter and samples.preset would share it"),
        ({"list.down": "p"}, "keys: p: list.down and run.pause would share it"),
        ({"run.limits": "?"}, "keys: ?: app.help and run.limits would share it"),
    ],
)
def test_a_wrong_keymap_is_refused_with_the_action_what_was_found_and_what_is_expected(
    given: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_keymap(given, "keys")
    assert expected in str(refused.value)


def test_two_actions_may_change_places_and_one_key_may_serve_different_screens() -> None:
    keymap = read_keymap({"run.pause": "q", "app.detach": ["p", "ctrl+q"], "verdicts.samples": "z"}, "keys")
    assert keymap.moved == {"run.pause": "q", "app.detach": "p,ctrl+q", "verdicts.samples": "z"}
    assert (keymap.name("run.pause"), keymap.name("app.detach"), keymap.name("run.limits")) == ("q", "p", "$")


def test_the_file_is_looked_for_where_people_keep_configs_and_may_be_absent(tmp_path: Path) -> None:
    assert keymap_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/eagletui/keys.toml")
    assert load_keymap({"XDG_CONFIG_HOME": str(tmp_path)}) == Keymap()
    with pytest.raises(ConfigError, match="no such file; EAGLETUI_KEYS names it"):
        load_keymap({"EAGLETUI_KEYS": str(tmp_path / "none.toml")})
    file = tmp_path / "keys.toml"
    for text, expected in (
        ("[keys\n", "not valid TOML"),
        ('[key]\n"run.pause" = "f5"\n', "found key, expected one table"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=expected):
            load_keymap({"EAGLETUI_KEYS": str(file)})
    file.write_text('[keys]\n"run.pause" = "f6"\n"samples.filter" = "ctrl+f"\n', encoding="utf-8")
    assert load_keymap({"EAGLETUI_KEYS": str(file)}).moved == {"run.pause": "f6", "samples.filter": "ctrl+f"}


def test_help_shows_the_keys_as_they_are() -> None:
    keymap = read_keymap({"samples.filter": "ctrl+f", "go.next": "right_square_bracket"}, "keys")
    text = "\n".join(line.plain for line in help_lines("samples", 100, keymap))
    assert "  ctrl+f           Filter" in text
    assert "  ]                Go to the next problem." in text


async def test_a_moved_key_works_shows_in_the_footer_and_leaves_its_old_place(busy: Built) -> None:
    keymap = read_keymap({"app.spend": "f8", "app.detach": "Q", "samples.preset": "F", "list.down": "o"}, "keys")
    async with opened(busy, NARROW, keymap=keymap) as screens:
        assert screens.lines[-1].endswith("Q Detach ")
        await screens.press("3")
        assert "[1 Run]" in screens.lines[1]
        await screens.press("f8")
        assert "[3 Spend]" in screens.lines[1]
        await screens.press("2", "o")
        assert "> s-000001" in " ".join(screens.line_with("> ").replace(">", "> ").split())
        await screens.press("F")
        assert "preset mismatched" in screens.text
        assert "F Preset" in screens.lines[-1]
