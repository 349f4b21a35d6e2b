"""Style rules parsed once in a process, where the library parses every sheet again for each screen it shows."""

from typing import ClassVar

from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation

_Key = tuple[frozenset[tuple[str, str]], str, CSSLocation, bool, int, str]


class ParsedOnce(Stylesheet):
    """The library's stylesheet with rules kept by their text and the theme's variables; rules never change."""

    _parsed: ClassVar[dict[_Key, list[RuleSet]]] = {}
    """Bounded by the sheets of the library and the app, times the themes."""

    def _parse_rules(
        self,
        css: str,
        read_from: CSSLocation,
        is_default_rules: bool = False,
        tie_breaker: int = 0,
        scope: str = "",
    ) -> list[RuleSet]:
        key = (frozenset(self._variables.items()), css, read_from, is_default_rules, tie_breaker, scope)
        rules = self._parsed.get(key)
        if rules is None:
            rules = self._parsed[key] = super()._parse_rules(css, read_from, is_default_rules, tie_breaker, scope)
        return rules

    def reparse(self) -> None:
        """Take the rules of every sheet for the variables of now."""
        self.parse()
