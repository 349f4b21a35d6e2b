"""Build HTML and SVG as trees: text is cleaned on its way in and escaped on its way out; no markup can be foreign."""

import base64
import hashlib
from typing import Final
from xml.etree.ElementTree import Element, tostring

from eagletui.core.text import clean_line

LONGEST_TEXT: Final = 600
"""Characters kept of one piece of text."""

Child = Element | str | None


def el(tag: str, *children: Child, **attributes: str | float | None) -> Element:
    """Make an element.

    Args:
        tag: its name.
        children: elements and texts, in order; None is left out. Texts may be foreign.
        attributes: names with `_` for `-` (and `class_`); None is left out.
    """
    element = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            text = f"{value:g}" if isinstance(value, float) else clean_line(str(value), LONGEST_TEXT)
            element.set(name.rstrip("_").replace("_", "-"), text)
    for child in children:
        if isinstance(child, str):
            _append_text(element, clean_line(child, LONGEST_TEXT, newline=" "))
        elif child is not None:
            element.append(child)
    return element


def _append_text(element: Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text


def document(title: str, style: str, body: Element) -> bytes:
    """Write a page that may load nothing and run nothing.

    Args:
        title: of the window; may be foreign.
        style: our own style sheet, the only one the page's policy allows.
        body: the `body` element.
    """
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    sheet = Element("style")
    sheet.text = style
    # Attributes with capitals or hyphens of their own are set by name.
    policy_meta = el("meta", content=policy)
    policy_meta.set("http-equiv", "Content-Security-Policy")
    head = el(
        "head",
        el("meta", charset="utf-8"),
        policy_meta,
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="generator", content=GENERATOR),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        sheet,
    )
    page = el("html", head, body, lang="en")
    return b"<!DOCTYPE html>\n" + tostring(page, encoding="unicode", method="html").encode() + b"\n"


GENERATOR: Final = "EagleTUI report"
"""How a report is told from other files, so that nothing else is replaced by one."""
