"""Collect the pieces of one `Reply` from provider JSON, whole or in events."""

import json
from collections.abc import Mapping
from typing import Final

from eagletui.core.chat import ToolCall
from eagletui.core.errors import ReplyError
from eagletui.core.reply import Delta, FinishReason, LogprobEntry, ReasoningKind, Reply, Routed, Usage
from eagletui.core.text import clean_line
from eagletui.providers.fields import (
    JsonObject,
    cost_of,
    count_of,
    entry_of,
    ids_of,
    list_of,
    object_of,
    routed_of,
    shown,
    text_of,
    whole_of,
)
from eagletui.providers.usual_events import Choice

FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "word": "stop",
    "length": "length",
    "limit": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "error": "error",
    "abort": "error",
}
"""Finish reasons as servers spell them, llama.cpp's `stop_type` and SGLang's `abort` included."""

_KIND_ORDER: Final[tuple[ReasoningKind, ...]] = ("encrypted", "summary", "text")
"""The least readable kind names the whole: one encrypted piece makes the reasoning incomplete."""

_RARE_IN_ENVELOPE: Final = frozenset({"error", "__verbose", "prompt_token_ids", "openrouter_metadata"})
_RARE_IN_CHOICE: Final = frozenset({"error", "prompt_token_ids", "stop_reason", "matched_stop"})
_BESIDE_CONTENT: Final = frozenset({"reasoning", "reasoning_content", "reasoning_details", "tool_calls", "refusal"})
"""Fields that most events of a stream lack, so that those events are read in a few steps."""


