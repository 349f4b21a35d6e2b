"""Ingestion: all or nothing, every fault with its line, stable keys, limits, and flat memory."""

import contextlib
import json
import multiprocessing
import os
import shutil
import sqlite3
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.config.sections import PromptsSection
from eagletui.core.chat import Message, Prompt
from eagletui.core.errors import InputError, PromptFileError
from eagletui.core.fidelity import CANARIES
from eagletui.core.text import clean_line
from eagletui.ingest.adding import ingest
from eagletui.ingest.census import chosen_prompts, take_census
from eagletui.ledger.filters import SampleFilter
from eagletui.ledger.orders import NewPrompt
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.triggers import trigger_statements
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_ingest import IngestWriter
from eagletui.prompts.canaries import Canaries
from eagletui.prompts.preview import PREVIEW_CHARACTERS, preview
from eagletui.prompts.seen import Place, SeenKeys
from tests.empty_ledger import empty_ledger


def _file(folder: Path, name: str, *records: dict[str, Any] | str) -> Path:
    path = folder / name
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def _section(*paths: Path, **changes: Any) -> PromptsSection:
    return PromptsSection(path=list(paths), **changes)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    return empty_ledger(path)


def _keys(ledger: Path) -> list[str]:
    with LedgerReader(ledger) as reader:
        return [row.sample_key for row in reader.rows(reader.sample_ids(SampleFilter()))]


def test_several_files_come_in_order_with_figures_per_data_set(tmp_path: Path, ledger: Path) -> None:
    one = _file(tmp_path, "glaive.jsonl", {"id": "g1", "prompt": "a"}, {"id": "g2", "prompt": "b"})
    two = _file(tmp_path, "code.jsonl", {"id": 7, "prompt": "c"}, {"id": 8, "prompt": "d", "dataset": "glaive"})
    with IngestWriter(ledger) as writer:
        counted = ingest(_section(one, two), writer)
    assert _keys(ledger) == ["g1", "g2", "7", "8"]
    assert dict(counted.by_dataset) == {"glaive": 3, "code": 1}
    assert (counted.prompts, counted.samples) == (4, 4)
    assert take_census(_section(one, two, limit=1)).datasets == {"glaive", "code"}, "also what the limit leaves out"


def test_answers_and_turns_multiply_and_name_the_samples(tmp_path: Path, ledger: Path) -> None:
    turns = [("user", "u1"), ("assistant", "a1"), ("user", "u2"), ("assistant", "a2")]
    path = _file(tmp_path, "c.jsonl", {"id": "c", "messages": [{"role": r, "content": t} for r, t in turns]})
    with IngestWriter(ledger) as writer:
        counted = ingest(_section(path, turns="all", answers=2), writer)
    assert counted.samples == 4
    assert sorted(_keys(ledger)) == ["c.a0.t0", "c.a0.t1", "c.a1.t0", "c.a1.t1"]


def test_the_first_turn_is_asked_alone_and_later_ones_wait_for_its_answer(tmp_path: Path, ledger: Path) -> None:
    turns = [("user", "u1"), ("assistant", "a1"), ("user", "u2"), ("assistant", "a2")]
    path = _file(tmp_path, "c.jsonl", {"id": "c", "messages": [{"role": r, "content": t} for r, t in turns]})
    with LedgerWriter(ledger) as writer:
        ingest(_section(path, turns="all"), writer)
        asked = [[message.content for message in sample.prompt.messages] for sample in writer.claim(10)]
    assert asked == [["u1"]]


def test_a_spread_limit_takes_prompts_from_everywhere_in_the_files(tmp_path: Path, ledger: Path) -> None:
    first = _file(tmp_path, "a.jsonl", *({"id": f"a{n}", "prompt": "x"} for n in range(6)))
    second = _file(tmp_path, "b.jsonl", *({"id": f"b{n}", "prompt": "x"} for n in range(4)))
    with IngestWriter(ledger) as writer:
        counted = ingest(_section(first, second, limit=5, pick="spread"), writer)
    assert _keys(ledger) == ["a1", "a3", "a5", "b1", "b3"]
    assert (counted.prompts, counted.samples) == (5, 5)


