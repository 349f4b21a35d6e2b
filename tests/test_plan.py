"""`plan`: counts, money and disk by hand, and the reasons to refuse."""

import json
import shutil
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eagletui.cli import key_check
from eagletui.cli import plan as cli_plan
from eagletui.cli.create import read_config
from eagletui.cli.key_check import require_key
from eagletui.config.run_config import load_config
from eagletui.core.errors import ConfigError
from eagletui.core.money import FREE, Price, usd_to_pico
from eagletui.embedded.data import tokenizer_dir
from eagletui.plan import make_plan
from eagletui.providers.base import Endpoint
from eagletui.tokens.load import load_tokenizer
from tests.cli.conftest import Command, MakeConfig, eagletui, make_config, runs
from tests.provider_fixture import StartProvider

__all__ = ["eagletui", "make_config", "runs"]

CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nQuestion 0?<|im_end|>\n<|im_start|>assistant\n"
)
"""What SmolLM2's template renders for the first prompt, written out by hand."""


def _prompt_tokens() -> int:
    """Count that text: structure is one token each, the rest is encoded span by span."""
    tokenizer = load_tokenizer(tokenizer_dir())
    total = 0
    for piece in CHAT.replace("<|im_start|>", "\0").replace("<|im_end|>", "\0").split("\0"):
        total += len(tokenizer.encode(piece))
    return total + CHAT.count("<|im_")


