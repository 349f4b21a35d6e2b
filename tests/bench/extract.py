"""Tokens per CPU second and memory of feature extraction, against the two loops that people write themselves.

`python -m tests.bench.extract [--quick]`. Ours is the local engine as it runs: no head, hooks on four streams, several
samples in a row, each seeing itself. The baselines are transformers with all hidden states and logits, one sample at a
time, and in batches of 8 in the order of arrival, padded. Random weights in bfloat16, one thread, nothing is written.
Times are CPU seconds of this process, so that other work on the machine does not count; memory is what a process of
its own holds at most above the loaded model, over the longest samples of the job. Lengths are lognormal as in the
reference job, so that batches of 8 in the order of arrival are 40 % real tokens.
"""

import argparse
import ctypes
import json
import multiprocessing
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from eagletui.core.features import feature_layers
from eagletui.extract import widened
from eagletui.extract.backends.local import LocalBackend
from eagletui.extract.capture import TOLERANCE, Capture
from eagletui.extract.shards import IdsSample
from eagletui.models.load import TargetModel, load_target

Job = Callable[[Sequence[torch.Tensor]], Iterator[torch.Tensor]]

ROUNDS: Final = 5
SAMPLES: Final = 40
LONGEST: Final = 4
"""Samples of the job's full lengths that memory is measured with: the longest ones set the peak."""
PADDED_BATCH: Final = 8
MEAN_TOKENS: Final = 270
MAX_TOKENS: Final = 1024
ASKED: Final = {
    "tokens_per_s_vs_one_by_one": (1.05, "at least"),
    "tokens_per_s_vs_padded": (3.0, "at least"),
    "peak_memory_vs_one_by_one": (0.8, "at most"),
}

_SPREAD: Final = 0.9
"""Of the logarithm of lengths: batches of 8 in arrival order are then about 40 % real tokens."""


@dataclass(frozen=True, slots=True)
class Size:
    """A Llama-like model and how long the samples are that go through it."""

    hidden: int
    inner: int
    heads: int
    layers: int
    vocabulary: int
    shorter: int = 1
    """Samples have one part in so many of the job's lengths, so that batches are padded as much."""