def test_one_bad_line_anywhere_means_nothing_is_ingested(tmp_path: Path, ledger: Path) -> None:
    good = _file(tmp_path, "good.jsonl", *({"id": f"g{n}", "prompt": "a"} for n in range(3)))
    bad = _file(tmp_path, "bad.jsonl", {"prompt": "b"}, "{broken")
    with IngestWriter(ledger) as writer, pytest.raises(PromptFileError) as caught:
        ingest(_section(good, bad), writer)
    assert f"{bad}:2: found broken JSON" in str(caught.value)
    assert _keys(ledger) == []


def test_the_first_twenty_problems_are_shown_and_the_rest_counted(tmp_path: Path) -> None:
    path = _file(tmp_path, "bad.jsonl", *({"prompt": n} for n in range(50)))
    with pytest.raises(PromptFileError) as caught:
        take_census(_section(path))
    assert [problem.line for problem in caught.value.problems] == list(range(1, 21))
    assert caught.value.total == 50
    assert "... and 30 more" in str(caught.value)


def test_a_duplicate_id_names_both_lines_also_across_files(tmp_path: Path) -> None:
    one = _file(tmp_path, "one.jsonl", {"id": "x", "prompt": "a"}, {"id": "x", "prompt": "b"})
    two = _file(tmp_path, "two.jsonl", {"prompt": "c"}, {"id": "x", "prompt": "d"})
    with pytest.raises(PromptFileError) as caught:
        take_census(_section(one, two))
    first, second = caught.value.problems
    assert str(first) == f'{one}:2: field id: found "x", which {one}:1 has too, expected an id of its own'
    assert str(second) == f'{two}:2: field id: found "x", which {one}:1 has too, expected an id of its own'


def test_the_same_prompt_without_ids_is_asked_once_and_said(tmp_path: Path, ledger: Path) -> None:
    path = _file(
        tmp_path, "p.jsonl", {"prompt": "a"}, {"prompt": "b"}, {"messages": [{"role": "user", "content": "a"}]}
    )
    with IngestWriter(ledger) as writer:
        counted = ingest(_section(path), writer)
    assert (counted.samples, counted.repeated) == (2, 1)
    assert counted.sentences() == ["1 prompt without an id repeats an earlier one and is asked once."]
    assert len(_keys(ledger)) == 2


def test_dropped_answers_are_said(tmp_path: Path) -> None:
    talk = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
    counted = take_census(_section(_file(tmp_path, "p.jsonl", talk)))
    assert counted.sentences() == ["1 given answer in the files is not used: the model answers anew."]


def test_a_file_listed_twice_is_a_problem(tmp_path: Path) -> None:
    path = _file(tmp_path, "p.jsonl", {"prompt": "a"})
    with pytest.raises(PromptFileError, match="listed twice"):
        take_census(_section(path, path))


@pytest.mark.parametrize(("limit", "samples"), [(1, 1), (2, 2), (3, 3), (5, 5), (100, 8)])
def test_the_limit_is_kept_to_the_sample(tmp_path: Path, ledger: Path, limit: int, samples: int) -> None:
    turns = [("user", "u"), ("assistant", "a"), ("user", "v")]
    talk = [{"role": role, "content": text} for role, text in turns]
    path = _file(tmp_path, "p.jsonl", {"id": "a", "messages": talk}, {"id": "b", "messages": talk})
    with IngestWriter(ledger) as writer:
        counted = ingest(_section(path, turns="all", answers=2, limit=limit), writer)
    assert counted.samples == samples
    assert len(_keys(ledger)) == samples


def test_a_bad_line_past_the_limit_is_still_a_problem(tmp_path: Path) -> None:
    path = _file(tmp_path, "p.jsonl", {"prompt": "a"}, {"prompt": ""})
    with pytest.raises(PromptFileError):
        take_census(_section(path, limit=1))


def test_ingesting_again_adds_nothing(tmp_path: Path, ledger: Path) -> None:
    path = _file(tmp_path, "p.jsonl", {"prompt": "a"}, {"id": "x", "prompt": "b"})
    with IngestWriter(ledger) as writer:
        ingest(_section(path), writer)
        ingest(_section(path), writer)
    assert len(_keys(ledger)) == 2