def test_samples_tokens_and_money_are_what_one_counts_by_hand(eagletui: Command, make_config: MakeConfig) -> None:
    plan = eagletui("plan", str(make_config()), "--json").json
    tokens = _prompt_tokens()
    assert (plan["ok"], plan["samples"], plan["refusals"]) == (True, 4, [])
    assert plan["by_dataset"] == {
        "prompts": {
            "samples": 4,
            "prompt_tokens": 4 * tokens,
            "output_tokens_worst": 4 * 96,
            "output_tokens_likely": 4 * 96,
        }
    }
    # The dearest endpoint asks 0.75 and 3.0125 USD per million; the prompt bound is 5 % and 64 tokens above the count.
    upper = -(-tokens * 1050 // 1000) + 64
    hold_pico = upper * 750_000 + 96 * 3_012_500
    assert plan["spend_usd"]["largest_hold"] == f"0.{hold_pico:012d}".rstrip("0")
    assert plan["spend_usd"]["worst_case"] == f"0.{4 * hold_pico:012d}".rstrip("0")
    assert [endpoint["tag"] for endpoint in plan["endpoints"]] == [
        "embedded/stream",
        "embedded/logprobs",
        "embedded/text",
    ]
    assert plan["endpoints"][1]["completion_usd_per_million"] == "3.0125"


def test_a_cap_below_one_request_is_refused_with_both_amounts(eagletui: Command, make_config: MakeConfig) -> None:
    ended = eagletui("plan", str(make_config(cap="0.0001", stop_at="0.0001")), "--json")
    assert ended.code == 2
    assert ended.json["ok"] is False
    (reason,) = ended.json["refusals"]
    assert "The cap of $0.0001 cannot hold one request of at most $0.000" in reason
    assert "raise [spend] cap_usd or lower [sampling] max_tokens" in reason


def test_sampling_for_a_data_set_that_no_prompt_is_of_is_refused_by_plan_and_run_with_the_nearest_name(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    config = make_config()
    config.write_text(config.read_text() + "[sampling.promts]\nmax_tokens = 5\n[sampling.zzz]\nmax_tokens = 5\n")
    for command in (("plan",), ("run", "--headless", "--limit", "1")):
        ended = eagletui(*command, str(config))
        assert ended.code == 2
        assert (
            "[sampling.promts]: found a data set that the prompt files do not have; the nearest is promp" in ended.err
        )
        assert "[sampling.zzz]: found a data set that the prompt files do not have; they have prompts" in ended.err
        assert not list(runs.glob("*"))


def test_wrong_prompts_are_a_refusal_in_json_too(eagletui: Command, make_config: MakeConfig) -> None:
    config = make_config()
    (config.parent / "prompts.jsonl").write_text("{}\n")
    ended = eagletui("plan", str(config), "--json")
    assert ended.code == 2
    assert "expected messages, conversations or prompt" in json.dumps(ended.json["refusals"])
    assert "expected messages, conversations or prompt" in ended.err


def test_the_words_name_the_cap_that_full_pace_needs(eagletui: Command, make_config: MakeConfig) -> None:
    ended = eagletui("plan", str(make_config(stop_at="0.9999", cap="1.00")))
    assert ended.code == 0
    assert "full pace up to stop-at needs $1.00, under this one 0 requests may be in flight near stop-at" in ended.out
    assert "under way then still end" not in ended.out


def test_what_stop_at_may_be_passed_by_is_told_before_the_run(eagletui: Command, make_config: MakeConfig) -> None:
    config = str(make_config(stop_at="0.50", cap="1.00"))
    plan = eagletui("plan", config, "--json").json
    over = plan["beyond_stop_at"]
    assert over["requests"] == 4, "no more than there are samples"
    assert Decimal(over["most_usd"]) == 4 * Decimal(plan["spend_usd"]["largest_hold"])
    assert Decimal(over["likely_usd"]) == min(Decimal(plan["likely_usd"]["likely"]), Decimal(over["most_usd"]))
    words = " ".join(eagletui("plan", config).out.split())
    assert "this much is settled; up to 4 requests under way then still end: likely $0.00" in words


def _endpoint(**changes: Any) -> Endpoint:
    values: dict[str, Any] = {
        "tag": "vllm",
        "provider_name": "vllm",
        "price": FREE,
        "quantization": None,
        "max_completion_tokens": None,
        "supports_logprobs": True,
        "supports_stream": True,
        "supports_ids": True,
    }
    return Endpoint(**{**values, **changes})


def test_a_free_server_needs_no_money_and_no_cap_binds(make_config: MakeConfig, tmp_path: Path) -> None:
    plan = make_plan(read_config(str(make_config())), [_endpoint()], tmp_path)
    assert (plan.worst_case_pico, plan.largest_hold_pico, plan.in_flight_near_stop_at) == (0, 0, None)
    assert plan.refusals == []


def test_an_endpoint_that_will_refuse_long_prompts_or_is_not_well_is_named(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    endpoints = [
        _endpoint(tag="short", context_tokens=_prompt_tokens() + 95),
        _endpoint(tag="narrow", context_tokens=4_096, max_prompt_tokens=_prompt_tokens() - 1),
        _endpoint(tag="ill", context_tokens=_prompt_tokens() + 96, status=-2),
    ]
    notes = make_plan(read_config(str(make_config())), endpoints, tmp_path).notes
    assert [note.split(",")[0] for note in notes[:3]] == [
        f"short has a context of {_prompt_tokens() + 95} tokens",
        f"narrow takes prompts of at most {_prompt_tokens() - 1} tokens",
        "ill is degraded now: the router gives it the status -2.",
    ]


def test_samples_that_fit_no_endpoint_are_in_the_way_and_in_no_other_figure(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(prompts=2)
    prompts = config.parent / "prompts.jsonl"
    fitting = _endpoint(
        tag="short", context_tokens=_prompt_tokens() + 96, price=Price(Decimal(0), Decimal("0.000002"), Decimal(0))
    )
    plan = make_plan(read_config(str(config)), [fitting], tmp_path)
    prompts.write_text(prompts.read_text() + json.dumps({"prompt": "long " * 200}) + "\n")
    more = make_plan(read_config(str(config)), [fitting], tmp_path)
    assert (more.samples, more.nowhere, more.worst_case_pico) == (2, 1, plan.worst_case_pico)
    assert (more.by_dataset, more.largest_hold_pico) == (plan.by_dataset, plan.largest_hold_pico)
    (refusal,) = more.refusals
    assert refusal.startswith(
        "1 of 3 samples can be asked nowhere and are in no other figure. No endpoint can be asked"
    )
    assert "short has a context of " in refusal
    cli_plan._print(more)
    shown = capsys.readouterr().out
    assert "samples        2 of 3 from 3 prompts; the others can be asked nowhere" in shown
    assert "nothing is in the way" not in shown
    none = make_plan(read_config(str(config)), [_endpoint(tag="tiny", context_tokens=96)], tmp_path)
    assert (none.samples, none.worst_case_pico, none.by_dataset) == (0, 0, {})
    assert none.refusals[0].startswith("3 of 3 samples can be asked nowhere")


def test_features_are_sized_from_the_models_own_config(make_config: MakeConfig, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"hidden_size": 1000}')
    (model / "model.safetensors").write_bytes(b"")
    path = make_config()
    text = path.read_text().replace("[provider]", f'weights = "{model}"\n\n[provider]')
    path.write_text(text + '\n[extract]\nwhen = "after"\ndtype = "bfloat16"\n')
    plan = make_plan(read_config(str(path)), [_endpoint()], tmp_path)
    rows = plan.prompt_tokens + 4 * 96
    # Four streams of 1000 two-byte numbers, and two int64 a token; headers add at most 3 %.
    exact = rows * (4 * 1000 * 2 + 16)
    assert plan.features_bytes is not None
    assert exact <= plan.features_bytes <= 1.03 * exact + 1


def test_features_that_may_fill_the_disk_and_come_from_other_weights_are_noted_and_a_missing_server_is_refused(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"hidden_size": 1000, "quantization_config": {"quant_method": "fp8"}}')
    (model / "model.safetensors").write_bytes(b"")
    path = make_config()
    text = path.read_text().replace("[provider]", f'weights = "{model}"\n\n[provider]')
    # 4 answers: 96 MB of ledger, 64 GB of features.
    text = text.replace("max_tokens = 96", "max_tokens = 1000000")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    path.write_text(text + '\n[extract]\nwhen = "after"\nengine = "vllm"\n')
    endpoints = [_endpoint(tag="a", quantization="int4"), _endpoint(tag="b", quantization="fp8")]
    plan = make_plan(read_config(str(path)), endpoints, tmp_path)
    assert plan.refusals == ['[extract] engine = "vllm" needs the address of its server: set server.']
    assert any("bytes if every answer is cut at max_tokens, and the disk has" in note for note in plan.notes)
    (note,) = [note for note in plan.notes if note.startswith("Features are computed")]
    assert note.startswith("Features are computed with weights stored as fp8, but a (int4) would answer with others")


def test_a_disk_that_is_too_small_is_refused(make_config: MakeConfig, tmp_path: Path) -> None:
    path = make_config()
    path.write_text(path.read_text().replace("max_tokens = 96", "max_tokens = 10000000000000"))
    plan = make_plan(read_config(str(path)), [_endpoint()], tmp_path)
    assert any("bytes free and the run needs" in reason for reason in plan.refusals)


@pytest.mark.parametrize("name", ["absent.toml", "nothing"])
def test_a_config_that_is_not_there_exits_2(eagletui: Command, runs: Path, name: str) -> None:
    assert eagletui("plan", name).code == 2


def _without_key(make_config: MakeConfig, tokenizer: str) -> Path:
    config = make_config()
    text = config.read_text().replace('kind = "embedded"\nbackend = "replay"', 'kind = "openrouter"')
    text = text.replace("[sampling]", 'api_key_env = "NO_SUCH_KEY"\n\n[sampling]')
    config.write_text(text.replace("[model]", f'[model]\ntokenizer = "{tokenizer}"'))
    return config


def test_without_a_key_tokens_are_counted_all_the_same_and_the_key_is_what_is_missing(
    eagletui: Command, make_config: MakeConfig, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    config = _without_key(make_config, str(tokenizer_dir()))
    ended = eagletui("plan", str(config), "--json")
    assert ended.code == 2
    assert ended.json["by_dataset"]["prompts"]["samples"] == 4
    assert ended.json["prompt_tokens"] > 0
    (refusal,) = ended.json["refusals"]
    assert "environment variable NO_SUCH_KEY is not set" in refusal
    assert "money    unknown" in eagletui("plan", str(config)).out


def test_what_is_wrong_on_this_machine_is_told_before_the_missing_key(
    eagletui: Command, make_config: MakeConfig, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    config = _without_key(make_config, "nowhere")
    for command in (("plan", str(config)), ("run", str(config), "--headless")):
        ended = eagletui(*command)
        assert ended.code == 2
        assert "nowhere: found nothing, expected a folder" in ended.err
        assert "NO_SUCH_KEY" not in ended.err


def test_an_unlimited_key_is_refused_by_plan_and_run_unless_allowed_and_fees_are_named(
    eagletui: Command, make_config: MakeConfig, runs: Path, start_provider: StartProvider
) -> None:
    config = make_config()
    text = config.read_text().replace(
        'kind = "embedded"\nbackend = "replay"',
        f'kind = "openrouter"\nbase_url = "{start_provider().api_url}"\napi_key_command = "echo a-key"',
    )
    config.write_text(text.replace("[model]", f'[model]\ntokenizer = "{tokenizer_dir()}"'))
    planned = eagletui("plan", str(config), "--json")
    assert planned.code == 2
    assert [words[:41] for words in planned.json["refusals"]] == ["The key has no limit of its own: nothing "]
    assert any("buying credits costs 5.5 %" in note for note in planned.json["notes"])
    refused = eagletui("run", str(config), "--headless")
    assert refused.code == 2
    assert "--unlimited-key" in refused.err
    assert not runs.exists()
    config.write_text(config.read_text().replace("[spend]", "[spend]\nunlimited_key = true"))
    allowed = eagletui("plan", str(config), "--json")
    assert allowed.code == 0
    assert any("You allowed that" in note for note in allowed.json["notes"])


def test_a_new_run_compares_its_key_with_its_own_worst_case_and_its_largest_request(
    make_config: MakeConfig, runs: Path, start_provider: StartProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(limit_usd: str, *, is_new: bool = True) -> list[str]:
        provider = start_provider(key_limit_pico=usd_to_pico(limit_usd))
        path = make_config()
        text = path.read_text().replace(
            'kind = "embedded"\nbackend = "replay"',
            f'kind = "openrouter"\nbase_url = "{provider.api_url}"\napi_key_command = "echo a-key"',
        )
        path.write_text(text.replace("[model]", f'[model]\ntokenizer = "{tokenizer_dir()}"'))
        return require_key(load_config(path), is_new=is_new)

    enough = "0.005"  # for four answers of 96 tokens, and far below the cap
    assert any("it would pause with key_limit" in note for note in found(enough, is_new=False))
    assert not any("it would pause with key_limit" in note for note in found(enough))
    with pytest.raises(ConfigError, match="less than one request of at most"):
        found("0.00001")
    monkeypatch.setattr(key_check, "COUNTED", 3)
    assert any("it would pause with key_limit" in note for note in found(enough)), "not counted: the cap says it"
    with pytest.raises(ConfigError, match="less than one request of at most"):
        found("0.00001")


def test_prompts_given_for_a_config_are_told_apart(eagletui: Command, make_config: MakeConfig, runs: Path) -> None:
    prompts = make_config().parent / "prompts.jsonl"
    ended = eagletui("plan", str(prompts))
    assert ended.code == 2
    assert 'expected a TOML config; it names the prompts: [prompts] path = "prompts.jsonl"' in ended.err
