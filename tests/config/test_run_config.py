"""The config: what is read, what is refused and with which words, and the frozen copy."""

from decimal import Decimal
from pathlib import Path

import pytest

from eagletui.config.changes import changed_fields, may_change
from eagletui.config.run_config import RunConfig, config_from_json, load_config, to_json
from eagletui.config.secret import Secret
from eagletui.config.toml import to_toml
from eagletui.core.errors import ConfigError

WHOLE = """\
[run]
name = "b3-magicoder"

[prompts]
path = ["b1_glaive.jsonl", "/data/b3.jsonl"]

[model]
id = "moonshotai/kimi-k2.5"
tokenizer = "tok"
format = "kimi-k2.5"
template_kwargs = { preserve_thinking = true, note = "a \\"quoted\\" word" }

[provider]
kind = "openrouter"
quantizations = ["int4"]

[sampling]
max_tokens = 16384

[sampling.b1_glaive]
max_tokens = 512
temperature = 0.6

[spend]
stop_at_usd = "90.00"
cap_usd = 150

[pace]
max_in_flight = 1200
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _load(folder: Path, text: str = WHOLE) -> RunConfig:
    return load_config(_write(folder, text))


def test_relative_paths_are_resolved_against_the_config_files_folder(tmp_path: Path) -> None:
    config = _load(tmp_path)
    assert config.prompts.path == [tmp_path / "b1_glaive.jsonl", Path("/data/b3.jsonl")]
    assert config.model.tokenizer == tmp_path / "tok"


def test_one_prompt_file_may_be_given_as_a_plain_string(tmp_path: Path) -> None:
    config = _load(tmp_path, WHOLE.replace('["b1_glaive.jsonl", "/data/b3.jsonl"]', '"one.jsonl"'))
    assert config.prompts.path == [tmp_path / "one.jsonl"]


def test_sampling_of_a_data_set_overrides_only_what_it_names(tmp_path: Path) -> None:
    config = _load(tmp_path)
    special, other = config.sampling.drawn_for("b1_glaive"), config.sampling.drawn_for("b3_magicoder")
    assert (special.max_tokens, special.temperature, special.top_p) == (512, 0.6, 0.95)
    assert (other.max_tokens, other.temperature) == (16384, 1.0)


def test_the_frozen_copy_reads_back_equal_from_another_folder(tmp_path: Path) -> None:
    config = _load(tmp_path)
    elsewhere = tmp_path / "runs" / "x"
    elsewhere.mkdir(parents=True)
    assert load_config(_write(elsewhere, to_toml(config))) == config
    assert config_from_json(to_json(config)) == config


def test_money_is_an_exact_decimal(tmp_path: Path) -> None:
    config = _load(tmp_path, WHOLE.replace("cap_usd = 150", "cap_usd = 90.10"))
    assert config.spend.cap_usd == Decimal("90.1")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("max_in_flight = 1200", "max_inflight = 1200", [":29:", "pace.max_inflight", "max_in_flight"]),
        ("max_tokens = 512", "max_toks = 512", [":21:", "sampling.b1_glaive.max_toks", "max_tokens"]),
        ("max_in_flight = 1200", 'max_in_flight = "many"', [":29:", "pace.max_in_flight", "'many'", "integer"]),
        ("cap_usd = 150", "cap_usd = 10", [":24:", "stop_at_usd at most cap_usd"]),
        ("cap_usd = 150", 'cap_usd = "ten"', [":26:", "spend.cap_usd", "'ten'", "decimal"]),
        ("cap_usd = 150", "", ["spend.cap_usd", "found nothing"]),
        ("cap_usd = 150", "cap_usd = nan", [":26:", "spend.cap_usd", "decimal"]),
        ("cap_usd = 150", 'cap_usd = "1e99"', [":26:", "spend.cap_usd", "up to 9223372 dollars"]),
        ("cap_usd = 150", "cap_usd = -1", [":26:", "spend.cap_usd", "greater than or equal to 0"]),
        ('kind = "openrouter"', 'kind = "openruter"', [":14:", "provider.kind", "'openruter'", "'openrouter'"]),
        (
            'id = "moonshotai/kimi-k2.5"',
            'id = "moonshotai/kimi-k2.5:online"',
            [":8:", "model.id", "k2.5:online'", "fees"],
        ),
        ('id = "moonshotai/kimi-k2.5"', 'id = "a/b:nitro"', ["model.id", "without :nitro", "priority tiers"]),
        ('id = "moonshotai/kimi-k2.5"', 'id = "a/b:floor:free"', ["model.id", "without :floor", "flex tiers"]),
        ("[pace]", "[pase]", [":28:", "pase", "pace"]),
        ("[pace]", "[pace", ["not valid TOML"]),
        ('name = "b3-magicoder"', 'name = "../up"', [":2:", "run.name", "'../up'"]),
        (
            'kind = "openrouter"',
            'kind = "openrouter"\napi_key_env = "A"\napi_key_file = "b"',
            ["one source for the key, not api_key_env and api_key_file"],
        ),
    ],
)
def test_a_fault_is_named_with_its_line_key_and_what_would_do(
    tmp_path: Path, old: str, new: str, words: list[str]
) -> None:
    assert old in WHOLE
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, WHOLE.replace(old, new))
    for word in [str(tmp_path / "run.toml"), *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("model", ["a/b:free", "a/b:thinking", "local:online"])
def test_other_suffixes_of_a_model_are_its_name(tmp_path: Path, model: str) -> None:
    assert _load(tmp_path, WHOLE.replace("moonshotai/kimi-k2.5", model)).model.id == model


def test_every_fault_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    text = WHOLE.replace("max_tokens = 16384", "max_token = 1").replace("max_in_flight = 1200", "max_in_flight = 0")
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text)
    assert len(str(caught.value).splitlines()) == 2


def test_an_absent_section_is_named_as_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"found no \[model\] section, expected one"):
        _load(tmp_path, WHOLE.replace("[model]", "[models]", 1))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "b3-magicoder"', 'name = "b3/magicoder"', "expected letters, digits, dots, dashes and underscores"),
        (
            'kind = "openrouter"',
            'kind = "vllm"\nbase_url = "localhost:8000/v1"',
            "expected an address that starts with",
        ),
    ],
)
def test_a_pattern_is_told_in_words(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _load(tmp_path, WHOLE.replace(old, new))


def test_an_absent_or_binary_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "binary.toml")


def test_the_embedded_provider_brings_its_own_tokenizer_and_a_given_one_wins(tmp_path: Path) -> None:
    text = WHOLE.replace('kind = "openrouter"', 'kind = "embedded"').replace('tokenizer = "tok"\n', "")
    defaults = {"tokenizer": "/package/tok", "weights": "/package/model.gguf"}
    config = load_config(_write(tmp_path, text), model_defaults=defaults)
    assert (config.model.tokenizer, config.model.weights) == (Path("/package/tok"), Path("/package/model.gguf"))
    given = text.replace("[model]\n", '[model]\ntokenizer = "mine"\n')
    assert load_config(_write(tmp_path, given), model_defaults=defaults).model.tokenizer == tmp_path / "mine"
    with pytest.raises(ConfigError, match=r"model\.tokenizer"):
        load_config(_write(tmp_path, text.replace("embedded", "vllm")), model_defaults=defaults)


def test_changed_fields_names_every_difference_and_only_money_pace_checks_and_notices_may_change(
    tmp_path: Path,
) -> None:
    old = _load(tmp_path)
    new = _load(
        tmp_path,
        WHOLE.replace("cap_usd = 150", "cap_usd = 160")
        .replace("temperature = 0.6", "temperature = 0.7")
        .replace("max_in_flight = 1200", "max_in_flight = 100"),
    )
    changed = changed_fields(old, new)
    assert changed == ["sampling.b1_glaive.temperature", "spend.cap_usd", "pace.max_in_flight"]
    assert [field for field in changed if not may_change(field)] == ["sampling.b1_glaive.temperature"]


def test_an_equal_amount_written_otherwise_is_no_change(tmp_path: Path) -> None:
    assert changed_fields(_load(tmp_path), _load(tmp_path, WHOLE.replace('"90.00"', "90"))) == []


def test_a_key_from_the_environment_is_read_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-abc")
    config = _load(tmp_path)
    secret = config.secret()
    assert secret.reveal() == "sk-or-abc"
    assert "sk-or" not in f"{secret} {secret!r} {[secret]} {config!r} {to_toml(config)} {to_json(config)}"


def test_an_absent_key_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="OPENROUTER_API_KEY is not set"):
        _load(tmp_path).secret()


def test_a_key_file_must_be_closed_to_others(tmp_path: Path) -> None:
    text = WHOLE.replace('kind = "openrouter"', 'kind = "openrouter"\napi_key_file = "key"')
    key = tmp_path / "key"
    key.write_text("sk-file\n")
    key.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        _load(tmp_path, text).secret()
    key.chmod(0o600)
    assert _load(tmp_path, text).secret().reveal() == "sk-file"


def test_a_key_command_gives_its_output_and_its_failure_does_not_leak_it(tmp_path: Path) -> None:
    text = WHOLE.replace('kind = "openrouter"', 'kind = "openrouter"\napi_key_command = "echo sk-cmd"')
    assert _load(tmp_path, text).secret().reveal() == "sk-cmd"
    with pytest.raises(ConfigError, match="exit 3") as caught:
        _load(tmp_path, text.replace("echo sk-cmd", "echo sk-cmd; exit 3")).secret()
    assert "sk-cmd" not in str(caught.value)


def test_a_local_server_needs_no_key(tmp_path: Path) -> None:
    secret = _load(tmp_path, WHOLE.replace('"openrouter"', '"vllm"')).secret()
    assert isinstance(secret, Secret)
    assert not secret


def test_canaries_among_the_prompts_need_prompts_with_their_answers(tmp_path: Path) -> None:
    asking = WHOLE.replace("[prompts]\n", "[prompts]\ncanary_every = 50\n")
    assert asking != WHOLE
    with pytest.raises(ConfigError, match=r"\[check.canary\]"):
        _load(tmp_path, asking)
    loaded = _load(tmp_path, asking + '\n[check.canary]\n"What is 17 * 23?" = "391"\n')
    assert loaded.prompts.canary_every == 50


def test_a_canary_needs_a_regular_expression_and_survives_the_frozen_copy(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(WHOLE + '\n[check.canary]\n"What is 17 * 23?" = "\\\\b391\\\\b"\n')
    loaded = load_config(path)
    assert loaded.check.canary == {"What is 17 * 23?": r"\b391\b"}
    path.write_text(to_toml(loaded))
    assert load_config(path) == loaded
    path.write_text(WHOLE + '\n[check.canary]\n"Why?" = "(["\n')
    with pytest.raises(ConfigError, match=r"a regular expression for 'Why\?'"):
        load_config(path)
