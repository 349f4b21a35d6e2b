"""Prompt files: every shape people have, stable keys, turns, and faults with their lines."""

import gzip
import json
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.chat import Message, Prompt, ToolCall, turn_starts, until_turn
from eagletui.core.errors import Problem
from eagletui.prompts.fields import Fault
from eagletui.prompts.jsonl import PromptFile, PromptRecord
from eagletui.prompts.key import content_key
from eagletui.prompts.messages import read_messages


def _write(folder: Path, *lines: object, name: str = "b1_glaive.jsonl") -> Path:
    path = folder / name
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    return path


def _records(path: Path, turns: Literal["last", "all"] = "last") -> list[PromptRecord]:
    items = list(PromptFile(path, turns))
    assert [item for item in items if isinstance(item, Problem)] == []
    return [item for item in items if isinstance(item, PromptRecord)]


def _problem(folder: Path, line: object) -> Problem:
    (item,) = PromptFile(_write(folder, line), "last")
    assert isinstance(item, Problem)
    return item


USER = Message(role="user", content="Hi")


def test_a_plain_prompt_becomes_one_user_turn(tmp_path: Path) -> None:
    (record,) = _records(_write(tmp_path, {"id": "a", "prompt": "Hi"}))
    assert record.prompt == Prompt((USER,))
    assert (record.key, record.has_id, record.dataset, record.turns, record.line) == ("a", True, "b1_glaive", (0,), 1)


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [{"role": "user", "content": "Hi"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}]},
        {"conversations": [{"from": "human", "value": "Hi"}]},
        {"conversations": [{"role": "user", "content": "Hi"}]},
        {"conversations": [{"from": "user", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
        {"prompt": "ignored, the messages tell more", "messages": [{"role": "user", "content": "Hi"}]},
    ],
)
def test_every_shape_reads_to_the_same_conversation_and_the_same_key(tmp_path: Path, record: dict[str, object]) -> None:
    (read,) = _records(_write(tmp_path, record))
    assert read.prompt == Prompt((USER,))
    assert read.key == content_key(Prompt((USER,)))


def test_tool_calls_results_and_reasoning_are_kept(tmp_path: Path) -> None:
    arguments = '{"city":  "Bern"}'
    (record,) = _records(
        _write(
            tmp_path,
            {
                "messages": [
                    {"role": "developer", "content": "Be brief."},
                    {"role": "user", "content": "Weather?"},
                    {
                        "role": "assistant",
                        "content": None,
                        "reasoning_content": "I must ask.",
                        "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": arguments}}],
                    },
                    {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "rain"},
                ]
            },
        )
    )
    call = ToolCall(id="c1", name="weather", arguments=arguments)
    assert record.prompt.messages[2] == Message("assistant", None, reasoning="I must ask.", tool_calls=(call,))
    assert record.prompt.messages[3] == Message("tool", "rain", tool_call_id="c1", name="weather")
    assert record.turns == (1,)


def test_sharegpt_function_calls_and_observations_are_tool_turns(tmp_path: Path) -> None:
    (record,) = _records(
        _write(
            tmp_path,
            {
                "system": "Use tools.",
                "tools": '[{"name": "weather"}]',
                "conversations": [
                    {"from": "human", "value": "Weather?"},
                    {"from": "function_call", "value": '{"name": "weather", "arguments": {"city": "Bern"}}'},
                    {"from": "observation", "value": "rain"},
                    {"from": "gpt", "value": "It rains."},
                ],
            },
        )
    )
    roles = [message.role for message in record.prompt.messages]
    assert roles == ["system", "user", "assistant", "tool"]
    assert record.prompt.messages[2].tool_calls == (ToolCall(None, "weather", '{"city": "Bern"}'),)
    assert record.prompt.tools_json == '[{"name": "weather"}]'
    assert record.dropped == 1


def test_tool_definitions_stay_json_text_byte_for_byte(tmp_path: Path) -> None:
    tools = '[ {"type":"function", "function": {"name":"f","x": 1.10}} ]'
    (record,) = _records(_write(tmp_path, f'{{"prompt": "Hi", "tools": {tools}}}'))
    assert record.prompt.tools_json == tools


