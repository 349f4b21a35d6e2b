"""Runs for the screen tests: a real ledger written by the real writer, with samples in every state."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from eagletui.core.chat import Message, Prompt
from eagletui.core.gauges import ExtractorDetail, Gpu, Machine
from eagletui.core.tokdiff import align
from eagletui.core.vocabulary import Vocabulary, pack_vocabulary
from eagletui.embedded.data import tokenizer_dir
from eagletui.ledger.create import create_ledger
from eagletui.ledger.orders import AdmitRequest, Answered, Failed, Feature, Finished, NewPrompt, TokensResult
from eagletui.ledger.writer import LedgerWriter
from eagletui.ledger.writer_extract import ExtractorWriter
from eagletui.tokens.load import Tokenizer, load_tokenizer

START: Final = 1_760_000_400.0
"""2025-10-09 09:00:00 UTC."""

HOSTILE: Final = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;owned\x07title",
    "\x1b]52;c;ZWNobyBvd25lZA==\x1b\\clipboard",
    "\x9d52;c;AAAA\x9cclip",
    "\x9b2Jclear",
    "\x1b[2J\x1b[H",
    "\x1bP+q544e\x1b\\dcs",
    "\x1b_Gi=31;AAAA\x1b\\kitty",
    "\x1b[?1049lleave",
    "\x1bcreset",
    "[/foo]",
    "[b]bold[/b]",
    "[",
    "[/",
    "[type=x, v={'a[0]'}]",
    "[@click=app.quit]click[/]",
    "$x [$warning]",
    "\u202egnp.exe",
    "\u2066isolate\u2069",
    "zero\u200bwidth\u200d\ufeff",
    "lone \ud800 surrogate",
    "bell\x07 back\x08\x08 cr\rover",
    "nul\x00 del\x7f",
    "tab\tvertical\x0bform\x0c",
    "line\nfeed\r\nand\u2028separators\u2029",
    "z\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301algo",
    "\u7051\u53f0\u5b88" * 200,
    "x" * 20_000,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f \U0001f1eb\U0001f1f7",
    "tag\U000e0041\U000e007f",
    "%s %d {0} {x!r} \\e[31m",
    "",
    "\x1b[8mhidden\x1b[28m \x1b[5mblink",
    "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]1337;File=inline=1:AAAA\x07image",
    "\x1b[6n\x1b[c\x1b[>q asks the terminal",
    "\x1b[20~\x1b[201~ pastes",
    "\x90q#0;2;0;0;0\x9csixel",
    "\x8d\x84\x85next\x88line",
    "\U0001d173\u180e\u3164fillers\uffa0",
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u200f right to left",
    "'; DROP TABLE samples; -- \\' \"",
    "\ud83d\ude00 two surrogates",
)

_TEXTS: Final = (
    "Eira kept the lamp the way her mother had: wick trimmed, glass wiped with vinegar.\n\nThe fog rolled in.",
    "def parse(text: str) -> list[str]:\n    return [line.strip() for line in text.splitlines() if line]\n",
    '{"name": "lighthouse", "height_m": 41.5, "lit": true, "keepers": ["Eira", "Tomas"]}',
    "灯台守は毎晩ランプを磨いた。霧が深い夜には鐘を鳴らす。",
    "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG AND RUNS INTO THE NIGHT.",
    "It was windy 🌊 and naïve sailors—breathless—counted the seconds between flashes.",
)
_EVIDENCE: Final = ("streamed", "logprobs", "streamed", "counted", "logprobs", "canonical")
_ENDPOINTS: Final = {"streamed": "embedded/stream", "logprobs": "embedded/logprobs"}
HOLD_PICO: Final = 400_000_000
COST_PICO: Final = 112_345_678
EXTRACTING: Final = ExtractorDetail(
    phase="extracting",
    samples=10,
    rows=800,
    rows_per_s=214.3,
    row_bytes=18_448,
    follows=True,
    machine=Machine(
        cpu_percent=187.4,
        cores=2,
        resident_bytes=2_254_857_830,
        memory_free_bytes=11_811_160_064,
        memory_total_bytes=16_750_372_454,
        gpus=(Gpu("NVIDIA H200", 83, 65_712_999_629, 150_109_028_352),),
    ),
)
"""What the extractor says of itself."""


@dataclass
class Clock:
    """A clock that stands still until told otherwise."""

    now: float = START

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


@dataclass(frozen=True)
class Built:
    """A run folder and what was put in it."""

    path: Path
    clock: Clock
    keys: dict[str, str]
    """A sample key by what is special about it."""

    @property
    def ledger(self) -> Path:
        """The ledger file."""
        return self.path / "ledger.sqlite"

    def writer(self) -> LedgerWriter:
        """Open the engine's side; close it after use."""
        return LedgerWriter(self.ledger, self.clock)


