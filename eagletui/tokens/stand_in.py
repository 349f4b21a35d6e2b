"""Use tiktoken's encoder in place of Hugging Face's where both give the same ids, at several times the speed."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import tiktoken

from eagletui.core.vocabulary import Vocabulary, byte_level_bytes

Encode = Callable[[str], list[int]]

COMPARISON_CORPUS: Final = (
    "The quick brown fox doesn't jump over 12345 lazy dogs; it's 3.14159 o'clock, isn't it? WE'LL SEE.",
    "def fibonacci(n: int) -> int:\n    if n < 2:\n        return n\n\treturn fibonacci(n - 1) + fibonacci(n-2)\r\n",
    '{"MAX_RETRY_COUNT": 100, "ratio": 1.0, "note": "d\\u00e9j\\u00e0 vu", "nested": [null, true, {"k": "v"}]}',
    "日本語のテキストと漢字、그리고 한국어 문장입니다. 这是一个中文句子。Привет, мир! Γειά σου Κόσμε. مرحبا بالعالم",
    "emoji 🎉🇫🇷👩‍👩‍👧‍👦 💌 flags 🏳️‍🌈 and math ∑∫√ ½ ² Ⅷ ①②",
    "   leading and trailing   \n\n\n\t\ttabs\u00a0nbsp\u2003em\u3000ideographic \r\n \n  \n",
    "e\u0301 decomposed, \u00e9 composed, \u1100\u1161\u11a8 jamo, a\u0308o\u0308u\u0308 \ufffd \u200b\u200d",
    "<|im_end|> </think> <|tool_call_begin|> literal structure stays ordinary text",
    "SELECT * FROM t WHERE a>=10 AND b!='x' -- comment\n/* block */ {{{{}}}} ======== ________ ----------------",
    "CamelCaseIdentifier snake_case_identifier kebab-case HTTPServerError XMLHttpRequest iOS15.2 v2.0.1-rc.3",
    "http://example.com/path?query=1&other=%20#frag user@example.org C:\\Users\\name\\file.txt 192.168.0.1:8080",
    "1 22 333 4444 55555 666666 7777777 88888888 ١٢٣ ४५६ 1,000,000.00 1e-9 0xDEADBEEF",
)
"""Texts on which pre-tokenizers are known to differ: contractions, digits, spaces, scripts, marks, newlines."""

_GPT2_PATTERN: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The regex of the `ByteLevel` pre-tokenizer (`use_regex`)."""

_ABSENT: Final = -1
"""Stands for a byte that the vocabulary lacks: Hugging Face's BPE without `unk_token` leaves it out."""


def fast_encoder(
    document: Mapping[str, Any], vocabulary: Vocabulary, reference: Encode
) -> tuple[Encode, tuple[str, ...]]:
    """Choose the encoder to use.

    Args:
        document: a `tokenizer.json`; tiktoken files are read by tiktoken already.
        vocabulary: of the same file.
        reference: the family's own encoder.

    Returns:
        The stand-in when one can be built and gives the reference's ids on every text of the comparison
        corpus, else the reference; and a note in either case worth telling.
    """
    pattern = _single_pattern(document.get("pre_tokenizer"))
    ranks = _ranks_in_merge_order(document["model"], vocabulary) if pattern else None
    if pattern is None or ranks is None:
        return reference, ()
    order, ids = ranks
    try:
        encoding = tiktoken.Encoding("stand-in", pat_str=pattern, mergeable_ranks=order, special_tokens={})
    except (ValueError, KeyError):  # a pattern or a table that tiktoken cannot take
        return reference, ()
    take = ids.__getitem__
    absent = ids.index(_ABSENT) if _ABSENT in ids else None

    def encode(text: str) -> list[int]:
        found = list(map(take, encoding.encode_ordinary(text)))
        return found if absent is None else [token_id for token_id in found if token_id != _ABSENT]

    for text in COMPARISON_CORPUS:
        if encode(text) != reference(text):
            return reference, ("A faster encoder gave other ids on the comparison corpus and is not used",)
    return encode, ()


def _single_pattern(node: Any) -> str | None:
    """One tiktoken pattern that splits as the pre-tokenizer does, or None where there is none known."""
    if not isinstance(node, Mapping):
        return None
    stages = node.get("pretokenizers") if node.get("type") == "Sequence" else [node]
    match stages:
        case [{"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}]:
            return _GPT2_PATTERN
        case [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False},
        ]:
            # Digits are cut off first, so blanks before a digit end their piece and stay together.
            return _GPT2_PATTERN.replace(r" ?\p{N}+", r"\p{N}").replace(r"\s+(?!\S)", r"\s+(?![^\s\p{N}])")
        case [
            {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "use_regex": False, "add_prefix_space": False},
        ]:
            return pattern
    return None


def _ranks_in_merge_order(
    model: Mapping[str, Any], vocabulary: Vocabulary
) -> tuple[dict[bytes, int], list[int]] | None:
    """Number the pieces by merge priority, as tiktoken wants them, with the id of each number.

    tiktoken merges any two neighbours whose union is a piece, the table only the pairs it lists. On trained
    tables the order makes that the same; the comparison corpus and the live checks stand guard.

    Returns:
        None where the table is of another kind or names pieces that the vocabulary lacks.
    """
    if model.get("type") != "BPE" or model.get("dropout") or model.get("byte_fallback"):
        return None
    order: dict[bytes, int] = {bytes([byte]): byte for byte in range(256)}
    for merge in model["merges"]:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        piece = byte_level_bytes(left + right)
        if piece is None:
            return None
        order.setdefault(piece, len(order))
    ids = [vocabulary.id_of(piece) for piece in order]
    if None in ids[256:]:
        return None
    return order, [_ABSENT if token_id is None else token_id for token_id in ids]