def test_what_is_counted_in_bulk_is_what_rows_say(tmp_path: Path, ledger: Path) -> None:
    first = _file(tmp_path, "a.jsonl", *({"id": f"a{n}", "prompt": "x"} for n in range(3)))
    second = _file(tmp_path, "b.jsonl", *({"id": f"b{n}", "prompt": "x", "dataset": "other"} for n in range(2)))
    with IngestWriter(ledger) as writer:
        ingest(_section(first), writer)
        ingest(_section(first, second), writer)
    with LedgerReader(ledger) as reader:
        snapshot = reader.snapshot()
    assert snapshot.samples == 5
    with sqlite3.connect(ledger) as connection:
        told = connection.execute(
            "SELECT scope, value FROM counters WHERE kind = 'state' AND name = 'queued'"
        ).fetchall()
        triggers = connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone()
        assert sorted(told) == [("a", 3), ("other", 2)]
        assert triggers == (len(list(trigger_statements())),)
        assert connection.execute("SELECT path, samples FROM sources ORDER BY id").fetchall() == [
            (str(first), 6),
            (str(second), 2),
        ]
    connection.close()


def test_previews_are_one_clean_line_of_the_last_question(tmp_path: Path, ledger: Path) -> None:
    talk = [{"role": "user", "content": "first"}, {"role": "user", "content": "ask\x1b]0;owned\x07 this\nnow"}]
    path = _file(tmp_path, "p.jsonl", {"id": "a", "messages": talk})
    with IngestWriter(ledger) as writer:
        ingest(_section(path), writer)
    with LedgerReader(ledger) as reader:
        (row,) = reader.rows(reader.sample_ids(SampleFilter()))
    assert row.preview == "ask this now"


@given(
    st.lists(
        st.sampled_from(["word ", "x", "\n", "  ", "\r\n", "\t", "e\u0301\u0301\u0301\u0301", "\x1b[31m", "\x1b]0;t"])
    ),
    st.sampled_from(["", "y" * 500, " " * 1_200, "\n " * 700, "\u200b" * 1_500, "z" * 1_500]),
    st.sampled_from(["", "\x07end", "\nend " * 300]),
)
def test_the_preview_of_a_long_text_is_that_of_the_whole(begins: list[str], filler: str, ends: str) -> None:
    text = "".join(begins) + filler + ends
    assert preview(Prompt((Message("user", text),))) == clean_line(text, newline=" ")[:PREVIEW_CHARACTERS]


