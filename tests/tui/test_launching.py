"""The launcher: what it finds, what it accepts, what the plan says, and a run started by keys alone."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from eagletui.config.run_config import RunConfig, load_config, with_values
from eagletui.core.errors import ConfigError
from eagletui.tui.launching import (
    OWN_TOKENIZER,
    cost_line,
    draft_toml,
    edited,
    field_texts,
    find_configs,
    free_name,
    key_line,
    plan_lines,
    read_draft,
)
from eagletui.tui.program import Ran
from eagletui.tui.widgets.safe_text import Piece
from tests.tui.driving import NARROW, WIDE, in_process, opened
from tests.tui.factory import Clock, empty_run

CONFIG = """
[run]
name = "small"
[prompts]
path = "prompts.jsonl"
[model]
id = "huggingfacetb/smollm2-135m-instruct"
format = "smollm2"
[provider]
kind = "embedded"
[sampling]
max_tokens = 32
[spend]
stop_at_usd = "1.50"
cap_usd = "2.00"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one config, one broken file, and no run."""
    (tmp_path / "small.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "broken.toml").write_text("[run\n", encoding="utf-8")
    (tmp_path / "other.toml").write_text("[tool]\nx = 1\n", encoding="utf-8")
    lines = [json.dumps({"id": f"p{number}", "prompt": f"Say {number}."}) for number in range(3)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EAGLETUI_RUNS", str(tmp_path / "runs"))
    return tmp_path


def plain(lines: list[tuple[Piece, ...]]) -> str:
    return "\n".join("".join(piece if isinstance(piece, str) else piece[0] for piece in line) for line in lines)


def test_configs_of_the_folder_come_first_and_broken_ones_say_why(place: Path) -> None:
    found = {one.path.name: one for one in find_configs()}
    assert next(iter(found)) == "broken.toml"
    assert found["broken.toml"].trouble.startswith("cannot be read")
    assert (found["small.toml"].provider, found["small.toml"].trouble) == ("embedded", "")
    assert "other.toml" not in found, "a TOML file of something else is no config"
    assert "demo.toml" in found, "the shipped ones are there too"


def test_what_the_form_says_makes_a_config_that_a_file_would_give(place: Path) -> None:
    draft = read_draft(place / "small.toml")
    texts = field_texts(draft)
    assert texts["prompts"] == "prompts.jsonl"
    assert texts["stop-at"] == "1.50"
    wanted = edited(draft, texts | {"name": "mine", "limit": "2", "cap": "$1,000.5", "only": "embedded/stream x"})
    assert wanted.spend.cap_usd == Decimal("1000.5")
    assert wanted.provider.only == ["embedded/stream", "x"]
    file = place / "again.toml"
    file.write_text(draft_toml(wanted), encoding="utf-8")
    assert OWN_TOKENIZER not in file.read_text(encoding="utf-8")
    again = load_config(file, model_defaults={"tokenizer": OWN_TOKENIZER})
    assert again == wanted
    assert edited(draft, texts | {"limit": ""}).prompts.limit is None


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [
        ("name", "a b", "run.name: found 'a b', expected letters, digits, dots"),
        ("name", "taken", "run.name: run taken exists; open it from the list"),
        ("prompts", "none.jsonl", "none.jsonl: no such file"),
        ("prompts", 'a "b', "prompts.path: found a quote that is not closed"),
        ("prompts", "", "prompts.path: found [], expected"),
        ("limit", "few", "prompts.limit: found few, expected a whole number"),
        ("max-tokens", "", "sampling.max_tokens: found nothing, expected a whole number"),
        ("stop-at", "two", "spend.stop_at_usd: found 'two', expected a decimal number"),
        ("stop-at", "3", "spend: expected stop_at_usd at most cap_usd, not 3 above 2.00"),
        ("in-flight", "0", "pace.max_in_flight: found 0, expected greater than or equal to 1"),
    ],
)
def test_a_field_that_cannot_be_used_says_what_was_found_and_what_is_expected(
    place: Path, field: str, text: str, expected: str
) -> None:
    (place / "runs" / "taken").mkdir(parents=True)
    draft = read_draft(place / "small.toml")
    with pytest.raises(ConfigError) as refused:
        edited(draft, field_texts(draft) | {field: text})
    assert expected in str(refused.value)


def test_a_name_that_is_taken_gets_a_number(place: Path) -> None:
    for name in ("small", "small-2"):
        (place / "runs" / name).mkdir(parents=True)
    assert (free_name("small"), free_name("other")) == ("small-3", "other")


@pytest.mark.parametrize(
    ("provider", "environ", "expected"),
    [
        ({"provider.kind": "openrouter"}, {}, "OPENROUTER_API_KEY is not set"),
        ({"provider.kind": "openrouter"}, {"OPENROUTER_API_KEY": "sk-secret"}, "OPENROUTER_API_KEY is set"),
        ({"provider.api_key_file": "/none/key"}, {}, "file /none/key is missing"),
        ({"provider.api_key_command": "pass show key"}, {}, "from a command, which the plan runs"),
        ({}, {}, "none needed"),
    ],
)
def test_where_the_key_comes_from_is_said_and_the_key_is_not(
    place: Path, provider: dict[str, object], environ: dict[str, str], expected: str
) -> None:
    config: RunConfig = with_values(read_draft(place / "small.toml"), provider)
    assert plain([key_line(config, environ)]) == expected


def test_a_plan_is_worded_with_refusals_first_and_the_shopping_table_last() -> None:
    plan = {
        "refusals": ["The cap of $0.10 cannot hold one request."],
        "notes": ["2 prompts were seen before."],
        "samples": 41_208,
        "by_dataset": {"a": {"samples": 41_000}, "b": {"samples": 208}},
        "prompt_tokens": 1_234_567,
        "output_tokens_worst": 9_876_543,
        "endpoints": [
            {
                "tag": "deepinfra/fp4",
                "prompt_usd_per_million": "0.2",
                "completion_usd_per_million": "0.6",
                "quantization": "fp4",
                "logprobs": True,
                "stream": True,
                "ids": False,
            }
        ],
        "spend_usd": {
            "worst_case": "86.125",
            "largest_hold": "0.01",
            "stop_at": "90",
            "cap": "90.5",
            "full_pace_cap": "102",
        },
        "in_flight": {"max": 1200, "near_stop_at": 50},
        "disk_bytes": {"ledger": 2**30, "features": None, "free": 5 * 2**40},
    }
    text = plain(plan_lines(plan, ("none needed",)))
    lines = text.splitlines()
    assert lines[0] == "refused  The cap of $0.10 cannot hold one request."
    assert "samples  41,208   a 41,000, b 208" in lines
    assert "at most  $86.1250, if every answer were cut at max tokens" in lines
    assert "pace     near stop-at only 50 requests may run; full pace needs a cap of $102.00" in lines
    assert "disk     ledger 1.0 GiB, features - at most" in lines
    assert "         of 5.0 TiB free" in lines
    assert "deepinfra/fp4            0.20     0.60  logprobs  fp4" in lines
    assert lines[-1] == "note  2 prompts were seen before."
    plan |= {
        "likely_usd": {"low": "30.5", "likely": "40.25", "high": "50"},
        "finish": {"seconds": 5_400.0, "answered": 41_208},
        "learned_from": ["b3"],
    }
    assert cost_line(plan) == "41,208 samples, likely $40.2500, at most $86.1250"
    known = plain(plan_lines(plan, ("none needed",)))
    assert (
        "likely   $40.2500, $30.5000 to $50.0000\n         learned from b3\ntime     about 1 h 30 min under this cap"
        in known
    )


def load_draft(path: str) -> RunConfig:
    return load_config(Path(path), model_defaults={"tokenizer": OWN_TOKENIZER})


def is_there(path: str) -> bool:
    return Path(path).exists()


@pytest.mark.slow
async def test_a_run_is_planned_and_started_by_keys_alone(place: Path) -> None:
    calls: list[tuple[str, ...]] = []
    drafts: list[RunConfig] = []

    async def program(*arguments: str, outlives: bool = False) -> Ran:
        calls.append(arguments)
        if arguments[0] == "plan":
            return await in_process(*arguments)
        drafts.append(load_draft(arguments[1]))
        empty_run(place / "runs" / "mine", "mine", Clock())
        return Ran(0, "", "")

    async with opened(None, WIDE, program=program) as screens:
        await screens.press("n")
        assert "broken.toml: cannot be read" in screens.text
        await screens.press("ctrl+r")
        assert "Start is off: pick a config first" in screens.text
        await screens.press("enter")
        assert "not valid TOML" in screens.text
        await screens.press("j", "enter")
        screens.app.screen.query_one("#field-name").focus()
        await screens.press("ctrl+u", *"two words")
        assert "name: found 'two words', expected letters, digits" in screens.text
        await screens.press("ctrl+u", *"mine")
        await screens.press("f5")
        assert "samples  3" in screens.text
        assert ": ctrl+r starts the run." in screens.text
        await screens.resize(NARROW)
        assert "samples  3" in screens.text
        assert "stop-at $   1.50" in screens.text
        await screens.press("ctrl+r")
        assert "never commits beyond the cap $2.00." in screens.text
        await screens.press("escape")
        assert [call[0] for call in calls if call[0] == "run"] == []
        await screens.press("ctrl+r", "right", "enter")
        assert calls[-1][0] == "run"
        assert calls[-1][2:] == ("--detach",)
        assert "run mine" in screens.lines[0]
        assert "[1 Run]" in screens.lines[1]
    assert [(draft.run.name, str(draft.spend.cap_usd)) for draft in drafts] == [("mine", "2.00")]
    assert not is_there(calls[-1][1]), "the draft is gone once the run has its own copy"


async def test_a_read_only_app_starts_nothing(place: Path) -> None:
    async with opened(None, NARROW, read_only=True) as screens:
        await screens.press("n", "ctrl+r")
        assert "Start is off: read-only." in screens.text