WHOLE: Final = Size(hidden=768, inner=2048, heads=12, layers=9, vocabulary=8192)
"""76M weights; the head is 9 % of the matrix work, near an 8B model's 6.5 %."""
QUICK: Final = Size(hidden=384, inner=1024, heads=6, layers=8, vocabulary=4096, shorter=3)
WHOLE_NARROW: Final = Size(hidden=320, inner=864, heads=5, layers=8, vocabulary=2048)
"""For CPUs without units for bfloat16, where the baselines multiply eight times slower: 10M weights, head 7 %."""
QUICK_NARROW: Final = Size(hidden=128, inner=352, heads=2, layers=8, vocabulary=1024, shorter=4)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="end within 45 s")
    quick, narrow = options.parse_args().quick, widened.is_needed("cpu", "bfloat16")
    size = (QUICK_NARROW if narrow else QUICK) if quick else (WHOLE_NARROW if narrow else WHOLE)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        target = load_target(_random_model(Path(folder), size), dtype="bfloat16", device="cpu", threads=1)
    lengths = _lengths()
    dice = torch.Generator().manual_seed(7)
    long = [torch.randint(0, size.vocabulary, (length,), generator=dice) for length in sorted(lengths)[-LONGEST:]]
    lengths = [max(2, length // size.shorter) for length in lengths]
    samples = [torch.randint(0, size.vocabulary, (length,), generator=dice) for length in lengths]
    capture = Capture(target, feature_layers(target.num_layers))
    with closing(LocalBackend(capture, lambda *_: None)) as backend:
        jobs: dict[str, Job] = {
            "ours": lambda part: _ours(backend, part),
            "one_by_one": lambda part: _one_by_one(target, part),
            "padded": lambda part: _padded(target, part),
        }
        # First in processes of their own: what an allocator keeps from one job would hide the next one's need.
        peak = {name: _peak_bytes(jobs[name], long) for name in ("ours", "one_by_one")}
        error = _median_error(list(jobs["ours"](samples)), list(jobs["one_by_one"](samples)))
        seconds: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(ROUNDS):
            for name, job in jobs.items():
                seconds[name].append(_cpu_seconds(job, samples))
        mode = backend.choice
    _print(size, lengths, seconds, peak, error, mode)
    if not error <= TOLERANCE["bfloat16"]:
        raise SystemExit(1)


def _random_model(folder: Path, size: Size) -> Path:
    config = LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=MAX_TOKENS,
        tie_word_embeddings=False,
    )
    torch.manual_seed(7)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


def _lengths() -> list[int]:
    dice = random.Random(7)
    middle = torch.tensor(float(MEAN_TOKENS)).log().item() - _SPREAD**2 / 2
    return [min(MAX_TOKENS, max(16, round(dice.lognormvariate(middle, _SPREAD)))) for _ in range(SAMPLES)]


def _ours(backend: LocalBackend, samples: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Compute as the extractor does, and yield the streams in the order of the samples' rows."""
    asked = [IdsSample(str(at), tuple(ids.tolist()), (1,) * len(ids)) for at, ids in enumerate(samples)]
    for computed in backend.compute(asked, lambda: True):
        assert computed.hidden_states is not None
        yield computed.hidden_states


def _one_by_one(target: TargetModel, samples: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Compute all states and logits of one sample after the other."""
    for ids in samples:
        with torch.inference_mode():
            out = target.model(input_ids=ids[None], output_hidden_states=True, use_cache=False)
        yield _kept(out, target.num_layers, 0, len(ids))


def _padded(target: TargetModel, samples: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Compute all states and logits of batches in the order of arrival, padded to the longest sample."""
    for start in range(0, len(samples), PADDED_BATCH):
        batch = samples[start : start + PADDED_BATCH]
        ids = torch.nn.utils.rnn.pad_sequence(list(batch), batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(sample) for sample in batch], batch_first=True)
        with torch.inference_mode():
            out = target.model(input_ids=ids, attention_mask=mask, output_hidden_states=True, use_cache=False)
        for row, sample in enumerate(batch):
            yield _kept(out, target.num_layers, row, len(sample))


def _kept(out: Any, layers: int, row: int, tokens: int) -> torch.Tensor:
    """Pick what a trainer wants of transformers' output, [T, 4, H]; its last state is after the norm."""
    wanted = (*feature_layers(layers).entering, layers)
    return torch.stack([out.hidden_states[index][row, :tokens] for index in wanted], dim=1)


def _cpu_seconds(job: Job, samples: Sequence[torch.Tensor]) -> float:
    began = time.process_time()
    for _ in job(samples):
        pass
    return time.process_time() - began


def _peak_bytes(job: Job, samples: Sequence[torch.Tensor]) -> int:
    """Run a job in a copy of this process, and return the most memory it held above what it began with."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_measure_peak, args=(job, samples, there))
    child.start()
    there.close()
    peak: int = here.recv()
    child.join()
    return peak


def _measure_peak(job: Job, samples: Sequence[torch.Tensor], answer: Connection) -> None:
    for _ in job([sample[:2] for sample in samples]):  # loads the code of the kernels, which is no data
        pass
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before would hide what is needed now (man 3 malloc_trim)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins at what is held now (man 5 proc)
    before = _status_bytes("VmRSS")
    for _ in job(samples):
        pass
    answer.send(_status_bytes("VmHWM") - before)


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {field}: memory is measured on Linux only.")


def _median_error(ours: Sequence[torch.Tensor], plain: Sequence[torch.Tensor]) -> float:
    """Compare the three auxiliary streams; packs may come in another order than the samples, lengths tell which."""
    errors = []
    for states in ours:
        rows = [other for other in plain if len(other) == len(states)]
        errors.append(
            min(float((states[:, :3] - other[:, :3]).float().norm() / other[:, :3].float().norm()) for other in rows)
        )
    return statistics.median(errors)


def _print(
    size: Size,
    lengths: Sequence[int],
    seconds: dict[str, list[float]],
    peak: dict[str, int],
    error: float,
    mode: str,
) -> None:
    tokens = sum(lengths)
    rate = {name: tokens / statistics.median(took) for name, took in seconds.items()}
    padded_tokens = sum(
        max(part) * len(part)
        for part in (lengths[at : at + PADDED_BATCH] for at in range(0, len(lengths), PADDED_BATCH))
    )
    ratio = {
        "tokens_per_s_vs_one_by_one": round(rate["ours"] / rate["one_by_one"], 3),
        "tokens_per_s_vs_padded": round(rate["ours"] / rate["padded"], 3),
        "peak_memory_vs_one_by_one": round(peak["ours"] / peak["one_by_one"], 3),
    }
    print(f"{len(lengths)} samples, {tokens:,} tokens, {ROUNDS} rounds, CPU time of one thread, bfloat16, {size}")
    print(f"real tokens in batches of {PADDED_BATCH}: {tokens / padded_tokens:.0%}; {mode}")
    print(f"{'':38} {'tokens/s':>9}  {'slowest':>9}  {'fastest':>9}  {'peak':>9}")
    for name, title in (
        ("ours", "the local engine"),
        ("one_by_one", "all states and logits, one by one"),
        ("padded", f"the same, batches of {PADDED_BATCH}, padded"),
    ):
        slow, fast = tokens / max(seconds[name]), tokens / min(seconds[name])
        most = f"{peak[name] / 2**20:>5.1f} MiB" if name in peak else "-"
        print(f"{title:38} {rate[name]:>9,.0f}  {slow:>9,.0f}  {fast:>9,.0f}  {most:>9}")
    for name, (asked, how) in ASKED.items():
        print(f"{name:38} {ratio[name]:>9.3f}  asked: {how} {asked}")
    print(f"auxiliary streams differ from the plain ones by {error:.1e} (median over samples)")
    print(
        json.dumps(
            {
                "name": "extract",
                "ratio": ratio,
                "raw": {
                    **{f"{name}_tokens_per_s": round(value) for name, value in rate.items()},
                    **{f"{name}_peak_bytes": value for name, value in peak.items()},
                    "tokens": tokens,
                    "real_share_padded": round(tokens / padded_tokens, 3),
                    "median_error": error,
                },
                "machine": {"python": platform.python_version(), "processor": platform.machine()},
            }
        )
    )


if __name__ == "__main__":
    main()
