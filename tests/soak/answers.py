"""Sound answers without end, for the watch campaign: real ones resampled, in the mixtures that jobs have.

Sources: answers of SmolLM2 that the package replays, the captured replies of `tests/data/captures` or of a folder of
the caller's, Python's own documentation as long prose with code, and sentences in eight languages. An answer is a piece
of one source text, cut where a sentence ends, so that lengths and endings vary as a model's do.
"""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from eagletui.core.chat import Message, Prompt, ToolCall
from eagletui.core.reply import Reply
from eagletui.embedded.data import tokenizer_dir
from eagletui.embedded.replay import load_recordings
from eagletui.tokens.load import load_tokenizer

CAPTURES: Final = Path(__file__).parents[1] / "data" / "captures"
_REPLAY: Final = (
    Path(import_module("eagletui.embedded").__file__ or "").parent / "data" / "replay" / "smollm2.jsonl.zst"
)

_SENTENCES: Final = {
    "de": (
        "Die Bahn fährt heute wegen der Bauarbeiten nur bis zum Hauptbahnhof. "
        "Wer weiter will, nimmt den Bus. "
        "Das Wasser kocht bei hundert Grad, in den Bergen aber früher. "
        "Ein Apfel am Tag ist gesund, sagt man. "
        "Zwischen den beiden Städten liegen dreißig Kilometer. "
        "Ich würde zuerst die Daten sichern und danach das System neu starten. "
        "Der Grund dafür ist einfach."
    ),
    "fr": (
        "La ville se trouve au bord de la mer et compte deux cent mille habitants. "
        "Il faut d'abord laver les légumes, puis les couper en morceaux. "
        "Cette méthode est plus rapide, mais elle demande davantage de mémoire. "
        "Nous avons choisi une autre route parce que le pont était fermé. "
        "Le résultat dépend de la température et de la pression."
    ),
    "es": (
        "El río nace en las montañas y cruza toda la región. "
        "Para resolver el problema conviene dividirlo en partes pequeñas. "
        "La primera versión se publicó hace diez años y todavía funciona. "
        "No hay una respuesta única a esta pregunta. "
        "Los datos muestran que el consumo baja en invierno. "
        "Después se añade el aceite y se mezcla con cuidado."
    ),
    "ru": (
        "Москва стоит на реке и является крупнейшим городом страны. "
        "Сначала нужно проверить входные данные, а затем запустить программу. "
        "Этот способ проще, но он работает медленнее. "
        "Книга вышла в прошлом году и сразу стала популярной. "
        "Вода замерзает при нуле градусов. "
        "Мы рассмотрим три примера и сравним результаты."
    ),
    "zh": (
        "北京是中国的首都，有三千多年的历史。"
        "首先需要检查输入的数据，然后再运行程序。"
        "这个方法比较简单，但是速度慢一些。"
        "春天的时候公园里有很多花。"
        "我们可以把问题分成三个部分来讨论。"
        "水在一百度的时候沸腾。"
        "这本书介绍了机器学习的基本概念。"
    ),
    "ja": (
        "東京は日本の首都であり、人口は約千四百万人です。"
        "まず入力データを確認し、その後でプログラムを実行します。"
        "この方法は簡単ですが、少し時間がかかります。"
        "春になると公園にはたくさんの花が咲きます。"
        "次の三つの点について説明します。"
    ),
    "ar": (
        "القاهرة هي عاصمة مصر وأكبر مدنها. "
        "يجب أولا التحقق من البيانات ثم تشغيل البرنامج. "
        "هذه الطريقة أبسط ولكنها أبطأ. "
        "يغلي الماء عند مئة درجة. "
        "يمكن تقسيم المسألة إلى ثلاثة أجزاء صغيرة. "
        "صدر الكتاب في العام الماضي."
    ),
    "hi": (
        "दिल्ली भारत की राजधानी है और यहाँ बहुत लोग रहते हैं। "
        "पहले डेटा की जाँच करें और फिर प्रोग्राम चलाएँ। "
        "यह तरीका सरल है लेकिन थोड़ा धीमा है। "
        "पानी सौ डिग्री पर उबलता है। "
        "हम तीन उदाहरण देखेंगे और परिणामों की तुलना करेंगे।"
    ),
}
_ASKED: Final = {
    "de": "Erkläre mir das bitte kurz in eigenen Worten: ",
    "fr": "Explique-moi cela en quelques phrases : ",
    "es": "Explícame esto en pocas frases: ",
    "ru": "Объясни, пожалуйста, своими словами: ",
    "zh": "请用自己的话简单解释一下：",
    "ja": "自分の言葉で簡単に説明してください：",
    "ar": "اشرح هذا باختصار من فضلك: ",
    "hi": "कृपया इसे अपने शब्दों में समझाएँ: ",
}
_WORDS: Final = (
    "river engine budget garden window market planet signal letter forest harbour copper metal violin".split()
)
_TOOLS: Final = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string"},
                        "count": {"type": "integer"},
                        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                    },
                    "required": ["city", "count"],
                },
            },
        }
        for name in ("get_weather", "search_flights", "find_hotel")
    ]
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt and its answer."""

    prompt: Prompt
    reply: Reply
    dataset: str


@dataclass(frozen=True, slots=True)
class Mixture:
    """What a job asks for: weights of the kinds of answers."""

    name: str
    weights: dict[str, float]
    reasoning: float = 0.0
    """Share of answers that show reasoning."""
    cut: float = 0.05
    """Share cut by the token limit."""
    abroad: float = 0.0
    """Share of English prompts that are answered in Chinese, at a stable rate."""


MIXTURES: Final = (
    Mixture("chat", {"prose": 5, "capture": 3, "replay": 2, "short": 2, "list": 1, "code": 1}),
    Mixture("code", {"code": 6, "prose": 2, "table": 1, "json": 1}, reasoning=0.4),
    Mixture("tools", {"call": 6, "prose": 2, "short": 2}, reasoning=0.2),
    Mixture("world", {"prose": 3, "de": 1, "fr": 1, "es": 1, "ru": 1, "zh": 2, "ja": 1, "ar": 1, "hi": 1}, abroad=0.07),
    Mixture("short", {"short": 8, "json": 2}, cut=0.0),
    Mixture("noisy", {"replay": 5, "capture": 5}, cut=0.5),
    Mixture("loops", {"table": 4, "list": 4, "hex": 2, "code": 2}, reasoning=1.0, cut=0.15),
    Mixture("all", {"prose": 4, "capture": 2, "replay": 2, "short": 2, "list": 1, "code": 3, "table": 1, "json": 1,
                    "call": 3, "zh": 1, "ru": 1, "de": 1}, reasoning=0.3, abroad=0.03),
)  # fmt: skip


@dataclass
class Answers:
    """Draws exchanges from a seed."""

    seed: int
    captures: Path = CAPTURES
    _dice: random.Random = field(init=False)
    _texts: dict[str, list[tuple[str, str]]] = field(init=False)

    def __post_init__(self) -> None:
        """Read the sources."""
        self._dice = random.Random(self.seed)
        self._texts = _sources(self.captures)

    def draw(self, mixture: Mixture, kind: str | None = None) -> Exchange:
        """Draw one exchange of a mixture."""
        dice = self._dice
        kinds = list(mixture.weights)
        kind = kind or dice.choices(kinds, [mixture.weights[name] for name in kinds])[0]
        asked, text = self._pair(kind)
        calls: tuple[ToolCall, ...] = ()
        if kind == "call" and dice.random() < 0.8:
            calls, text = self._calls(), text if dice.random() < 0.3 else ""
        if mixture.abroad and kind in ("prose", "short") and dice.random() < mixture.abroad:
            text = self._abroad("zh")
        is_cut = not calls and dice.random() < mixture.cut
        text = self._piece(text, is_cut=is_cut) if kind in ("prose", "capture", "replay") and text else text
        reasoning = None
        if dice.random() < mixture.reasoning:
            reasoning = self._piece(dice.choice(self._texts["prose"])[1], is_cut=False)
        reply = Reply(
            generation_id=None,
            model=None,
            endpoint=None,
            content=text or None,
            reasoning=reasoning,
            reasoning_kind="text" if reasoning else None,
            tool_calls=calls,
            finish_reason="length" if is_cut else "tool_calls" if calls else "stop",
            native_finish_reason=None,
            usage=None,
        )
        return Exchange(Prompt((Message("user", asked),), _TOOLS if kind == "call" else None), reply, mixture.name)

    def _pair(self, kind: str) -> tuple[str, str]:
        dice = self._dice
        word, number = dice.choice(_WORDS), dice.randrange(10_000)
        if kind in ("prose", "capture", "replay"):
            name, text = dice.choice(self._texts[kind])
            return (f"Explain {name} to me, as case {number}." if kind != "capture" else name), text
        if kind in _SENTENCES:
            return f"{_ASKED[kind]}{self._abroad(kind)[:40]}", self._abroad(kind)
        if kind == "code":
            name, block = dice.choice(self._texts["code"])
            return f"Write code about {name}: def example_{number}()", f"```python\n{block.rstrip()}\n```"
        if kind == "short":
            return f"Is {number} larger than {dice.randrange(10_000)}?", dice.choice(
                ("Yes.", "No.", "No", f"{number}", "It is.")
            )
        if kind == "call":
            return f"What is the weather near the {word} in Oslo in {number} hours?", f"I look at the {word} for you."
        return f"Give me a {kind} of {number} {word}s.", self._structured(kind, word)

    def _structured(self, kind: str, word: str) -> str:
        dice, rows = self._dice, self._dice.randint(3, 40)
        if kind == "table":
            lines = [f"| {word} {row} | {dice.randrange(5)} | yes |" for row in range(rows)]
            return "\n".join(["| name | count | kept |", "|---|---|---|", *lines])
        if kind == "list":
            return "\n".join(
                f"- {dice.choice(_WORDS)} {'and more of the same for everyone' * dice.randint(0, 1)}"
                for _ in range(rows)
            )
        if kind == "hex":
            return "\n".join(["0x00, 0x00, 0x00, 0x00," for _ in range(rows)]) + "\nThat is all."
        value = {
            f"{dice.choice(_WORDS)}_{row}": dice.choice((row, "yes", None, [1, 2])) for row in range(min(rows, 12))
        }
        return json.dumps(value, indent=dice.choice((None, 2)))

    def _abroad(self, language: str) -> str:
        pieces = re.findall(r"[^.。।]+[.。।]\s?", _SENTENCES[language])
        return "".join(self._dice.choices(pieces, k=self._dice.randint(2, 7))).strip()

    def _piece(self, text: str, *, is_cut: bool) -> str:
        """Take a piece whose length is drawn as answers' are; it ends with a sentence unless it is cut."""
        dice = self._dice
        wanted = int(min(6_000, dice.lognormvariate(6.2, 0.7)))
        start = text.find("\n", dice.randrange(max(1, len(text) - wanted))) + 1
        piece = text[start : start + wanted].strip() or text[:wanted].strip()
        ends = [found.end() for found in re.finditer(r"[.!?](?=\s|$)", piece)]
        return piece if is_cut or not ends else piece[: ends[-1]]

    def _calls(self) -> tuple[ToolCall, ...]:
        dice = self._dice
        made = []
        for number in range(dice.choice((1, 1, 1, 2))):
            arguments: dict[str, Any] = {"city": dice.choice(("Oslo", "München", "京都")), "count": dice.randrange(9)}
            if dice.random() < 0.5:
                arguments["unit"] = dice.choice(("celsius", "fahrenheit"))
            name = dice.choice(("get_weather", "search_flights", "find_hotel"))
            made.append(ToolCall(f"call_{number}", name, json.dumps(arguments, ensure_ascii=dice.random() < 0.5)))
        return tuple(made)


