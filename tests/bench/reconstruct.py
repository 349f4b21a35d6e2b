"""Tokens rebuilt per second, against encoding the same texts with Hugging Face's tokenizers.

`python -m tests.bench.reconstruct [--quick]`. Ours is the whole job over text replies: parse the body, lay out the raw
text, count, encode, judge. The baseline is the bare `Tokenizer.encode` of the same texts, one thread, in the same run.
"""

import argparse
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer as HfTokenizer

from eagletui.core.reply import Reply
from eagletui.embedded.data import tokenizer_dir
from eagletui.providers.parse import parse_body
from eagletui.tokens.answer import Rebuilt, rebuild
from eagletui.tokens.formats import load_format, load_profile
from eagletui.tokens.load import load_tokenizer

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
SAMPLE_TOKENS = 3_450
"""Mean answer of a run of 40,000 samples and 138M tokens."""
RUN_TOKENS = 138_000_000


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="end within 45 s")
    quick = options.parse_args().quick
    tokenizer = load_tokenizer(tokenizer_dir())
    library = HfTokenizer.from_file(str(tokenizer.folder / "tokenizer.json"))
    library.encode_special_tokens = True
    fmt, profile = load_format("smollm2"), load_profile("kept")
    texts = corpus(120 if quick else 1_000)
    expected = [encoding.ids for encoding in library.encode_batch(texts, add_special_tokens=False)]
    tokens = sum(map(len, expected))
    bodies = [body(text, len(ids) + 1) for text, ids in zip(texts, expected, strict=True)]

    def by_library() -> list[list[int]]:
        return [library.encode(text, add_special_tokens=False).ids for text in texts]

    def by_encoder() -> list[list[int]]:
        return [tokenizer.encode(text) for text in texts]

    def by_rebuilding() -> list[Rebuilt]:
        replies: list[Reply] = [parse_body(data) for data in bodies]
        return [rebuild(reply, tokenizer, fmt, profile, max_tokens=None) for reply in replies]

    rebuilt = by_rebuilding()
    same = sum(list(found.output_ids or ())[:-1] == ids for found, ids in zip(rebuilt, expected, strict=True))
    counted = sum(found.evidence == "counted" for found in rebuilt)
    rounds = 3 if quick else 5
    seconds: dict[str, list[float]] = {"library": [], "encoder": [], "rebuilding": []}
    jobs: dict[str, Callable[[], object]] = {
        "library": by_library,
        "encoder": by_encoder,
        "rebuilding": by_rebuilding,
    }
    for _ in range(rounds):
        for name, job in jobs.items():
            began = time.process_time()
            job()
            seconds[name].append(time.process_time() - began)
    rate = {name: tokens / statistics.median(took) for name, took in seconds.items()}
    ratio = rate["rebuilding"] / rate["library"]
    print(f"{len(texts):,} answers, {tokens:,} tokens of SmolLM2, {rounds} rounds, CPU time of one thread")
    print(f"{'':34} {'tokens/s':>12}  {'of the library':>14}  {'138M tokens':>11}")
    for name, title in (
        ("library", "tokenizers library, encode only"),
        ("encoder", "our encoder, encode only"),
        ("rebuilding", "parse, rebuild and judge replies"),
    ):
        share = rate[name] / rate["library"]
        print(f"{title:34} {rate[name]:>12,.0f}  {share:>13.2f}x  {RUN_TOKENS / rate[name]:>9.0f} s")
    print(f"ids equal to the library's: {same:,} of {len(texts):,} answers; counted: {counted:,}")
    print(
        json.dumps(
            {
                "name": "reconstruct",
                "ratio": {"tokens_per_s_vs_hf": round(ratio, 3)},
                "raw": {
                    **{f"{name}_tokens_per_s": round(value) for name, value in rate.items()},
                    "same_ids": same,
                    "answers": len(texts),
                    "tokens": tokens,
                    "run_138m_tokens_s": round(RUN_TOKENS / rate["rebuilding"], 1),
                },
                "machine": {"python": platform.python_version(), "processor": platform.machine()},
            }
        )
    )
    if same != len(texts):
        raise SystemExit(1)


def corpus(number: int) -> list[str]:
    """Answers of realistic length, put together from recorded model output and this project's own code."""
    pieces: list[str] = []
    for name in ("smollm2-vllm-text", "smollm2-llamacpp-logprobs", "kimi-shaped-replies"):
        for line in (CAPTURES / f"{name}.jsonl").read_text("utf-8").splitlines():
            message = json.loads(line)["response"]["choices"][0]["message"]
            pieces += [text for text in (message.get("content"), message.get("reasoning")) if text]
    for path in sorted((Path(__file__).parents[2] / "eagletui" / "core").glob("*.py")):
        source = path.read_text("utf-8")
        pieces += [source[at : at + 1_500] for at in range(0, len(source), 1_500)]
    dice = random.Random(7)
    texts: list[str] = []
    for _ in range(number):
        length, chosen = 0, []
        while length < SAMPLE_TOKENS * 3:
            chosen.append(dice.choice(pieces))
            length += len(chosen[-1])
        texts.append("\n\n".join(chosen).replace("\ufffd", "?"))
    return texts


def body(text: str, billed: int) -> bytes:
    """A reply that was billed exactly what canonical encoding counts, the stop token included."""
    reply = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": billed},
    }
    return json.dumps(reply).encode()


if __name__ == "__main__":
    main()