def test_the_indexes_of_a_bulk_are_those_of_the_schema(tmp_path: Path, ledger: Path) -> None:
    def indexes() -> list[tuple[str, str]]:
        with contextlib.closing(sqlite3.connect(ledger)) as connection:
            return connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'index' ORDER BY rowid"
            ).fetchall()

    before = sorted(indexes(), key=str)
    path = _file(tmp_path, "a.jsonl", {"id": "a", "prompt": "x"}, {"id": "b", "prompt": "y"})
    with IngestWriter(ledger) as writer:
        ingest(_section(path), writer)
    assert sorted(indexes(), key=str) == before
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_canaries_stand_among_the_prompts_once_in_every_so_many_and_where_the_seed_says(
    tmp_path: Path, ledger: Path
) -> None:
    path = _file(tmp_path, "p.jsonl", *({"id": f"p{n}", "prompt": "x"} for n in range(40)))
    canaries = Canaries(("What is 17 * 23?", "Name a prime."), every=10, seed=3)
    with IngestWriter(ledger) as writer:
        counted = ingest(_section(path, answers=2), writer, canaries=canaries)
    keys = [key for key in _keys(ledger) if not key.endswith(".a1")]
    places = [place - rank for rank, place in enumerate(at for at, key in enumerate(keys) if key.startswith("canary"))]
    assert [(place - 1) // 10 for place in places] == [0, 1, 2, 3]
    assert (counted.samples, counted.by_dataset[CANARIES]) == (84, 4)
    with LedgerReader(ledger) as reader:
        found = [reader.sample(f"canary-00000{number}") for number in range(1, 5)]
    asked = [sample.prompt for sample in found if sample]
    assert [prompt.messages[0].content for prompt in asked] == ["What is 17 * 23?", "Name a prime."] * 2
    assert {prompt.sampling_json for prompt in asked} == {'{"temperature": 0}'}
    again = [item.record.key for item in chosen_prompts(_section(path), canaries)]
    assert again == [key.removesuffix(".a0") for key in keys]
    other = Canaries(canaries.texts, every=10, seed=4)
    assert [item.record.key for item in chosen_prompts(_section(path), other)] != again


def test_an_id_that_canaries_use_is_a_problem(tmp_path: Path) -> None:
    path = _file(tmp_path, "p.jsonl", {"id": "canary-000001", "prompt": "a"})
    with pytest.raises(PromptFileError, match="canaries have these"):
        take_census(_section(path), canaries=Canaries(("Hm?",), every=1, seed=0))


def test_files_read_in_a_process_of_their_own_give_the_same_run_and_the_same_problems(
    tmp_path: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    first = _file(tmp_path, "a.jsonl", *({"id": f"a{n}", "prompt": "x", "dataset": f"d{n % 2}"} for n in range(700)))
    second = _file(tmp_path, "b.jsonl", *({"prompt": f"y {n % 3}"} for n in range(5)))
    bad = _file(tmp_path, "bad.jsonl", {"id": "a1", "prompt": "x"}, "{broken")
    other = tmp_path / "other.sqlite"
    shutil.copyfile(ledger, other)
    with IngestWriter(other) as writer:
        near = ingest(_section(first, second, answers=2), writer)
    monkeypatch.setattr("eagletui.ingest.adding.APART_BYTES", 1)
    with IngestWriter(ledger) as writer:
        with pytest.raises(PromptFileError) as caught:
            ingest(_section(first, bad), writer)
        assert _keys(ledger) == []
        apart = ingest(_section(first, second, answers=2), writer)
    assert [problem.line for problem in caught.value.problems] == [1, 2]
    assert apart == near
    wanted = "SELECT prompt_key, dataset, body, preview, sources.path, sha256, sources.samples FROM prompts"
    found = []
    for path in (ledger, other):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            found.append(connection.execute(f"{wanted} JOIN sources ON sources.id = source_id ORDER BY 1").fetchall())
    assert found[0] == found[1]


def test_a_reader_that_is_killed_leaves_nothing_and_is_named(
    tmp_path: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KillingWriter(IngestWriter):
        def add_prompts(self, batch: Sequence[NewPrompt], source_id: int | None = None) -> int:
            for process in multiprocessing.active_children():
                process.kill()
            return super().add_prompts(batch, source_id)

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("eagletui.ingest.adding.APART_BYTES", 1)
    path = _file(tmp_path, "a.jsonl", *({"id": f"a{n}", "prompt": "x" * 100} for n in range(20_000)))
    with KillingWriter(ledger) as writer, pytest.raises(InputError, match="was killed by signal 9"):
        ingest(_section(path), writer)
    assert _keys(ledger) == []


def test_a_reader_that_fails_is_not_said_to_have_been_killed(
    tmp_path: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("eagletui.ingest.adding.APART_BYTES", 1)
    path = _file(tmp_path, "a.jsonl", {"id": "a", "prompt": "x"})
    faulty = Canaries(("x",), 0, 0)
    with IngestWriter(ledger) as writer, pytest.raises(InputError, match=r"by a fault \(exit code 1\)"):
        ingest(_section(path), writer, canaries=faulty)
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert _keys(ledger) == []


def test_memory_stays_flat_over_the_size_of_a_file(tmp_path: Path) -> None:
    filler = "x" * 2000
    path = tmp_path / "big.jsonl"
    with path.open("w") as file:
        for number in range(10_000):
            file.write(f'{{"id": "{number}", "prompt": "{filler}"}}\n')
    tracemalloc.start()
    counted = take_census(_section(path))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counted.samples == 10_000
    assert peak_bytes < 2_000_000 < path.stat().st_size / 10


@given(st.lists(st.text(max_size=3), max_size=3000))
def test_seen_keys_agree_with_a_dictionary(keys: list[str]) -> None:
    seen, known = SeenKeys(), dict[str, Place]()
    for line, key in enumerate(keys, start=1):
        place = Place(line % 5, line, line % 2 == 0)
        assert seen.first(key, place) == known.get(key)
        known.setdefault(key, place)


def test_seen_keys_grow_and_forget_nothing() -> None:
    seen = SeenKeys()
    for number in range(20_000):
        assert seen.first(f"k{number}", Place(3, number + 1, True)) is None
    for number in range(0, 20_000, 97):
        assert seen.first(f"k{number}", Place(9, 9, False)) == Place(3, number + 1, True)
