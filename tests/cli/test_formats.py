"""`eagletui formats`: every family with its state, and one told in full."""

from tests.cli.conftest import Command

STATES = {"proved on served ids", "derived from the template", "from documentation"}


def test_the_json_lists_every_format_with_its_state_and_end_tokens(eagletui: Command) -> None:
    listed = eagletui("formats", "--json").json
    by_name = {row["name"]: row for row in listed["formats"]}
    assert {row["state"] for row in by_name.values()} == STATES
    assert by_name["smollm2"]["state"] == "proved on served ids"
    assert by_name["glm-4.7"]["end"] == {"stop": "<|user|>", "tool_calls": "<|observation|>", "length": None}
    assert by_name["gpt-oss"]["refuses"]
    assert "vllm@0.32" in {row["name"] for row in listed["profiles"]}


def test_one_format_is_told_with_its_glue_and_why_it_differs_from_its_template(eagletui: Command) -> None:
    told = eagletui("formats", "minimax-m2").out
    assert r"glue       '\n</think>\n\n'" in told
    assert "differs    before a call without content" in told


def test_an_unknown_format_is_bad_input_that_names_near_ones(eagletui: Command) -> None:
    ended = eagletui("formats", "gwen3")
    assert ended.code == 2
    assert "Did you mean qwen3" in ended.err