def test_the_data_set_of_a_record_wins_over_the_files_name(tmp_path: Path) -> None:
    path = _write(tmp_path, {"prompt": "a", "dataset": "mine"}, {"prompt": "b"}, name="part.01.jsonl")
    assert [record.dataset for record in _records(path)] == ["mine", "part"]


def test_the_key_does_not_depend_on_how_the_json_was_written(tmp_path: Path) -> None:
    tight = '{"prompt":"caf\\u00e9","tools":[{"a":1}]}'
    loose = '{ "tools" : [ { "a" : 1 } ], "prompt" : "café" }'
    (one, two) = _records(_write(tmp_path, tight, loose))
    assert one.key == two.key
    assert len(one.key) == 24


def test_the_key_changes_with_role_text_and_tools() -> None:
    prompts = [
        Prompt((USER,)),
        Prompt((Message("user", "Hi "),)),
        Prompt((Message("system", "Hi"),)),
        Prompt((USER,), '[{"name": "f"}]'),
        Prompt((Message("user", "Hi", name="Ann"),)),
    ]
    assert len({content_key(prompt) for prompt in prompts}) == len(prompts)


CONVERSATION = {
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u1"},
        {"role": "assistant", "content": "a1"},
        {"role": "user", "content": "u2"},
        {"role": "assistant", "content": "a2"},
    ]
}


def test_last_drops_a_given_final_answer_and_counts_it(tmp_path: Path) -> None:
    (record,) = _records(_write(tmp_path, CONVERSATION))
    assert [message.content for message in record.prompt.messages] == ["s", "u1", "a1", "u2"]
    assert (record.turns, record.dropped) == ((1,), 1)


def test_all_answers_every_assistant_turn_and_a_final_question(tmp_path: Path) -> None:
    longer = {"messages": [*CONVERSATION["messages"], {"role": "user", "content": "u3"}]}
    (record,) = _records(_write(tmp_path, longer), "all")
    assert record.turns == (0, 1, 2)
    cuts = [[message.content for message in until_turn(record.prompt, turn).messages] for turn in record.turns]
    assert cuts == [["s", "u1"], ["s", "u1", "a1", "u2"], ["s", "u1", "a1", "u2", "a2", "u3"]]


def test_a_greeting_before_the_first_question_is_no_turn(tmp_path: Path) -> None:
    greeting = {"conversations": [{"from": "gpt", "value": "Hello"}, {"from": "human", "value": "Hi"}]}
    (record,) = _records(_write(tmp_path, greeting), "all")
    assert record.turns == (1,)


@given(st.lists(st.sampled_from(["system", "user", "assistant", "tool"]), min_size=1, max_size=12))
def test_a_turn_never_shows_the_model_its_own_answer(
    roles: list[Literal["system", "user", "assistant", "tool"]],
) -> None:
    prompt = Prompt(tuple(Message(role, "x") for role in roles))
    for turn in range(len(turn_starts(prompt))):
        cut = until_turn(prompt, turn)
        assert prompt.messages[: len(cut.messages)] == cut.messages
        assert not cut.messages or cut.messages[-1].role != "assistant"
        blocks = sum(
            1
            for index, message in enumerate(cut.messages)
            if message.role == "assistant" and (index == 0 or cut.messages[index - 1].role != "assistant")
        )
        assert blocks == turn