class ReplyReader:
    """Collects the pieces of one reply; lives for one call."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.model: str | None = None
        self.endpoint: str | None = None
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.kinds: set[ReasoningKind] = set()
        self.calls: dict[int, ToolCall] = {}
        self.finish: FinishReason | None = None
        self.native: str | None = None
        self.stopped_by: int | str | None = None
        self.names_stop = False
        self.billed: Usage | None = None
        self.token_ids: tuple[int, ...] | None = None
        self.prompt_token_ids: tuple[int, ...] | None = None
        self.logprobs: list[LogprobEntry] = []
        self.saw_logprobs = False
        self.deltas: list[Delta] = []
        self.refusal: list[str] = []
        self.error: str | None = None
        self.routed: Routed | None = None
        self.notes: dict[str, None] = {}

    def note(self, phrase: str) -> None:
        self.notes.setdefault(phrase)

    def envelope(self, root: JsonObject) -> None:
        """Fields beside the choices."""
        self.id = self.id or text_of(root.get("id"))
        self.model = self.model or text_of(root.get("model"))
        self.endpoint = self.endpoint or text_of(root.get("provider"))
        if _RARE_IN_ENVELOPE.isdisjoint(root):
            return
        self.read_error(root.get("error"))
        self.routed = routed_of(root.get("openrouter_metadata")) or self.routed
        verbose = root.get("__verbose")
        if isinstance(verbose, Mapping):
            self.token_ids = ids_of(verbose.get("tokens"), "__verbose.tokens") or self.token_ids
        prompt_ids = ids_of(root.get("prompt_token_ids"), "prompt_token_ids")
        self.prompt_token_ids = prompt_ids if prompt_ids is not None else self.prompt_token_ids

    def read_error(self, error: object) -> None:
        if error is None:
            return
        message = error.get("message") if isinstance(error, Mapping) else error
        self.error = self.error or clean_line(str(message), width=300)

    def first_choice(self, root: JsonObject, *, streamed: bool = False) -> JsonObject:
        """The choice at index 0, or {} when there is none."""
        choices = root.get("choices")
        if choices is None and ("error" in root or (streamed and "usage" in root)):
            return {}
        if not isinstance(choices, list | tuple):
            raise ReplyError(f"field choices: found {shown(choices)}, expected a list of choices")
        if not choices:
            if not streamed:
                self.note("the reply has no choices")
            return {}
        if len(choices) == 1 and type(choices[0]) is dict and choices[0].get("index", 0) == 0:
            return choices[0]
        objects = [object_of(choice, f"choices[{index}]") for index, choice in enumerate(choices)]
        first = next((choice for choice in objects if choice.get("index", 0) == 0), None)
        if len(objects) > 1:
            self.note("only the first of several choices is read")
        return first if first is not None else {}

    def choice(self, choice: JsonObject) -> None:
        """Finish reason, ids and errors of a choice."""
        if choice.get("finish_reason") is None and "delta" in choice and _RARE_IN_CHOICE.isdisjoint(choice):
            self.native = self.native or text_of(choice.get("native_finish_reason"))
            return
        self.read_error(choice.get("error"))
        ids = ids_of(choice.get("prompt_token_ids"), "choices[0].prompt_token_ids")
        self.prompt_token_ids = ids if ids is not None else self.prompt_token_ids
        if "delta" not in choice:
            ids = ids_of(choice.get("token_ids", choice.get("output_ids")), "choices[0].token_ids")
            self.token_ids = ids if ids is not None else self.token_ids
        stopped_by = choice.get("stop_reason", choice.get("matched_stop"))
        if isinstance(stopped_by, int | str) and not isinstance(stopped_by, bool):
            self.stopped_by = stopped_by
        raw = text_of(choice.get("finish_reason"))
        native = text_of(choice.get("native_finish_reason"))
        self.native = self.native or native or raw
        if raw is None:
            return
        self.names_stop = self.names_stop or "stop_reason" in choice or "matched_stop" in choice
        finish = FINISH_REASONS.get(raw.lower())
        if finish is None:
            self.note(f"unknown finish reason {shown(raw)}")
        elif self.finish is None:
            self.finish = finish
        elif finish != self.finish:
            self.note(f"a second finish chunk said {finish}")

    def native_finish(self, root: JsonObject, meta: JsonObject) -> None:
        """llama.cpp's `stop_type` and SGLang's `finish_reason` object."""
        reason = meta.get("finish_reason")
        raw = reason.get("type") if isinstance(reason, Mapping) else root.get("stop_type", reason)
        self.choice({"delta": {}, "finish_reason": raw})
        word = root.get("stopping_word") or (reason.get("matched") if isinstance(reason, Mapping) else None)
        if isinstance(word, int | str) and not isinstance(word, bool):
            self.stopped_by = word

    def message(self, message: JsonObject) -> None:
        """A whole assistant message."""
        content, inline = self._content(message.get("content"))
        self.content.extend(content)
        self.reasoning.extend(inline)
        self.reasoning.extend(self._reasoning(message))
        self._refusal(message.get("refusal"))
        for index, call in enumerate(list_of(message.get("tool_calls"))):
            self._call(call, index)

    def delta(self, delta: JsonObject, ids: tuple[int, ...] | None, count: int | None) -> None:
        """One streamed event."""
        text = delta.get("content")
        if type(text) is str and _BESIDE_CONTENT.isdisjoint(delta):
            text = whole_of(text)
            self.content.append(text)
            self.deltas.append(Delta(text, "", False, ids, count))
            return
        content, inline = self._content(delta.get("content"))
        reasoning = [*inline, *self._reasoning(delta)]
        self.content.extend(content)
        self.reasoning.extend(reasoning)
        self._refusal(delta.get("refusal"))
        calls = list_of(delta.get("tool_calls"))
        for position, call in enumerate(calls):
            self._call(call, position)
        if content or reasoning or calls or ids or count is not None:
            joined, thought = "".join(content), "".join(reasoning)
            self.deltas.append(Delta(joined, thought, bool(calls), ids, count))

    def usual(self, choice: Choice) -> None:
        """The choice of a usual event; says what `delta` and `entries` say of its JSON."""
        text = choice.delta.content
        text = text if text.isascii() else whole_of(text)
        self.content.append(text)
        self.deltas.append(Delta(text))
        if choice.logprobs is not None and choice.logprobs.content:
            self.saw_logprobs = True
            for entry in choice.logprobs.content:
                self.logprobs.append(LogprobEntry(whole_of(entry.token), bytes(entry.bytes), entry.logprob))

    def _refusal(self, value: object) -> None:
        if isinstance(value, str) and value:
            self.refusal.append(value)

    def _content(self, value: object) -> tuple[list[str], list[str]]:
        """Content text, and reasoning that stands inside a content list."""
        if value is None:
            return [], []
        if isinstance(value, str):
            return [whole_of(value)], []
        if not isinstance(value, list | tuple):
            raise ReplyError(f"field content: found {shown(value)}, expected text or a list of parts")
        self.note("content arrived as a list of parts")
        content: list[str] = []
        reasoning: list[str] = []
        for part in value:
            if isinstance(part, str):
                content.append(whole_of(part))
                continue
            part = object_of(part, "content[]")
            thought = part.get("thinking", part.get("reasoning"))
            if thought is not None:
                pieces = list_of(thought)
                texts = (
                    [thought] if isinstance(thought, str) else [object_of(p, "thinking[]").get("text") for p in pieces]
                )
                reasoning += [whole_of(text) for text in texts if isinstance(text, str)]
                self.kinds.add("text")
            elif isinstance(part.get("text"), str):
                content.append(whole_of(part["text"]))
            else:
                self.note(f"a content part of type {shown(part.get('type'))} is not text")
        return content, reasoning

    def _reasoning(self, message: JsonObject) -> list[str]:
        """Reasoning under any of its names, each text once."""
        details = list_of(message.get("reasoning_details"))
        from_details: list[str] = []
        for detail in details:
            detail = object_of(detail, "reasoning_details[]")
            kind = text_of(detail.get("type")) or ""
            if kind.endswith("encrypted"):
                self.kinds.add("encrypted")
            elif kind.endswith("summary"):
                self.kinds.add("summary")
                from_details += [text for text in [text_of(detail.get("summary"))] if text]
            elif kind.endswith("text"):
                self.kinds.add("text")
                from_details += [text for text in [text_of(detail.get("text"))] if text]
            else:
                self.note(f"unknown kind of reasoning {shown(kind)}")
        named = [message.get(name) for name in ("reasoning", "reasoning_content")]
        texts = [whole_of(value) for value in named if isinstance(value, str) and value]
        if len(texts) > 1 and texts[0] != texts[1]:
            self.note("reasoning and reasoning_content differ; the first is used")
        if texts:
            if not details:
                self.kinds.add("text")
            return texts[:1]
        return [whole_of(text) for text in from_details]

    def _call(self, value: object, position: int) -> None:
        """A tool call or a fragment of one."""
        call = object_of(value, "tool_calls[]")
        function = object_of(call.get("function") or {}, "tool_calls[].function")
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping | list):
            self.note("tool arguments arrived as an object, not as text")
            arguments = json.dumps(arguments, ensure_ascii=False, default=str)
        index = count_of(call.get("index"))
        index = position if index is None else index
        known = self.calls.get(index, ToolCall(None, "", ""))
        self.calls[index] = ToolCall(
            id=known.id or text_of(call.get("id")),
            name=known.name + (text_of(function.get("name")) or ""),
            arguments=known.arguments + (text_of(arguments) or ""),
        )

    def entries(self, logprobs: object) -> None:
        """`logprobs.content` of a choice, or the arrays of the text completions API."""
        if not isinstance(logprobs, Mapping):
            return
        if isinstance(logprobs.get("tokens"), list):
            self.saw_logprobs = True
            for token in logprobs["tokens"]:
                self.logprobs.append(entry_of({"token": token}))
        content = logprobs.get("content")
        if isinstance(content, list | tuple):
            self.saw_logprobs = self.saw_logprobs or bool(content)
            self.logprobs += [entry_of(object_of(entry, "logprobs.content[]")) for entry in content]

    def usage(self, root: JsonObject) -> int | None:
        """Keep the latest usage and return its completion count."""
        value = root.get("usage")
        if value is None:
            return None
        usage = object_of(value, "usage")
        details = usage.get("completion_tokens_details")
        reasoning = count_of(details.get("reasoning_tokens")) if isinstance(details, Mapping) else None
        reasoning = reasoning if reasoning is not None else count_of(usage.get("reasoning_tokens"))
        cached = usage.get("prompt_tokens_details")
        completion = count_of(usage.get("completion_tokens", usage.get("output_tokens")))
        self.billed = Usage(
            prompt_tokens=count_of(usage.get("prompt_tokens", usage.get("input_tokens"))),
            completion_tokens=completion,
            reasoning_tokens=reasoning,
            cached_tokens=count_of(cached.get("cached_tokens")) if isinstance(cached, Mapping) else None,
            cost_pico_usd=cost_of(usage),
        )
        return completion

    def reply(self, *, streamed: bool) -> Reply:
        """Put the pieces together."""
        usage = self.billed
        if usage and usage.completion_tokens is not None and (usage.reasoning_tokens or 0) > usage.completion_tokens:
            self.note("the reply counts more reasoning tokens than completion tokens")
        kind: ReasoningKind | None = min(self.kinds, key=_KIND_ORDER.index, default=None)
        if streamed and any(delta.token_ids for delta in self.deltas):
            self.token_ids = tuple(token_id for delta in self.deltas for token_id in delta.token_ids or ())
        return Reply(
            generation_id=self.id,
            model=self.model,
            endpoint=self.endpoint,
            content="".join(self.content) if self.content else None,
            reasoning="".join(self.reasoning) if self.reasoning else None,
            reasoning_kind=kind,
            tool_calls=tuple(self.calls[index] for index in sorted(self.calls)),
            finish_reason=self.finish,
            native_finish_reason=self.native,
            usage=usage,
            token_ids=self.token_ids,
            prompt_token_ids=self.prompt_token_ids,
            logprobs=tuple(self.logprobs) if self.saw_logprobs or self.logprobs else None,
            deltas=tuple(self.deltas) if streamed else None,
            stopped_by=self.stopped_by,
            names_stop=self.names_stop,
            refusal="".join(self.refusal) or None,
            error=self.error,
            routed=self.routed,
            notes=tuple(self.notes),
        )
