"""Kimi's TypeScript declaration of tools, against texts written by hand after the model's own code."""

from eagletui.tokens.kimi_tools import declare_tools, sort_keys


def declared(parameters: object, description: str = "") -> str | None:
    function: dict[str, object] = {"name": "f", "parameters": parameters}
    if description:
        function["description"] = description
    return declare_tools([{"type": "function", "function": function}])


def body(parameters: object) -> str:
    text = declared(parameters)
    assert text is not None
    return text.removeprefix("# Tools\n\n## functions\nnamespace functions {\n").removesuffix("\n}\n")


def test_required_parameters_come_first_each_group_by_name() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "unit": {"type": "string", "enum": ["c", "f"], "description": "Scale"},
            "city": {"type": "string", "description": "Where\nto look"},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3},
            "area": {"type": "number"},
        },
        "required": ["city"],
    }
    assert declared(parameters, "Tell the weather") == (
        "# Tools\n\n## functions\nnamespace functions {\n"
        "// Tell the weather\n"
        "type f = (_: {\n"
        "  // Where\n"
        "  // to look\n"
        "  city: string,\n"
        "  area?: number,\n"
        "  // maximum: 7, minimum: 1\n"
        "  // Default: 3\n"
        "  days?: number,\n"
        "  // Scale\n"
        '  unit?: "c" | "f"\n'
        "}) => any;\n"
        "}\n"
    )


def test_nested_objects_arrays_and_unions_have_their_notation() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "string"}},
            "b": {"type": "array", "items": {"type": "integer", "description": "one"}},
            "c": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "d": {"type": ["integer", "null"]},
            "e": {"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": False},
            "f": {},
        },
    }
    assert body(parameters) == (
        "type f = (_: {\n"
        "  a?: Array<string>,\n"
        "  b?: Array<\n"
        "    // one\n"
        "    number\n"
        "  >,\n"
        "  c?: string | null,\n"
        "  d?: number | null,\n"
        "  e?: {\n"
        "    x?: boolean,\n"
        "    [k: string]: never\n"
        "  },\n"
        "  f?: any\n"
        "}) => any;"
    )


def test_definitions_become_interfaces() -> None:
    parameters = {
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/Point"}},
        "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number"}}, "description": "A place"}},
    }
    assert body(parameters) == (
        "// A place\ninterface Point {\n  x?: number\n}\ntype f = (_: {\n  p?: Point\n}) => any;"
    )


def test_a_schema_without_notation_declares_all_tools_as_json() -> None:
    assert declared({"type": "object", "properties": {"x": {"oneOf": []}}}) is None
    assert declared({"type": "object", "properties": {"x": {"enum": [1], "type": "string"}}}) is None
    assert declared({"type": "object", "properties": {"x": {"$ref": "#/$defs/Missing"}}}) is None


def test_no_functions_are_an_empty_declaration() -> None:
    assert declare_tools([]) == ""
    assert declare_tools([{"type": "web_search"}]) == ""
    assert body({}) == "type f = (_: {}) => any;"


def test_keys_are_sorted_at_every_depth() -> None:
    assert list(str(sort_keys({"b": [{"d": 1, "c": 2}], "a": 0}))) == list("{'a': 0, 'b': [{'c': 2, 'd': 1}]}")
