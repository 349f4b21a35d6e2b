"""Does an output format fit a tokenizer: structural strings, the end token, and the glue the chat template writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from eagletui.core.chat import Message, Prompt, ToolCall
from eagletui.core.errors import FormatError
from eagletui.core.outputs import OutputFormat, fitted
from eagletui.core.text import visible
from eagletui.tokens.load import Tokenizer
from eagletui.tokens.prompt import render_text

Level = Literal["error", "warn", "info"]

_QUESTION = "QUESTIONqv7"
_ANSWER = "ANSWERxk3"
_THOUGHT = "THOUGHTzj9"
_CALL = ToolCall("functions.TOOLwm5:0", "TOOLwm5", '{"KEYnb2": "x"}')
_TOOLS = '[{"type": "function", "function": {"name": "TOOLwm5", "description": "", "parameters": {"type": "object"}}}]'
"""Sentinels: letters that no template trims, splits or contains."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    name: str
    ok: bool
    level: Level
    """How bad it is when it does not hold; only an `error` fails an audit."""
    detail: str
    """One sentence that names ids and what they decode to."""
    ids: tuple[int, ...] = ()

    @property
    def failed(self) -> bool:
        """Tell whether the audit fails over this."""
        return not self.ok and self.level == "error"


def fit_checks(tokenizer: Tokenizer, fmt: OutputFormat) -> list[Check]:
    """Check a format against a tokenizer, its generation config and its chat template."""
    fmt = fitted(fmt, tokenizer.vocabulary.specials)
    return [
        *_special_checks(tokenizer, fmt),
        *_end_checks(tokenizer, fmt),
        *_close_checks(tokenizer, fmt),
        *_template_checks(tokenizer, fmt),
    ]


def name_id(tokenizer: Tokenizer, token_id: int) -> str:
    """An id with what it decodes to, visibly: `163533 (" arbete", ordinary text)`."""
    vocabulary = tokenizer.vocabulary
    if token_id not in vocabulary:
        return f"{token_id} (no token; the vocabulary ends at {vocabulary.size - 1})"
    kind = "special" if vocabulary.is_special(token_id) else "ordinary text"
    return f"{token_id} ({visible(vocabulary.bytes_of(token_id))!r}, {kind})"


def _special_checks(tokenizer: Tokenizer, fmt: OutputFormat) -> list[Check]:
    """Every structural string is one added token that decodes back, and ordinary text never becomes it."""
    vocabulary = tokenizer.vocabulary
    checks: list[Check] = []
    for literal in fmt.specials:
        token_id = vocabulary.specials.get(literal)
        if token_id is None:
            pieces = tokenizer.encode(literal)
            detail = f"{literal!r} is no added token; as text it is {len(pieces)} tokens {pieces[:8]}"
            checks.append(Check(f"special {literal}", False, "error", detail, tuple(pieces)))
            continue
        back = vocabulary.decode([token_id]).decode("utf-8", "replace")
        spelled = tokenizer.encode(f"a{literal}b")
        stable = token_id not in spelled and vocabulary.decode(spelled) == f"a{literal}b".encode()
        ok = back == literal and stable
        detail = f"{literal!r} is {token_id}, decodes back" if back == literal else f"{token_id} decodes to {back!r}"
        detail += " and stays text inside text" if stable else ", but ordinary text can become it"
        checks.append(Check(f"special {literal}", ok, "error", detail, (token_id,)))
    return checks


