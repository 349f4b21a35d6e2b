"""`eagletui formats`: the output formats and loss profiles, and how each is known."""

from typing import Annotated, Any

import typer

from eagletui.cli.output import print_json, print_pairs, print_table
from eagletui.core.outputs import OutputFormat


def formats(
    name: Annotated[str | None, typer.Argument(help="Tell everything about one format.", show_default=False)] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """List the output formats with their state, and the loss profiles."""
    from eagletui.tokens.formats import list_formats, list_profiles, load_format

    found = (load_format(name),) if name else list_formats()
    profiles = () if name else list_profiles()
    if json_:
        print_json(
            {
                "formats": [_row(fmt) for fmt in found],
                "profiles": [
                    {"name": profile.name, "title": profile.title, "source": profile.source} for profile in profiles
                ],
            }
        )
    elif name:
        print_pairs(_told(found[0]))
    else:
        print_table(
            ("format", "family", "state", "thinking", "tools"),
            [(fmt.name, fmt.title, fmt.state, _thinking(fmt), _tools(fmt)) for fmt in found],
        )
        print()
        print_table(("profile", "what it is"), [(profile.name, profile.title) for profile in profiles])
        print("\nMore about one: eagletui formats NAME. A format of your own is a .toml file given by its path.")
    return 0


def _row(fmt: OutputFormat) -> dict[str, Any]:
    return {
        "name": fmt.name,
        "title": fmt.title,
        "state": fmt.state,
        "source": fmt.source,
        "models": list(fmt.models),
        "reasoning": fmt.reasoning.opened_by,
        "history": fmt.reasoning.history if fmt.reasoning.opened_by != "none" else None,
        "history_kwarg": fmt.reasoning.history_kwarg or None,
        "tools": fmt.tools.codec,
        "end": {"stop": fmt.end.stop, "tool_calls": fmt.end_token("tool_calls"), "length": None},
        "specials": list(fmt.specials),
        "uncertain": list(fmt.uncertain),
        "template": fmt.template or None,
        "differs": fmt.differs or None,
        "refuses": _refuses(fmt),
    }


def _told(fmt: OutputFormat) -> list[tuple[str, str]]:
    rule = fmt.reasoning
    pairs = [
        ("format", f"{fmt.name}: {fmt.title}"),
        ("state", fmt.state),
        ("source", fmt.source),
        ("thinking", _thinking(fmt)),
        ("glue", f"{rule.before_close + rule.close + rule.after_close!r}" if rule.close else "-"),
        ("tools", _tools(fmt)),
        ("ends with", f"{fmt.end.stop}, after a call {fmt.end_token('tool_calls')}, nothing when cut"),
        ("history", _history(fmt)),
        ("specials", " ".join((*fmt.specials, *fmt.uncertain))),
    ]
    pairs += [("template", fmt.template)] if fmt.template else []
    pairs += [("differs", fmt.differs)] if fmt.differs else []
    return pairs + [("refused", sentence) for sentence in _refuses(fmt)]


def _history(fmt: OutputFormat) -> str:
    if fmt.reasoning.opened_by == "none":
        return "-"
    kwarg = fmt.reasoning.history_kwarg
    return f"reasoning of earlier turns is {fmt.reasoning.history}" + (
        f", unless {kwarg} says otherwise" if kwarg else ""
    )


def _thinking(fmt: OutputFormat) -> str:
    said = {"prompt": "opened by the prompt", "model": "opened by the model", "none": "none"}
    return said[fmt.reasoning.opened_by]


def _tools(fmt: OutputFormat) -> str:
    said = {"json": "JSON arguments", "parameters": "tagged parameters", "gemma-dict": "Gemma notation", "none": "none"}
    return said[fmt.tools.codec] + (", only with served ids" if fmt.tools.refused else "")


def _refuses(fmt: OutputFormat) -> list[str]:
    return [*fmt.refuses, *([fmt.tools.refused] if fmt.tools.refused else [])]
