"""The forecast campaign: probe a job with 50 answers, buy the whole, and compare what was said with what it cost.

`python -m tests.soak.forecast [--jobs N] [--first SEED]`. Each seed is a job of its own: data sets, lengths of prompts
and answers (lognormal, some cut at max_tokens; about four prompt tokens to one of output, as in the reference job of
2,770 to 690), three endpoints, all of it through real engines on the embedded provider. Printed per job: likely and
real cost, error, whether the 90 % interval held; at the end how many were within 10 % and how many intervals held.
"""

import argparse
import contextlib
import io
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard

from eagletui.cli.app import main as eagletui
from eagletui.embedded.data import replay_path
from eagletui.embedded.market import Window
from eagletui.embedded.replay import Recording, load_recordings
from eagletui.embedded.server import ServeOptions
from tests.provider_fixture import serve_in_thread

PROBES: Final = 50
SAMPLES: Final = 300
RECORDINGS: Final = 4_000
WITHIN: Final = 0.10

CONFIG: Final = """\
[run]
name = "job"

[prompts]
path = {paths}

[model]
id = "huggingfacetb/smollm2-135m-instruct"
format = "smollm2"

[provider]
kind = "embedded"
base_url = "{base_url}"

[sampling]
max_tokens = {max_tokens}

[spend]
stop_at_usd = "5"
cap_usd = "10"

[pace]
max_in_flight = 64
generation_backoff_s = [0.05, 0.1, 0.2]

[check]
on_breach = "warn"
"""


@dataclass(frozen=True)
class Told:
    """One job: what was said and what came."""

    seed: int
    likely: Decimal
    low: Decimal
    high: Decimal
    real: Decimal

    @property
    def error(self) -> float:
        """Of the likely cost, as a share of the real one."""
        return float(self.likely / self.real - 1)

    @property
    def holds(self) -> bool:
        """The real cost lies in the interval."""
        return self.low <= self.real <= self.high


def play(seed: int, folder: Path) -> Told:
    """Probe and run one job."""
    dice = random.Random(seed)
    max_tokens = dice.choice([256, 384, 512])
    paths = _write_prompts(folder, dice)
    provider = serve_in_thread(
        ServeOptions(
            backend="replay",
            books=folder / "books.jsonl",
            latency_s=0.02,
            recordings=_write_recordings(folder, dice),
            window=Window(8_192, 1_024),
        )
    )
    config = folder / "job.toml"
    config.write_text(
        CONFIG.format(paths=json.dumps(paths), base_url=provider.api_url, max_tokens=max_tokens), encoding="utf-8"
    )
    os.environ["EAGLETUI_RUNS"] = str(folder / "runs")
    try:
        plan = _command("plan", str(config), "--probe", str(PROBES), "--json")
        before = provider.books()["spent_pico"]
        _command("run", str(config), "--headless")
        real = Decimal(provider.books()["spent_pico"] - before).scaleb(-12)
    finally:
        provider.stop()
    assert plan["learned_from"] == ["job-probe"], plan["learned_from"]
    likely = plan["likely_usd"]
    return Told(seed, Decimal(likely["likely"]), Decimal(likely["low"]), Decimal(likely["high"]), real)


def _command(*args: str) -> Any:
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as said:
            eagletui(list(args))
    except SystemExit as end:
        if end.code not in (0, 1, None):
            raise RuntimeError(f"{args[0]} ended with {end.code}: {said.getvalue()}") from end
    return json.loads(out.getvalue()) if "--json" in args else None


def _write_prompts(folder: Path, dice: random.Random) -> list[str]:
    paths = []
    datasets = dice.randint(1, 3)
    for number in range(datasets):
        middle = dice.uniform(5.6, 6.2)
        lines = []
        for index in range(SAMPLES // datasets):
            words = max(1, min(2_000, int(dice.lognormvariate(middle, 0.7))))
            text = f"{number}.{index} " + " ".join(dice.choices(("tell", "the", "story", "of", "rain"), k=words))
            lines.append(json.dumps({"id": f"{number}-{index}", "prompt": text}))
        path = folder / f"set{number}.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        paths.append(path.name)
    return paths


def _write_recordings(folder: Path, dice: random.Random) -> Path:
    """Write answers of lognormal length, their ids taken from real ones."""
    ids = [token for recording in load_recordings(replay_path()) for token in recording.output_ids[:-1]]
    middle, spread = dice.uniform(4.2, 5.0), dice.uniform(0.4, 0.9)
    lines = []
    for number in range(RECORDINGS):
        length = max(2, min(1_024, int(dice.lognormvariate(middle, spread))))
        start = dice.randrange(len(ids) - length)
        answer = Recording(f"r{number}", tuple(ids[start : start + length]), (-1.0,) * length, "stop")
        lines.append(msgspec.json.encode(answer))
    path = folder / "recordings.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(b"\n".join(lines)))
    return path


def main(argv: list[str] | None = None) -> int:
    """Play the jobs and print the figures; 1 where a promise did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.forecast", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    chosen = parser.parse_args(argv)
    told: list[Told] = []
    began = time.process_time()
    for seed in range(chosen.first, chosen.first + chosen.jobs):
        with tempfile.TemporaryDirectory(prefix="forecast-") as folder:
            one = play(seed, Path(folder))
        told.append(one)
        print(
            f"job {seed:>3}  likely ${one.likely:.6f}  [{one.low:.6f}, {one.high:.6f}]  real ${one.real:.6f}"
            f"  error {one.error:+.1%}  interval {'holds' if one.holds else 'FAILS'}",
            flush=True,
        )
    within = sum(abs(one.error) <= WITHIN for one in told)
    held = sum(one.holds for one in told)
    mean = sum(abs(one.error) for one in told) / len(told)
    print(f"{len(told)} jobs: {within} within {WITHIN:.0%}, mean error {mean:.1%}; {held} intervals held")
    figures = {"jobs": len(told), "within_10_percent": within, "intervals_held": held, "mean_error": round(mean, 4)}
    print(json.dumps({"name": "forecast", **figures, "cpu_s": round(time.process_time() - began, 1)}))
    return 0 if min(within, held) >= 0.9 * len(told) else 1


if __name__ == "__main__":
    sys.exit(main())