def _end_checks(tokenizer: Tokenizer, fmt: OutputFormat) -> list[Check]:
    """The end token of each finish reason, against the generation config and the tokenizer's own `eos_token`."""
    vocabulary = tokenizer.vocabulary
    checks: list[Check] = []
    ends: dict[str, int] = {}
    for finish in ("stop", "tool_calls"):
        literal = fmt.end_token(finish)
        if not literal:
            checks.append(Check(f"end {finish}", False, "error", f"The format writes no end token on {finish}"))
            continue
        token_id = vocabulary.specials.get(literal)
        if token_id is None:
            ordinary = vocabulary.id_of(literal.encode())
            named = f", it is {name_id(tokenizer, ordinary)}" if ordinary is not None else ""
            detail = f"The format ends an answer on {finish} with {literal!r}, which is no special token{named}"
            ids = () if ordinary is None else (ordinary,)
            checks.append(Check(f"end {finish}", False, "error", detail, ids))
            continue
        ends[literal] = token_id
        detail = f"An answer ends on {finish} with {literal!r}, id {token_id}"
        checks.append(Check(f"end {finish}", True, "error", detail, (token_id,)))
    for literal, claimed in fmt.claimed_ids.items():
        actual = vocabulary.specials.get(literal)
        named = "no token" if actual is None else str(actual)
        detail = f"The format claims {name_id(tokenizer, claimed)} for {literal!r}, whose id is {named}"
        checks.append(Check(f"claimed id of {literal}", claimed == actual, "error", detail, (claimed,)))
    checks += generation_config_checks(tokenizer, ends)
    eos = tokenizer.eos_token
    if eos is not None and ends:
        eos_id = vocabulary.specials.get(eos)
        ok = eos in ends
        wanted = ", ".join(f"{literal!r} ({token_id})" for literal, token_id in ends.items())
        detail = f"tokenizer.eos_token is {eos!r} ({eos_id}); answers end with {wanted}"
        checks.append(Check("eos_token", ok, "warn", detail, () if eos_id is None else (eos_id,)))
    return checks


def generation_config_checks(tokenizer: Tokenizer, ends: Mapping[str, int]) -> list[Check]:
    """What generation_config.json says ends an answer.

    Args:
        tokenizer: with its generation config.
        ends: end tokens of the format by literal; empty checks only that the claimed ids are special tokens.
    """
    declared = tokenizer.generation_config.get("eos_token_id")
    if declared is None:
        return []
    claimed = declared if isinstance(declared, list) else [declared]
    name = "generation config"
    if not claimed or not all(isinstance(i, int) and not isinstance(i, bool) for i in claimed):
        return [Check(name, False, "error", f"eos_token_id is {declared!r}, expected a token id or a list of them")]
    checks: list[Check] = []
    for token_id in claimed:
        if not tokenizer.vocabulary.is_special(token_id):
            detail = f"eos_token_id claims {name_id(tokenizer, token_id)}, which cannot end an answer"
            if ends:
                wanted = ", ".join(f"{literal!r} ({known})" for literal, known in ends.items())
                detail += f"; the format ends with {wanted}"
            checks.append(Check(name, False, "error", detail, (token_id,)))
    for literal, token_id in ends.items():
        agrees = token_id in claimed
        others = ", ".join(name_id(tokenizer, other) for other in claimed)
        detail = f"eos_token_id is {others}; the format ends with {literal!r} ({token_id})"
        checks.append(Check(name, agrees, "error", detail, tuple(claimed)))
    if not ends and not checks:
        others = ", ".join(name_id(tokenizer, other) for other in claimed)
        checks.append(Check(name, True, "error", f"eos_token_id is {others}", tuple(claimed)))
    return checks


def _close_checks(tokenizer: Tokenizer, fmt: OutputFormat) -> list[Check]:
    """Where the tokenizer has a pair such as `<think>`, `</think>`, reasoning closes with it."""
    pair = think_pair(tokenizer)
    if pair is None or fmt.reasoning.opened_by == "none":
        return []
    close = pair[1]
    ok = close in fmt.reasoning.close
    detail = f"Reasoning closes with {fmt.reasoning.close!r}"
    if not ok:
        detail += f": missing {close!r}, which is token {tokenizer.vocabulary.special_id(close)}"
    return [Check("reasoning close", ok, "error", detail, (tokenizer.vocabulary.special_id(close),))]


def think_pair(tokenizer: Tokenizer) -> tuple[str, str] | None:
    """The added tokens that open and close reasoning, where the tokenizer has such a pair."""
    specials = tokenizer.vocabulary.specials
    for opener in ("<think>", "<mm:think>", "[THINK]", "<reasoning>", "<thinking>"):
        close = f"{opener[0]}/{opener[1:]}"
        if opener in specials and close in specials:
            return opener, close
    return None


