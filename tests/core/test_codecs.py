"""Arguments as text: every way to write them means the same."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eagletui.core.codecs import argument_forms, declared_types, fill
from eagletui.core.outputs import Losses, Special, Text, Tools

scalars = st.none() | st.booleans() | st.integers(-10000, 10000) | st.floats(-1e6, 1e6).map(lambda x: round(x, 3))
values = st.recursive(
    scalars | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(min_size=1, max_size=6), values, max_size=4)
GLM = Tools(codec="parameters", each="{name}{arguments}", parameter="<k>{key}</k><v>{value}</v>")


def text_of(parts: tuple[Text | Special, ...]) -> str:
    return "".join(part.text for part in parts)


@given(arguments=objects, ascii_=st.booleans())
def test_every_json_form_has_the_value_of_the_arguments(arguments: dict[str, Any], ascii_: bool) -> None:
    losses = Losses(arguments="reserialised-ascii" if ascii_ else "reserialised")
    received = json.dumps(arguments, ensure_ascii=ascii_)
    forms = argument_forms(received, losses, {}, Tools(codec="json"), ())
    assert text_of(forms[0].parts) == json.dumps(arguments, ensure_ascii=False)
    for form in forms:
        text = text_of(form.parts)
        assert json.loads(text or "{}") == arguments


@given(arguments=objects)
def test_the_compact_escaped_and_indented_forms_are_those_of_the_json_library(arguments: dict[str, Any]) -> None:
    forms = argument_forms(
        json.dumps(arguments, ensure_ascii=False), Losses(arguments="reserialised"), {}, Tools(codec="json"), ()
    )
    texts = {text_of(form.parts) for form in forms}
    assert json.dumps(arguments) in texts
    assert json.dumps(arguments, ensure_ascii=False, separators=(",", ":")) in texts
    assert json.dumps(arguments, ensure_ascii=False, indent=2) in texts


@given(arguments=objects)
def test_verbatim_arguments_are_never_touched(arguments: dict[str, Any]) -> None:
    received = json.dumps(arguments, indent=1)
    forms = argument_forms(received, Losses(), {}, Tools(codec="json"), ())
    assert [text_of(form.parts) for form in forms] == [received]


@given(arguments=st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text(max_size=10), max_size=4))
def test_tagged_strings_are_written_without_quotes_or_escapes(arguments: dict[str, str]) -> None:
    forms = argument_forms(json.dumps(arguments), Losses(arguments="reserialised"), {}, GLM, ("<k>", "</k>"))
    expected = "".join(f"<k>{key}</k><v>{value}</v>" for key, value in arguments.items())
    assert text_of(forms[0].parts) == expected


def test_number_literals_are_kept_and_respelled_only_at_the_same_value() -> None:
    forms = argument_forms('{"n": 1000.0}', Losses(arguments="reserialised"), {"n": "number"}, GLM, ())
    assert {text_of(form.parts) for form in forms} == {
        "<k>n</k><v>1000.0</v>",
        "<k>n</k><v>1e3</v>",
        "<k>n</k><v>1000.00</v>",
    }


def test_an_integer_shown_with_a_decimal_was_rather_written_with_an_exponent_than_compact() -> None:
    losses = Losses(arguments="reserialised")
    forms = argument_forms('{"a": "x", "n": 1000.0}', losses, {"n": "integer"}, Tools(codec="json"), ())
    texts = [text_of(form.parts) for form in forms]
    assert texts.index('{"a": "x", "n": 1e3}') < texts.index('{"a":"x","n":1000.0}')
    other = argument_forms('{"a": "x", "n": 1000.0}', losses, {"n": "number"}, Tools(codec="json"), ())
    texts = [text_of(form.parts) for form in other]
    assert texts.index('{"a":"x","n":1000.0}') < texts.index('{"a": "x", "n": 1e3}')


def test_spellings_that_stand_between_spaced_and_compact_are_tried() -> None:
    forms = argument_forms('{"a": "<b>", "n": 1}', Losses(arguments="reserialised"), {}, Tools(codec="json"), ())
    texts = {text_of(form.parts) for form in forms}
    assert {'{"a": "<b>","n": 1}', '{ "a": "<b>", "n": 1 }', '{"a": "\\u003cb\\u003e", "n": 1}'} <= texts


def test_whitespace_around_a_text_value_is_tried_where_the_server_takes_it_away() -> None:
    kept, stripped = (
        {
            text_of(form.parts)
            for form in argument_forms('{"s": "code"}', Losses(arguments="reserialised", values=how), {}, GLM, ())
        }
        for how in ("verbatim", "stripped")
    )
    assert kept == {"<k>s</k><v>code</v>"}
    assert {"<k>s</k><v>code\n</v>", "<k>s</k><v>\ncode\n</v>", "<k>s</k><v> code </v>"} <= stripped


@given(
    text=st.text(max_size=40) | st.text(alphabet='{}[]",:a\\\n 1', max_size=40),
    loss=st.sampled_from(["verbatim", "trimmed", "coerced", "reserialised", "reserialised-ascii"]),
    tools=st.sampled_from([Tools(codec="json"), GLM, Tools(codec="gemma-dict")]),
)
def test_no_arguments_of_a_server_are_an_error(text: str, loss: Any, tools: Tools) -> None:
    assert argument_forms(text, Losses(arguments=loss), {"a": "number"}, tools, ("<k>",))


def test_arguments_nested_without_end_stay_as_they_are() -> None:
    deep = '{"a": ' * 5000 + "1" + "}" * 5000
    (form,) = argument_forms(deep, Losses(arguments="reserialised"), {}, GLM, ())
    assert text_of(form.parts) == deep


def test_arguments_that_are_no_json_come_back_as_they_are() -> None:
    cut = '{"city": "Par'
    assert text_of(argument_forms(cut, Losses(arguments="reserialised"), {}, Tools(codec="json"), ())[0].parts) == cut


def test_fields_are_filled_and_other_braces_stay() -> None:
    assert fill("call:{name}{{arguments}}", {"name": "f", "arguments": "x:1"}, ()) == (
        Text("call:f{x:1}", "tool_call"),
    )
    assert fill('{"name": "{name}"}', {"name": "f"}, ()) == (Text('{"name": "f"}', "tool_call"),)


def test_a_special_string_in_a_value_stays_text_and_in_the_pattern_is_a_token() -> None:
    assert fill("<k>{value}<k>", {"value": "a<k>b"}, ("<k>",)) == (
        Special("<k>"),
        Text("a<k>b", "tool_call"),
        Special("<k>"),
    )


def test_declared_types_survive_broken_declarations() -> None:
    assert declared_types(None) == {}
    assert declared_types("no json") == {}
    assert declared_types('[1, {"function": 3}, {"function": {"name": "f", "parameters": []}}]') == {"f": {}}