@pytest.mark.parametrize(
    ("line", "field", "found", "expected"),
    [
        ('{"prompt": "Hi"', None, "broken JSON", "one JSON object a line"),
        ('["Hi"]', None, "no object: turn the list", "one JSON object a line"),
        ('"Hi"', None, "no object", "one JSON object a line"),
        ('{"prompt": NaN}', None, "broken JSON", "one JSON object a line"),
        ('{"prompt": "\\ud800"}', "prompt", "the lone surrogate U+D800 at character 1", "text that UTF-8 can hold"),
        ({"text": "Hi"}, None, "the keys text", "messages, conversations or prompt"),
        ({}, None, "the keys none", "messages, conversations or prompt"),
        ({"prompt": 3}, "prompt", "3", "text"),
        ({"prompt": " \n"}, "prompt", "a blank string", "text"),
        ({"prompt": None}, "prompt", "null", "text"),
        ({"messages": []}, "messages", "a list of 0 items", "at least one item"),
        ({"messages": "Hi"}, "messages", '"Hi"', "a list"),
        ({"messages": ["Hi"]}, "messages[0]", '"Hi"', "an object"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", '"robot"', "system, developer, user"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "5", "text"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content", "a blank string", "text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
            '"image_url"',
            "only text",
        ),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages", "no turn", "at least one"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages", "no turn", "at least one"),
        ({"conversations": [{"from": "alien", "value": "x"}]}, "conversations[0].from", '"alien"', "human"),
        ({"conversations": [{"value": "x"}]}, "conversations[0]", "an object with 1 key", "from and value"),
        ({"conversations": [{"from": "human"}]}, "conversations[0].value", "null", "text"),
        (
            {"conversations": [{"from": "human", "value": "x"}, {"from": "function_call", "value": "no"}]},
            "conversations[1].value",
            '"no"',
            "JSON text",
        ),
        ({"prompt": "x", "id": ""}, "id", "a blank string", "1 to 200"),
        ({"prompt": "x", "id": "a\x1b[2J"}, "id", '"a"', "printable"),
        ({"prompt": "x", "id": True}, "id", "true", "a whole number"),
        ({"prompt": "x", "id": ["a"]}, "id", "a list of 1 item", "a whole number"),
        ({"prompt": "x", "dataset": 3}, "dataset", "3", "text"),
        ({"prompt": "x", "tools": "no json"}, "tools", '"no json"', "tool definitions"),
        ({"prompt": "x", "tools": {"a": 1}}, "tools", "an object with 1 key", "tool definitions"),
    ],
)
def test_a_fault_names_line_field_what_was_found_and_what_is_expected(
    tmp_path: Path, line: object, field: str | None, found: str, expected: str
) -> None:
    problem = _problem(tmp_path, line)
    assert (problem.line, problem.field) == (1, field)
    assert found in problem.found
    assert expected in problem.expected
    assert "\x1b" not in str(problem)


def test_bytes_that_are_not_utf8_are_a_fault_of_their_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"prompt": "ok"}\n{"prompt": "caf\xe9"}\n')
    _, problem = PromptFile(path, "last")
    assert isinstance(problem, Problem)
    assert str(problem) == f"{path}:2: found a byte that is not UTF-8 at column 16, expected JSON in UTF-8"


def test_an_empty_file_and_one_of_blank_lines_are_faults_of_the_file(tmp_path: Path) -> None:
    for text in ("", "\n  \n"):
        path = tmp_path / "empty.jsonl"
        path.write_text(text)
        (problem,) = PromptFile(path, "last")
        assert str(problem) == f"{path}: found an empty file, expected one JSON object a line"


def test_an_absent_file_is_a_fault_not_a_traceback(tmp_path: Path) -> None:
    (problem,) = PromptFile(tmp_path / "absent.jsonl", "last")
    assert "cannot be read" in str(problem)


def test_a_byte_order_mark_blank_lines_and_a_missing_last_newline_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "bom.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n{"prompt": "b"}')
    assert [(record.line, record.prompt.messages[0].content) for record in _records(path)] == [(1, "a"), (3, "b")]


def test_the_digest_of_a_read_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    path = _write(tmp_path, {"prompt": "a"})
    file = PromptFile(path, "last")
    assert file.sha256 is None
    list(file)
    # printf '{"prompt": "a"}\n' | sha256sum
    assert file.sha256 == "8a8c2da9cd6156c411e04714ce81cde2425df195083077b23550021445caf826"