def _template_checks(tokenizer: Tokenizer, fmt: OutputFormat) -> list[Check]:
    """Compare glue and end with what the tokenizer's own chat template writes around sentinels."""
    source = tokenizer.chat_template
    if source is None or fmt.prompt_renderer == "none":
        return []
    question = Message("user", _QUESTION)
    names = {name: tokenizer.config.get(name) or "" for name in ("bos_token", "eos_token")}
    kwargs = {name: value.get("content", "") if isinstance(value, dict) else value for name, value in names.items()}
    try:
        prompt = render_text(source, Prompt((question,)), fmt, kwargs)
        answer = Message("assistant", _ANSWER, reasoning=_THOUGHT if fmt.reasoning.opened_by != "none" else None)
        whole = render_text(source, Prompt((question, answer)), fmt, kwargs, add_generation_prompt=False)
    except FormatError as error:
        return [Check("template", False, "info", f"Nothing could be derived from the chat template: {error}")]
    checks = [*_opener_checks(tokenizer, fmt, prompt), *_call_checks(source, fmt, kwargs)]
    before, found, after = whole.partition(_ANSWER)
    if not found:
        return checks
    checks += _template_end(tokenizer, fmt, after)
    return checks + _template_glue(fmt, before)


def _opener_checks(tokenizer: Tokenizer, fmt: OutputFormat, prompt: str) -> list[Check]:
    """A prompt that ends with the opener asks the model for the close tag."""
    pair = think_pair(tokenizer)
    if pair is None or not prompt.rstrip().endswith(pair[0]):
        return []
    closes, again = pair[1] in fmt.reasoning.close, fmt.reasoning.opened_by == "model"
    ok = closes and not again
    detail = f"The chat template's prompt ends with {pair[0]!r} and the format "
    detail += f"closes it with {pair[1]!r}" if closes else f"never closes it: missing {pair[1]!r}"
    detail += f", but lets the model write {pair[0]!r} a second time" if again else ""
    return [Check("template opener", ok, "error", detail, (tokenizer.vocabulary.special_id(pair[1]),))]


def _call_checks(source: str, fmt: OutputFormat, kwargs: Mapping[str, object]) -> list[Check]:
    """A template that renders calls writes them between the format's own structural strings."""
    written = f"{fmt.tools.open}{fmt.tools.each}{fmt.tools.close}"
    literals = [literal for literal in fmt.specials if literal in written]
    asked = Prompt((Message("user", _QUESTION), Message("assistant", None, tool_calls=(_CALL,))), _TOOLS)
    try:
        whole = render_text(source, asked, fmt, kwargs, add_generation_prompt=False) if literals else ""
    except FormatError:
        return []
    call = whole.rpartition(_QUESTION)[2]
    if _CALL.name not in call:
        return []
    missing = [literal for literal in literals if literal not in call]
    detail = f"The chat template writes a call with {len(literals) - len(missing)} of the format's {len(literals)} tags"
    if missing:
        detail += f", without {', '.join(map(repr, missing))}"
    # Headers differ in a tag or two; another syntax shares one at most.
    return [Check("template call", 2 * len(missing) <= len(literals), "error", detail)]


def _template_end(tokenizer: Tokenizer, fmt: OutputFormat, after: str) -> list[Check]:
    """What the template writes right behind an answer."""
    specials = tokenizer.vocabulary.specials
    first = min((literal for literal in specials if literal in after), key=after.index, default=None)
    expected = fmt.end_token("stop")
    if first is None or expected is None:
        return []
    glue = after[: after.index(first)]
    ok = first == expected and (not glue or glue == fmt.tools.after)
    detail = f"The chat template ends an answer with {glue + first!r} ({specials[first]})"
    if not ok:
        detail += f", the format with {expected!r} ({specials.get(expected, 'no token')})"
    return [Check("template end", ok, "error", detail, (specials[first],))]


def _template_glue(fmt: OutputFormat, before: str) -> list[Check]:
    """The literal glue around the close tag."""
    rule = fmt.reasoning
    before = before.rpartition(_QUESTION)[2]
    if rule.opened_by == "none" or not rule.close or rule.close not in before:
        return []
    head, _, after_close = before.rpartition(rule.close)
    written = rule.after_close + fmt.content.open
    detail = f"Behind {rule.close!r} the format writes {written!r}, the chat template {after_close!r}"
    checks = [Check("template glue after", after_close == written, "error", detail)]
    if _THOUGHT in head:
        glue = head.rpartition(_THOUGHT)[2]
        detail = f"Before {rule.close!r} the format writes {rule.before_close!r}, the chat template {glue!r}"
        checks.append(Check("template glue before", glue == rule.before_close, "error", detail))
    return checks
