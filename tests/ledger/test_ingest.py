"""Prompts become queued samples, once, or not at all."""

from pathlib import Path

import pytest

from eagletui.core.chat import Message, Prompt, ToolCall
from eagletui.core.errors import LedgerError
from eagletui.ledger.orders import NewPrompt
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import prompt, queue, sql
from tests.ledger.truth import counters, recount


def test_samples_are_queued_in_the_order_of_the_file(writer: LedgerWriter) -> None:
    queue(writer, "c", "a", "b")
    assert [sample.key for sample in writer.claim(10)] == ["c", "a", "b"]


def test_a_conversation_comes_back_as_it_went_in(writer: LedgerWriter) -> None:
    conversation = Prompt(
        (
            Message("system", "Reply in 日本語 \x1b[31m"),
            Message("user", "weather?"),
            Message("assistant", None, reasoning="hm", tool_calls=(ToolCall("id1", "get", '{"a":1.0}'),)),
            Message("tool", "rain", tool_call_id="id1", name="get"),
        ),
        tools_json='[{"type":"function"}]',
    )
    writer.add_source("a.jsonl", "00", 1)
    writer.add_prompts([NewPrompt("k", "prose", conversation, "weather?", turns=(1,))])
    assert writer.claim(1)[0].prompt == conversation


@pytest.mark.parametrize(
    ("answers", "turns", "keys"),
    [
        (1, (0,), ["k"]),
        (2, (0,), ["k.a0", "k.a1"]),
        (1, (1, 3), ["k.t1", "k.t3"]),
        (2, (1, 3), ["k.a0.t1", "k.a0.t3", "k.a1.t1", "k.a1.t3"]),
    ],
)
def test_keys_name_answer_and_turn_only_where_there_are_several(
    writer: LedgerWriter, path: Path, answers: int, turns: tuple[int, ...], keys: list[str]
) -> None:
    writer.add_source("a.jsonl", "00", len(keys))
    assert writer.add_prompts([prompt("k", answers=answers, turns=turns)]) == len(keys)
    assert sql(path, "SELECT sample_key FROM samples ORDER BY id") == [(key,) for key in keys]
    first = [key for key in keys if len(turns) == 1 or key.endswith(f".t{turns[0]}")]
    assert [sample.key for sample in writer.claim(10)] == first


def test_adding_the_same_prompts_again_adds_nothing(writer: LedgerWriter, path: Path) -> None:
    queue(writer, "a", "b")
    source = writer.add_source("again.jsonl", "another hash", 3)
    assert writer.add_prompts([prompt("a"), prompt("b"), prompt("c")], source) == 1
    assert sql(path, "SELECT sample_key FROM samples ORDER BY id") == [("a",), ("b",), ("c",)]


def test_the_same_file_is_one_source(writer: LedgerWriter) -> None:
    assert writer.add_source("a.jsonl", "00", 1) == writer.add_source("copy of a.jsonl", "00", 1)


def test_a_failed_ingestion_leaves_nothing(writer: LedgerWriter, path: Path) -> None:
    class BadLineError(Exception):
        pass

    def ingest_and_fail() -> None:
        with writer.transaction():
            source = writer.add_source("a.jsonl", "00", 2)
            writer.add_prompts([prompt("a")], source)
            raise BadLineError

    with pytest.raises(BadLineError):
        ingest_and_fail()
    assert sql(path, "SELECT count(*) FROM samples") == [(0,)]
    assert sql(path, "SELECT count(*) FROM sources") == [(0,)]
    assert counters(path) == recount(path) == {}


def test_two_prompts_that_would_share_a_sample_key_are_refused_by_name(writer: LedgerWriter, path: Path) -> None:
    queue(writer, "k.a1")
    with pytest.raises(LedgerError, match=r"prompt 'k' gives a sample key that another prompt has"):
        writer.add_prompts([prompt("k", answers=2)])
    assert sql(path, "SELECT prompt_key FROM prompts") == [("k.a1",)]


def test_a_refused_prompt_inside_a_larger_ingestion_undoes_only_itself(writer: LedgerWriter, path: Path) -> None:
    queue(writer, "k.a1")
    with writer.transaction():
        writer.add_prompts([prompt("first")])
        with pytest.raises(LedgerError):
            writer.add_prompts([prompt("second"), prompt("k", answers=2)])
    assert sql(path, "SELECT prompt_key FROM prompts ORDER BY id") == [("k.a1",), ("first",)]
