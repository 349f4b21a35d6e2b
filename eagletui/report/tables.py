"""Tables of a report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from xml.etree.ElementTree import Element

from eagletui.report.markup import el

Row = TypeVar("Row")


@dataclass(frozen=True)  # with slots, `Column[str](...)` could not be made: typing sets an attribute on it
class Column(Generic[Row]):
    """One column."""

    name: str
    cell: Callable[[Row], Element | str]
    """What stands in a row's cell; text may be foreign."""
    right: bool = False
    """Numbers stand to the right."""


def table(columns: Sequence[Column[Row]], rows: Sequence[Row], empty: str = "None.") -> Element:
    """Make a table that scrolls by itself where the window is narrow; a sentence where it has no row."""
    if not rows:
        return el("p", empty, class_="quiet")
    heads = [el("th", column.name, scope="col", class_="right" if column.right else None) for column in columns]
    lines = [
        el("tr", *(el("td", column.cell(row), class_="right" if column.right else None) for column in columns))
        for row in rows
    ]
    return el("div", el("table", el("thead", el("tr", *heads)), el("tbody", *lines)), class_="scroll")


def pairs(rows: Sequence[tuple[str, str, str]]) -> Element:
    """Make a table of names, values and what they mean."""
    return table(
        (
            Column("figure", lambda row: row[0]),
            Column("value", lambda row: row[1], right=True),
            Column("meaning", lambda row: row[2]),
        ),
        rows,
    )
