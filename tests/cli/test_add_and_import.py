"""`add` and `import`: more prompts, and answers that another server gave."""

import json
from pathlib import Path
from typing import Any

import pytest

from eagletui.cli.create import create_run, read_config
from eagletui.config.sections import PromptsSection
from eagletui.embedded.data import tokenizer_dir
from eagletui.ingest.adding import add_to
from eagletui.ingest.census import Census
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.writer_ingest import IngestWriter
from eagletui.runs.claims import Claim
from eagletui.runs.folder import RunFolder
from eagletui.tokens.load import load_tokenizer
from tests.cli.conftest import Command, MakeConfig


def write(path: Path, *records: dict[str, Any]) -> str:
    path.write_text("\n".join(json.dumps(record) for record in records) + "\n")
    return str(path)


def test_prompts_are_added_once_and_imported_ids_answer_them_for_nothing(
    eagletui: Command, make_config: MakeConfig, runs: Path, tmp_path: Path
) -> None:
    assert eagletui("run", str(make_config(prompts=2)), "--headless").code == 0
    more = [{"id": f"m{n}", "prompt": f"More {n}?"} for n in range(3)]
    ended = eagletui("add", "small", write(tmp_path / "more.jsonl", *more), "--json")
    assert ended.json == {"run": "small", "added": 3, "known": 0, "by_dataset": {"more": 3}}
    more.append({"id": "m3", "prompt": "More 3?"})
    again = eagletui("add", "small", write(tmp_path / "more.jsonl", *more))
    assert "Added 1 sample to small; 3 samples it had already." in again.err
    assert "eagletui run small" in again.err
    bad = eagletui("add", "small", write(tmp_path / "bad.jsonl", {"id": "b"}))
    assert bad.code == 2
    assert "bad.jsonl:1: found an object with the keys id" in bad.err

    tokenizer = load_tokenizer(tokenizer_dir())
    end = tokenizer.vocabulary.specials["<|im_end|>"]
    split = [tokenizer.encode("Jo")[0], tokenizer.encode("sh")[0], end]  # canonically one token
    recorded: list[dict[str, Any]] = [
        {"id": "m0", "output_ids": split, "finish_reason": "stop"},
        {"id": "own", "prompt": "Who?", "output_ids": split, "prompt_ids": [end], "finish_reason": "stop"},
    ]
    wrong = write(tmp_path / "wrong.jsonl", recorded[0], {"id": "nowhere", "output_ids": [end]})
    refused = eagletui("import", "small", wrong)
    assert refused.code == 2
    assert "wrong.jsonl:2: field id: found nowhere, expected a conversation beside it" in refused.err
    path = write(tmp_path / "ids.jsonl", *recorded)
    assert eagletui("import", "small", path, "--json").json == {"run": "small", "imported": 2, "new": 1, "known": 0}
    assert eagletui("import", "small", path, "--json").json == {"run": "small", "imported": 0, "new": 0, "known": 2}
    with LedgerReader(RunFolder(runs / "small").ledger_path) as reader:
        snapshot = reader.snapshot()
        found = [reader.sample(key) for key in ("m0", "own")]
    assert (snapshot.states["tokenized"], snapshot.states["queued"]) == (4, 3)
    for sample in found:
        assert sample is not None
        assert sample.tokens is not None
        assert list(sample.tokens.output_ids or ()) == split
        assert (sample.row.evidence, sample.row.usability, sample.row.cost_pico) == ("served", "usable", 0)
        assert len(sample.tokens.spans) == 1
    assert list(found[1].tokens.prompt_ids or ()) == [end]  # type: ignore[union-attr]


def test_prompts_that_went_into_a_run_which_was_just_replaced_are_not_said_to_be_there(
    eagletui: Command, make_config: MakeConfig, made_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew = read_config(str(make_config(temperature=0.5)))

    def replaced_meanwhile(section: PromptsSection, writer: IngestWriter) -> tuple[Census, int]:
        with Claim() as claim:
            create_run(anew, claim, replaces=True)
        return add_to(section, writer)

    monkeypatch.setattr("eagletui.ingest.adding.add_to", replaced_meanwhile)
    ended = eagletui("add", "small", write(tmp_path / "more.jsonl", {"prompt": "One more?"}))
    assert ended.code == 2
    assert "Run small was made anew while prompts were added, without them: add them again." in ended.err