@cache
def _sources(captures: Path) -> dict[str, list[tuple[str, str]]]:
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    prose = [(name, text) for name, text in sorted(topics.items()) if len(text) > 600]
    blocks = re.compile(r"(?:^ {4,}.*\n?){4,}", re.MULTILINE)
    code = [(name, block) for name, text in prose for block in blocks.findall(text)]
    return {"prose": prose, "code": code, "capture": _captured(captures), "replay": _replayed()}


def _captured(folder: Path) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name in ("smollm2-vllm-text", "smollm2-llamacpp-logprobs", "kimi-shaped-replies"):
        for row in _rows(folder / f"{name}.jsonl"):
            text = row["response"]["choices"][0]["message"].get("content")
            if text and "literal-special" not in row["id"]:
                pairs.append((row["request"]["messages"][-1]["content"], text))
    return pairs


def _replayed() -> list[tuple[str, str]]:
    vocabulary = load_tokenizer(tokenizer_dir()).vocabulary
    ends = set(vocabulary.specials.values())
    return [
        (row.id, vocabulary.decode([i for i in row.output_ids if i not in ends]).decode("utf-8", "replace"))
        for row in load_recordings(_REPLAY)
    ]


def _rows(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def with_content(exchange: Exchange, content: str | None) -> Exchange:
    """Return an exchange whose answer has another content."""
    return replace(exchange, reply=replace(exchange.reply, content=content))