@pytest.mark.parametrize(
    ("line", "where"),
    [
        (r'{"prompt": "a\ud800b"}', "prompt"),
        (r'{"id": "\ud800", "prompt": "x"}', "id"),
        (r'{"prompt": "x", "\udfff": 1}', "the record"),
        (r'{"messages": [{"role": "user", "content": "\udc00"}]}', "messages[0].content"),
        (r'{"conversations": [{"from": "human", "value": "\ud83d"}]}', "conversations[0].value"),
        (r'{"prompt": "x", "tools": [{"function": {"name": "\ud800"}}]}', "tools[0].function.name"),
    ],
)
def test_half_of_a_surrogate_pair_is_named_with_its_field(line: str, where: str, tmp_path: Path) -> None:
    problem = _problem(tmp_path, line)
    assert (problem.line, problem.field) == (1, where)
    assert "lone surrogate U+D" in str(problem)


def test_messages_of_other_readers_are_held_to_the_same_texts() -> None:
    call = {"function": {"name": "f", "arguments": {"a": ["\ud800"]}}}
    for message, field in (
        ({"role": "user", "content": "\ud800"}, "m[0].content"),
        ({"role": "user", "content": [{"type": "text", "text": "\ud800"}]}, "m[0].content[0].text"),
        ({"role": "assistant", "content": "x", "reasoning": "\ud800"}, "m[0].reasoning"),
        ({"role": "assistant", "tool_calls": [call]}, "m[0].tool_calls[0].function.arguments.a[0]"),
    ):
        with pytest.raises(Fault, match="lone surrogate") as caught:
            read_messages([message], "m")
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "So", "partial": True}]}, 1),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "So", "prefix": True}]}, 1),
        ({"messages": [{"role": "user", "content": "q"}], "continue_final_message": True}, 0),
    ],
)
def test_a_prefilled_answer_is_refused_with_the_reason(tmp_path: Path, record: dict[str, object], field: int) -> None:
    problem = _problem(tmp_path, record)
    assert "cannot be proved" in problem.expected
    assert (problem.field or "").startswith("messages[1]." if field else "continue_final_message")


def test_a_tool_may_answer_nothing(tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    talk = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
    ]
    (record,) = _records(_write(tmp_path, {"messages": talk}))
    assert record.prompt.messages[-1] == Message("tool", "", tool_call_id="c")


def test_a_row_may_have_its_own_sampling_and_wrong_ones_are_named(tmp_path: Path) -> None:
    plain, own = _records(
        _write(tmp_path, {"prompt": "Hi"}, {"prompt": "Hi", "sampling": {"temperature": 0.2, "top_k": None}})
    )
    assert (plain.prompt.sampling_json, own.prompt.sampling_json) == (None, '{"temperature": 0.2}')
    assert plain.key != own.key
    for wrong, field in (({"temprature": 1}, "temprature"), ({"temperature": 3}, "temperature"), ({"seed": 1}, "seed")):
        problem = _problem(tmp_path, {"prompt": "Hi", "sampling": wrong})
        assert problem.field == f"sampling.{field}"


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("b1.jsonl.gz", gzip.compress(b'{"prompt": "Hi"}\n', mtime=0), "a gzip file"),
        ("renamed.jsonl", gzip.compress(b'{"prompt": "Hi"}\n', mtime=0), "a gzip file"),
        ("b1.jsonl", '{"prompt": "Hi"}\n'.encode("utf-16"), "text in UTF-16"),
        ("b1.csv", b"id,prompt\n1,Hi\n", "a table of separated values"),
    ],
)
def test_a_file_of_another_format_is_named_once_with_what_to_do(
    tmp_path: Path, name: str, content: bytes, found: str
) -> None:
    (tmp_path / name).write_bytes(content)
    (problem,) = PromptFile(tmp_path / name, "last")
    assert isinstance(problem, Problem)
    assert (problem.line, problem.found) == (None, found)
    assert "JSON lines" in problem.expected


def test_json_lines_may_have_any_name(tmp_path: Path) -> None:
    assert [item.prompt.messages[0] for item in _records(_write(tmp_path, {"prompt": "Hi"}, name="b1.csv"))] == [USER]
