"""`plan --probe`: what a few bought answers show, and what they may cost."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from eagletui.cli import probe as probing
from eagletui.cli.create import read_config
from eagletui.cli.probe import MAX_TOKENS, probe_config
from eagletui.config.sampling import SamplingOverride
from eagletui.core.money import PICO
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.folder import RunFolder
from eagletui.runs.workers import is_alive
from tests.cli.conftest import Command, MakeConfig, eagletui, make_config, runs

__all__ = ["eagletui", "make_config", "runs"]


def books(folder: RunFolder) -> list[dict[str, object]]:
    """What the embedded provider of a run has billed."""
    lines = [json.loads(line) for line in (folder.provider_dir / "books.jsonl").read_text().splitlines()]
    return [line for line in lines if "cost_pico" in line]


def test_a_probe_buys_at_most_n_answers_spread_over_all_endpoints_and_tells_what_they_are_worth(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    ended = eagletui("plan", str(make_config(prompts=40)), "--probe", "9", "--json")
    assert ended.code == 0, ended.err
    probe = ended.json["probe"]
    folder = RunFolder(runs / "small-probe")
    billed = books(folder)
    assert (probe["run"], probe["requests"], len(billed)) == ("small-probe", 9, 9)
    assert Decimal(probe["spent_usd"]) * PICO == sum(Decimal(str(row["cost_pico"])) for row in billed)
    assert probe["held_usd"] == "0"
    by_tag = {endpoint["tag"]: endpoint for endpoint in probe["endpoints"]}
    assert {tag: (one["requests"], one["answers"]) for tag, one in by_tag.items()} == {
        "embedded/logprobs": (3, 3),
        "embedded/stream": (3, 3),
        "embedded/text": (3, 3),
    }
    assert [by_tag[f"embedded/{name}"]["rung"] for name in ("logprobs", "stream")] == ["logprobs", "streamed"]
    assert by_tag["embedded/text"]["rung"] in ("counted", "conflict")
    stream = by_tag["embedded/stream"]
    cost = sum(Decimal(str(row["cost_pico"])) for row in billed if row["provider"] == "embedded/stream")
    assert Decimal(stream["usd_per_million_usable"]) == int(cost * 1_000_000 / stream["usable_tokens"]) / Decimal(PICO)
    assert by_tag["embedded/logprobs"]["drift"] == {"tokens": 0, "percent": 0.0}
    assert stream["tokens_per_s"] > 0
    assert (stream["prompt_arrived"], stream["tool_arguments"]) == (True, "-")
    assert stream["whitespace"].startswith("kept, from ")
    assert stream["prompt_tokens"]["counted"] == stream["prompt_tokens"]["billed"] > 0
    assert stream["profile"]["profile"] == "kept"
    assert "auto needs 20" in stream["profile"]["reason"]
    assert ended.json["learned_from"] == ["small-probe"]
    likely = {name: Decimal(usd) for name, usd in ended.json["likely_usd"].items()}
    assert likely["low"] < likely["likely"] < likely["high"] <= Decimal(ended.json["spend_usd"]["worst_case"])
    with LedgerReader(folder.ledger_path) as reader:
        assert reader.run().state == "done"
        assert reader.books().settled_pico == sum(int(str(row["cost_pico"])) for row in billed)
    assert is_alive(folder, "engine") is None
    assert is_alive(folder, "provider") is None


def test_every_probe_is_a_run_of_its_own_and_the_planned_run_is_not_made(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    config = str(make_config())
    for name in ("small-probe", "small-probe-2"):
        ended = eagletui("plan", config, "--probe", "1")
        assert ended.code == 0, ended.err
        assert f"in the probe run {name}" in ended.out
    assert sorted(path.name for path in runs.iterdir()) == ["small-probe", "small-probe-2"]


def test_a_sample_is_asked_once_so_that_failures_do_not_buy_more_requests(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    config = make_config(faults='[[fault]]\nkind = "http_502"\nmatch = { endpoint = "embedded/stream" }\n')
    ended = eagletui("plan", str(config), "--probe", "3", "--json")
    assert ended.code == 1
    by_tag = {endpoint["tag"]: endpoint for endpoint in ended.json["probe"]["endpoints"]}
    assert ended.json["probe"]["requests"] == 3
    assert by_tag["embedded/stream"]["answers"] == 0
    assert sum(by_tag["embedded/stream"]["failures"].values()) == 1
    assert by_tag["embedded/stream"]["usd_per_million_usable"] is None


def test_the_cap_of_the_config_holds_for_a_probe(eagletui: Command, make_config: MakeConfig, runs: Path) -> None:
    # One request is bounded by about 0.0004 USD: two fit under the cap, and nobody may go on beyond it.
    config = str(make_config(prompts=30, cap="0.0009", stop_at="0.0009", max_in_flight=1))
    ended = eagletui("plan", config, "--probe", "30", "--json")
    assert ended.code == 3, ended.err
    assert Decimal(ended.json["probe"]["spent_usd"]) <= Decimal("0.0009")
    assert sum(int(str(row["cost_pico"])) for row in books(RunFolder(runs / "small-probe"))) <= 0.0009 * PICO


def test_a_format_that_does_not_fit_is_refused_before_the_first_request(
    eagletui: Command, make_config: MakeConfig, runs: Path
) -> None:
    config = make_config()
    wrong = config.with_name("wrong.toml")
    wrong.write_text(
        'name = "wrong"\ntitle = "Wrong"\nstate = "from documentation"\nsource = "a test"\n'
        'specials = ["<|im_end|>", "<|im_start|>"]\n\n[end]\nstop = "<|im_start|>"\n'
    )
    config.write_text(config.read_text().replace('format = "smollm2"', f'format = "{wrong}"'))
    ended = eagletui("plan", str(config), "--probe", "3", "--json")
    assert ended.code == 2
    assert ended.json["ok"] is False
    assert "does not fit the tokenizer" in ended.json["refusals"][0]
    assert "eagletui audit" in ended.json["refusals"][0]
    assert not runs.exists()
    assert eagletui("run", str(config), "--headless").code == 2
    assert not runs.exists() or not list(runs.iterdir())


def test_a_probe_asks_for_short_answers_and_leaves_out_what_only_a_run_needs(
    make_config: MakeConfig, runs: Path
) -> None:
    config = read_config(str(make_config()))
    sampling = config.sampling.model_copy(
        update={
            "max_tokens": 100_000,
            "overrides": {"long": SamplingOverride(max_tokens=50_000), "short": SamplingOverride(max_tokens=64)},
        }
    )
    small = probe_config(config.model_copy(update={"sampling": sampling}), 7)
    assert small.sampling.drawn_for("any").max_tokens == MAX_TOKENS
    assert small.sampling.drawn_for("long").max_tokens == MAX_TOKENS
    assert small.sampling.drawn_for("short").max_tokens == 64
    assert (small.prompts.limit, small.pace.max_attempts, small.pace.max_in_flight) == (7, 1, 7)
    assert (small.extract.when, small.check.on_breach, small.run.name) == ("off", "warn", "small-probe")
    assert (small.prompts.pick, small.spend) == ("spread", config.spend)


def test_a_probe_does_not_wait_for_late_bills_and_leaves_their_holds(
    eagletui: Command, make_config: MakeConfig, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "PATIENCE_S", 0.2)
    faults = '[[fault]]\nkind = "disconnect_before_headers"\nmatch = { endpoint = "embedded/stream" }\n'
    config = make_config(faults=faults)
    config.write_text(config.read_text().replace("[0.1, 0.2, 0.4, 0.8]", "[900.0]"))
    ended = eagletui("plan", str(config), "--probe", "3")
    assert ended.code == 1, ended.err
    assert "To ask what they cost: eagletui run small-probe" in ended.err
    assert "of requests whose costs are not known yet" in ended.out
    folder = RunFolder(runs / "small-probe")
    with LedgerReader(folder.ledger_path) as reader:
        books = reader.books()
        assert books.open_pico == books.unsettled_pico > 0
        assert books.unattributed_pico == 0
    assert is_alive(folder, "engine") is None
    assert is_alive(folder, "provider") is None
