"""Load a tokenizer folder without remote code.

`tokenizer.json`, or `tiktoken.model` with `tokenizer_config.json`; anything else only as transformers converts it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
from tokenizers import Tokenizer as HfTokenizer

from eagletui.core.errors import TokenizerError
from eagletui.core.vocabulary import Vocabulary
from eagletui.tokens.conversion import converted_by_transformers
from eagletui.tokens.id_range import check_ids
from eagletui.tokens.kimi_tiktoken import load_tiktoken_folder
from eagletui.tokens.stand_in import fast_encoder

JsonObject = Mapping[str, Any]

_UNICODE_NORMALIZERS = frozenset(
    {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "BertNormalizer", "Nmt", "Precompiled"}
)

UnicodeForm = Literal["NFC", "NFD", "NFKC", "NFKD"]
_FORMS: tuple[UnicodeForm, ...] = ("NFC", "NFD", "NFKC", "NFKD")

Encoder = Callable[[str], list[int]]
"""Canonical encoding of ordinary text: no special token is ever recognised in it."""


@dataclass(frozen=True)
class Tokenizer:
    """A loaded tokenizer: its vocabulary and the canonical encoding of ordinary text."""

    folder: Path
    """Where it was read from."""
    vocabulary: Vocabulary
    hash: str
    """sha256 of the tokenizer file, hex."""
    chat_template: str | None
    """Jinja source, or None when the folder has none."""
    config: JsonObject
    """tokenizer_config.json, or {}."""
    generation_config: JsonObject
    """generation_config.json, or {}."""
    notes: tuple[str, ...]
    """What was switched off or substituted while loading, one sentence each."""
    prompt_form: UnicodeForm | None
    """Unicode form that the tokenizer puts prompts into ("NFC"); None where it changes nothing. Answers keep theirs."""
    reference: Encoder = field(repr=False, compare=False)
    """The family's own encoder."""
    encoder: Encoder = field(repr=False, compare=False)
    """The reference, or a faster stand-in that gave the same ids on the comparison corpus."""

    def encode(self, text: str) -> list[int]:
        """Encode ordinary text canonically, with special tokens and unicode normalisation off.

        A special token's literal text in `text` becomes ordinary pieces. Structure is inserted by id elsewhere.
        """
        return self.encoder(text) if text else []

    def agrees_with_reference(self, text: str) -> bool:
        """Encode once more with the family's own encoder and compare: the live check of a stand-in."""
        return self.encoder is self.reference or self.encode(text) == self.reference(text)

    def without_stand_in(self) -> "Tokenizer":
        """The same tokenizer with the family's own encoder, for after a difference was seen."""
        return replace(self, encoder=self.reference)

    def remembering(self) -> "Tokenizer":
        """The same tokenizer for one piece of work: no text is encoded twice."""
        known: dict[str, list[int]] = {}

        def encode(text: str) -> list[int]:
            ids = known.get(text)
            if ids is None:
                ids = known[text] = self.encoder(text)
            return ids

        return replace(self, encoder=encode)

    @property
    def eos_token(self) -> str | None:
        """The `eos_token` of tokenizer_config.json. Not always what ends an answer."""
        value = self.config.get("eos_token")
        if isinstance(value, Mapping):
            value = value.get("content")
        return value if isinstance(value, str) else None


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a folder; the same files are built into tables once in a process.

    Args:
        folder: holds `tokenizer.json`, or `tiktoken.model` and `tokenizer_config.json`, or files that transformers
            (where it is installed) converts without remote code.

    Raises:
        TokenizerError: nothing loadable is there, or a file is damaged.
    """
    folder = Path(folder)
    if folder.is_file():
        folder = folder.parent
    if not folder.is_dir():
        raise TokenizerError(f"Tokenizer folder {folder}: found nothing, expected a folder with tokenizer.json")
    config = _json_file(folder / "tokenizer_config.json")
    generation_config = _json_file(folder / "generation_config.json")
    template = _chat_template(folder, config)
    notes: tuple[str, ...] = ()
    if (folder / "tokenizer.json").exists():
        path = folder / "tokenizer.json"
        source = path.read_bytes()
    elif (folder / "tiktoken.model").exists():
        path = folder / "tiktoken.model"
        source = path.read_bytes()
    else:
        path = folder / "tokenizer.json"
        source = converted_by_transformers(folder)
        notes = ("Neither tokenizer.json nor tiktoken.model is there: transformers converted the folder",)
    digest = hashlib.sha256(source).hexdigest()
    # Kimi's special tokens stand in the config.
    key = (digest, json.dumps(config) if path.name == "tiktoken.model" else "")
    tables = _known.get(key)
    if tables is None:
        tables = _tables(path, source, config)
        while len(_known) >= _KEPT:
            del _known[next(iter(_known))]
        _known[key] = tables
    return Tokenizer(
        folder=folder,
        vocabulary=tables.vocabulary,
        hash=digest,
        chat_template=template,
        config=config,
        generation_config=generation_config,
        notes=(*tables.notes, *notes, *tables.substitution),
        prompt_form=tables.prompt_form,
        reference=tables.reference,
        encoder=tables.encoder,
    )


class _Tables(NamedTuple):
    """What is built of a tokenizer file, at the price of a second."""

    vocabulary: Vocabulary
    notes: tuple[str, ...]
    """What was switched off."""
    prompt_form: UnicodeForm | None
    reference: Encoder
    encoder: Encoder
    substitution: tuple[str, ...]
    """Why a faster encoder is not used."""


_KEPT: Final = 2
"""Tables held at once: a command works with one tokenizer, a comparison with two."""

_known: Final[dict[tuple[str, str], _Tables]] = {}
"""By the content of the files, the oldest first."""


def _tables(path: Path, source: bytes, config: JsonObject) -> _Tables:
    if path.name == "tiktoken.model":
        vocabulary, reference, notes = load_tiktoken_folder(path.parent, source, config)
        return _Tables(vocabulary, notes, None, reference, reference, ())
    document = _document(path, source)
    vocabulary, reference, notes, prompt_form = _load_json(path, document)
    encoder, substitution = fast_encoder(document, vocabulary, reference)
    return _Tables(vocabulary, notes, prompt_form, reference, encoder, substitution)


def _document(path: Path, source: bytes) -> Any:
    try:
        return json.loads(source)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TokenizerError(f"{path}: found damaged JSON ({error}), expected a Hugging Face tokenizer.json") from error


def _load_json(path: Path, document: Any) -> tuple[Vocabulary, Encoder, tuple[str, ...], UnicodeForm | None]:
    """Read a Hugging Face tokenizer.json: pieces, encoder, notes and the unicode form of prompts."""
    try:
        model = document["model"]
        vocab = model["vocab"]
        if not isinstance(vocab, dict):
            raise TokenizerError(f"{path}: field model.vocab: found a {type(vocab).__name__}, expected a BPE table")
        added = document.get("added_tokens") or []
        structural = {token["content"]: token["id"] for token in added if _is_structural(token, vocab)}
        check_ids(f"{path}: field model.vocab", vocab.items())
        check_ids(f"{path}: field added_tokens", structural.items())
    except (KeyError, TypeError, AttributeError) as error:
        raise TokenizerError(f"{path}: found no {error} where a Hugging Face tokenizer.json has one") from error
    notes: list[str] = []
    if _mentions(document.get("decoder"), "ByteLevel") or _mentions(document.get("pre_tokenizer"), "ByteLevel"):
        vocabulary = Vocabulary.from_byte_level(vocab, structural)
    elif model.get("byte_fallback"):
        vocabulary = Vocabulary.from_sentencepiece(vocab, structural)
    else:
        raise TokenizerError(
            f"{path}: found a {model.get('type', 'nameless')} model without byte-level pieces, "
            "expected byte-level BPE or BPE with byte fallback"
        )
    normalizer, dropped = _without_unicode_normalizers(document.get("normalizer"))
    plain = {
        **document,
        "added_tokens": [token for token in added if not _is_structural(token, vocab)],
        "post_processor": None,
        "truncation": None,
        "padding": None,
        "normalizer": normalizer,
    }
    if dropped:
        notes.append(
            f"The tokenizer normalises text ({', '.join(dropped)}); that is off here, the model can write both"
        )
    try:
        encoder = HfTokenizer.from_buffer(msgspec.json.encode(plain))
    except Exception as error:  # the binding raises bare Exception
        raise TokenizerError(f"{path}: cannot be built ({error}); is the file complete?") from error

    def encode(text: str) -> list[int]:
        return encoder.encode(text, add_special_tokens=False).ids

    form = next((name for name in _FORMS if name in dropped), None)
    return vocabulary, encode, tuple(notes), form


def _is_structural(token: JsonObject, vocab: JsonObject) -> bool:
    """Added tokens are structure, save those that the base vocabulary lists as plain text (Gemma's markup)."""
    return bool(token.get("special")) or token["content"] not in vocab


def _mentions(node: object, kind: str) -> bool:
    """Tell whether a tokenizer.json component of this type is anywhere in the tree."""
    if isinstance(node, dict):
        return node.get("type") == kind or any(_mentions(value, kind) for value in node.values())
    return isinstance(node, list) and any(_mentions(value, kind) for value in node)


def _without_unicode_normalizers(node: Any) -> tuple[Any, list[str]]:
    """Keep what the byte mapping needs (Gemma's space to `▁`), drop what changes text."""
    if not isinstance(node, dict):
        return None, []
    if node.get("type") == "Sequence":
        kept, dropped = [], []
        for child in node.get("normalizers", []):
            remaining, lost = _without_unicode_normalizers(child)
            dropped += lost
            if remaining is not None:
                kept.append(remaining)
        return ({"type": "Sequence", "normalizers": kept} if kept else None), dropped
    if node.get("type") in _UNICODE_NORMALIZERS:
        return None, [str(node["type"])]
    return node, []


def _json_file(path: Path) -> JsonObject:
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TokenizerError(f"{path}: found damaged JSON ({error}), expected an object") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: found a {type(value).__name__}, expected an object")
    return value


def _chat_template(folder: Path, config: JsonObject) -> str | None:
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise TokenizerError(f"{path}: found bytes that are not UTF-8, expected a Jinja template") from error
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None