@cache
def tokenizer() -> Tokenizer:
    """The demo model's tokenizer."""
    return load_tokenizer(tokenizer_dir())


def split_one(ids: Sequence[int], vocabulary: Vocabulary, skip: int) -> list[int]:
    """Cut one token of a list into two with the same bytes, as a model sometimes samples them."""
    for index, token_id in enumerate(ids):
        if index < skip or vocabulary.is_special(token_id):
            continue
        data = vocabulary.bytes_of(token_id)
        for cut in range(1, len(data)):
            left, right = vocabulary.id_of(data[:cut]), vocabulary.id_of(data[cut:])
            if left is not None and right is not None:
                return [*ids[:index], left, right, *ids[index + 1 :]]
    raise AssertionError("no token can be cut")


def empty_run(path: Path, name: str = "b3-magicoder", clock: Clock | None = None) -> Built:
    """A run that was just created: no prompts, no worker."""
    clock = clock or Clock()
    for folder in ("", "logs", "locks", "provider", "features/shards", "exports"):
        (path / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    create_ledger(
        path / "ledger.sqlite",
        name=name,
        config_json=_config_json(name),
        model_id="huggingfacetb/smollm2-135m-instruct",
        format="smollm2",
        stop_at_pico=90 * 10**9,
        cap_pico=150 * 10**9,
        max_in_flight=64,
        tokenizer_hash="9a1c" * 16,
        clock=clock,
    )
    (path / "vocabulary.msgpack").write_bytes(pack_vocabulary(tokenizer().vocabulary))
    return Built(path, clock, {})


def _config_json(name: str) -> str:
    return json.dumps(
        {
            "run": {"name": name},
            "prompts": {"path": ["/prompts/b3_magicoder.jsonl"]},
            "model": {
                "id": "huggingfacetb/smollm2-135m-instruct",
                "tokenizer": str(tokenizer_dir()),
                "format": "smollm2",
            },
            "provider": {"kind": "embedded"},
            "spend": {"stop_at_usd": "0.09", "cap_usd": "0.15"},
        }
    )


def add_prompts(built: Built, prompts: Sequence[tuple[str, str, str]]) -> None:
    """Queue samples: key, data set, text."""
    with built.writer() as writer, writer.transaction():
        source = writer.add_source("b3_magicoder.jsonl", "0" * 64, len(prompts))
        writer.add_prompts(
            [NewPrompt(key, dataset, Prompt((Message("user", text),)), text[:200]) for key, dataset, text in prompts],
            source,
        )


def result_for(text: str, evidence: str, *, resegmented: int = 0, finish: str = "stop") -> TokensResult:
    """Ids of an answer, with so many tokens cut otherwise than the canonical encoding would."""
    vocabulary = tokenizer().vocabulary
    canonical = tokenizer().encode(text)
    if finish == "stop":
        canonical.append(vocabulary.special_id("<|im_end|>"))
    proved = list(canonical)
    for number in range(resegmented):
        proved = split_one(proved, vocabulary, 4 + 7 * number)
    drift = 3 if evidence == "conflict" else 0
    return TokensResult(
        output_ids=proved,
        raw=vocabulary.decode(proved).decode(),
        evidence=evidence,
        usability="resegmented" if resegmented else "usable",
        prompt_ids=tokenizer().encode("Write about " + text[:40]),
        spans=align(proved, canonical, vocabulary),
        reason="" if evidence in ("streamed", "logprobs") else f"The reply carries no ids; best rung is {evidence}.",
        drift=None if evidence == "canonical" else drift,
        offset=None,
    )


def answer(
    writer: LedgerWriter,
    attempt_id: int,
    tokens: TokensResult,
    *,
    cost_pico: int | None = COST_PICO,
    latency_s: float = 8.4,
) -> None:
    """Finish an attempt with an answer."""
    counted = len(tokens.output_ids or ())
    outcome = Answered(
        body=json.dumps({"choices": [{"message": {"content": tokens.raw}}]}).encode(),
        encoding="json",
        cost_pico=cost_pico,
        endpoint=_ENDPOINTS.get(tokens.evidence, "embedded/text"),
        finish_reason="stop",
        latency_s=latency_s,
        billed_prompt_tokens=len(tokens.prompt_ids or ()),
        billed_output_tokens=None if tokens.drift is None else counted + tokens.drift,
        tokens=tokens,
    )
    writer.finish([Finished(attempt_id, outcome)])


def send(writer: LedgerWriter, limit: int, endpoint: str = "embedded/stream") -> list[int]:
    """Admit and send the next queued samples; give their attempts."""
    requests = [AdmitRequest(sample.id, endpoint, HOLD_PICO, True) for sample in writer.claim(limit)]
    attempts = [admission.attempt_id for admission in writer.admit(requests) if admission.attempt_id is not None]
    writer.mark_sent(attempts)
    return attempts


def stored(text: str) -> str:
    """What a text becomes on its way into a file of UTF-8: a lone surrogate cannot be written."""
    return text.encode("utf-8", "replace").decode()


def busy_run(path: Path, name: str = "b3-magicoder", *, hostile: bool = False) -> Built:
    """A run in full swing: answered, resegmented, conflicting, failed, refused, waiting and extracted samples."""
    built = empty_run(path, name)
    built.clock.now = START
    texts = [stored(HOSTILE[index % len(HOSTILE)]) if hostile else _TEXTS[index % len(_TEXTS)] for index in range(60)]
    datasets = ("b3_magicoder", "b1_glaive")
    add_prompts(
        built,
        [(f"s-{index:06}", datasets[index % 2], f"Continue: {text}") for index, text in enumerate(texts)],
    )
    with built.writer() as writer:
        for tag, label in (("embedded/stream", "Stream"), ("embedded/logprobs", "Logprobs"), ("embedded/text", "Text")):
            writer.upsert_endpoint(tag, label, "int4", "raw")
            writer.add_price(tag, prompt_usd="0.0000002", completion_usd="0.0000006")
        writer.set_run_state("running")
        writer.beat("engine", ready=True)
        writer.event("info", "engine", "started", "Engine started, 60 samples queued.")
        for index in range(40):
            built.clock.now += 3
            (attempt,) = send(writer, 1)
            built.clock.now += 9
            key = f"s-{index:06}"
            if index in (11, 23):
                detail = HOSTILE[index % 10] if hostile else "HTTP 400 context_length_exceeded: 40,960 tokens asked."
                writer.finish([Finished(attempt, Failed("void", "bad_request", detail, http_status=400))])
                writer.event("error", "engine", "failed", f"{key} failed: {detail}", key)
                built.keys["failed"] = key
                continue
            if index == 17:
                failure = Failed(
                    "settled", "content_filter", "The provider refused to answer.", COST_PICO, refused=True
                )
                writer.finish([Finished(attempt, failure)])
                built.keys["refused"] = key
                continue
            evidence = "conflict" if index == 31 else _EVIDENCE[index % len(_EVIDENCE)]
            resegmented = {6: 1, 12: 2, 25: 3}.get(index, 0)
            text = _TEXTS[index % len(_TEXTS)]
            if resegmented:
                evidence = "streamed"
                built.keys[f"spans{resegmented}"] = key
            if evidence in ("counted", "conflict"):
                built.keys[evidence] = key
            if hostile:
                text = f"{stored(HOSTILE[index % len(HOSTILE)])} {text}"
            answer(writer, attempt, result_for(text, evidence, resegmented=resegmented))
            writer.tick()
            if index % 10 == 9:
                writer.event("info", "engine", "progress", f"{index + 1} of 60 samples done.")
        writer.event(
            "warn", "engine", "resegmented", "s-000025 sampled other ids than the canonical encoding.", "s-000025"
        )
        writer.finding(
            "drift",
            "Text endpoint bills 3 tokens more than counted." if not hostile else HOSTILE[14],
            affected=1,
            examined=13,
            action="Look at the sample; quarantine the endpoint if it goes on.",
            endpoint="embedded/text",
            example_key="s-000031",
        )
        send(writer, 4)
        writer.beat("engine", ready=True)
        writer.tick()
    built.keys["first"] = "s-000000"
    gpu = Gpu(HOSTILE[1] + HOSTILE[10], 83, 1, 2)
    told = replace(EXTRACTING, phase=HOSTILE[2] + HOSTILE[20], machine=replace(EXTRACTING.machine, gpus=(gpu,)))
    _extract(built, told if hostile else EXTRACTING)
    return built


def long_run(path: Path, name: str = "b3-magicoder", *, samples: int = 600, answered: int = 400) -> Built:
    """A run with hours behind it, whose money reaches stop-at before its end at the present pace.

    An answer comes every 30 s and costs more the longer the run lasts; three endpoints differ in drift and latency.
    """
    built = empty_run(path, name)
    built.clock.now = START
    add_prompts(built, [(f"s-{index:06}", "b3_magicoder", _TEXTS[index % 6]) for index in range(samples)])
    results = {
        (text, evidence): result_for(text, evidence)
        for text in _TEXTS
        for evidence in ("streamed", "logprobs", "counted")
    }
    chance = random.Random(7)
    with built.writer() as writer:
        for tag in ("embedded/stream", "embedded/logprobs", "embedded/text"):
            writer.upsert_endpoint(tag, tag, "int4", "raw")
            writer.add_price(tag, prompt_usd="0.0000002", completion_usd="0.0000006")
        writer.set_run_state("running")
        writer.beat("engine", ready=True)
        writer.tick()
        for index in range(answered):
            (attempt,) = send(writer, 1)
            built.clock.now += 30
            tokens = results[_TEXTS[index % 6], ("streamed", "logprobs", "counted")[index % 3]]
            drift = chance.choice((0, 0, 0, 1, 1, 2, 3, -1, 5)) if tokens.evidence == "counted" else 0
            if drift:
                tokens = replace(tokens, drift=drift)
            answer(
                writer,
                attempt,
                tokens,
                cost_pico=round(COST_PICO * (1 + index / answered)),
                latency_s=round(chance.lognormvariate(2.2 if index % 3 else 2.8, 0.5), 2),
            )
            writer.tick()
        writer.set_cap(150 * 10**9)
        writer.beat("engine", ready=True)
    return built


def _extract(built: Built, told: ExtractorDetail) -> None:
    with ExtractorWriter(built.ledger, built.clock) as writer:
        writer.beat("extractor", ready=True, detail=told.detail())
        features = [Feature(sample_id, position, 80, 1) for position, sample_id in enumerate(range(1, 11))]
        writer.commit_shard("shards/000000.safetensors", features, size_bytes=14_900_000, xxh3="ab" * 16)
        writer.event("info", "extractor", "shard_sealed", "Shard 000000 sealed: 10 samples, 800 rows.")
