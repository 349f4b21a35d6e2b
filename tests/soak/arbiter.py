"""The arbiter's campaign: kill -9 at random moments, and answers sampled for the purpose whose ids are known.

`python -m tests.soak.arbiter kills [--kills N] [--seed N]` kills `eagletui arbitrate RUN` again and again. After each
death every answer is labelled as before or as it will be, with all that belongs to it; in the end the ledger holds what
an undisturbed run of the same answers gives. Exit 1 if it does not.

`python -m tests.soak.arbiter answers [--samples N] [--seed N] [--temperature T] [--top-p P] [--said T]` lets llama.cpp
sample answers of the demo's model, keeps text and bill alone, asks the arbiter, and prints how many are exact before
and after, and stated posteriors against observed ones, with the bill and without. `--said` records another temperature
than was sampled at: then the answers must be a finding. Exit 1 where they are not, or where answers of the model are.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch

from eagletui.arbitration import of_run as arbitrating
from eagletui.arbitration.of_run import arbitrate_run
from eagletui.cli.app import main as eagletui
from eagletui.embedded.asks import Ask, AskMessage
from eagletui.embedded.data import tokenizer_dir, weights_path
from eagletui.embedded.llama import ModelBackend, start_model
from eagletui.ledger.reader import LedgerReader
from eagletui.runs.folder import RunFolder
from eagletui.tokens.load import Tokenizer, load_tokenizer
from tests.kept_run import kept
from tests.text_run import Bought, buy_texts
from tests.unigram_model import save_unigram_model

ANSWERS: Final = 60
DEADLINE_S: Final = 120.0
WRITTEN_AFTER_S: Final = 0.1
"""Between two transactions, so that deaths fall into many."""

SUBJECTS: Final = (
    "a lighthouse keeper",
    "binary heaps",
    "the history of tea",
    "ギリシャ料理",
    "the moons of Jupiter",
    "una bicicleta azul",
    "gRPC against REST",
    "snow leopards 🐆",
    "compound interest",
    "Осень в лесу",
)
FORMS: Final = (
    "Write a short paragraph about {}.",
    "Write Python code that has to do with {}. Only code.",
    "Make a markdown table about {}.",
    "Give JSON that describes {}.",
    "List ten UPPER_CASE_IDENTIFIERS for a program about {}.",
    "Write three tweets with emoji about {}.",
)
MOST_TOKENS: Final = 110


class Broken(Exception):
    """A promise was not kept."""


def main() -> None:
    """Run a campaign and print its figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("campaign", choices=("kills", "answers"))
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--kills", type=int, default=10)
    options.add_argument("--samples", type=int, default=30)
    options.add_argument("--temperature", type=float, default=1.0)
    options.add_argument("--top-p", type=float, default=1.0)
    options.add_argument("--said", type=float, default=None)
    asked = options.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="soak-arbiter-") as place:
        if asked.campaign == "kills":
            _print_deaths(kill_at_random(Path(place), asked.kills, random.Random(asked.seed)))
            return
        sampling = {"temperature": asked.temperature, "top_p": asked.top_p}
        lines = asyncio.run(_sampled(asked.samples, asked.seed, sampling, asked.said))
    file = Path(place).with_suffix(".jsonl")
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    try:
        is_sound = asked.said in (None, asked.temperature)
        for flags in ([], ["--ignore-count"]) if is_sound else ([],):
            _print_answers(_arbitrated(file, flags), is_sound=is_sound)
    finally:
        file.unlink()


@dataclass
class Deaths:
    """Figures of a run that was killed."""

    kills: int = 0
    decided: list[int] = field(default_factory=list)
    """Answers with an opinion after each death."""
    answers: int = 0
    changed: int = 0
    """By the undisturbed run."""


def kill_at_random(place: Path, kills: int, dice: random.Random) -> Deaths:
    """Kill arbitrations until so many have died.

    Args:
        place: an empty folder.
        kills: deaths wanted.
        dice: chooses texts and moments.

    Raises:
        Broken: an answer is neither as before nor as it should be, or the end is not that of an undisturbed run.
    """
    tokenizer = load_tokenizer(tokenizer_dir())
    josh, j, osh, good = (tokenizer.encode(text)[0] for text in (" Josh", " J", "osh", " good"))
    end = tokenizer.vocabulary.specials["<|im_end|>"]
    chances = {j: 0.2, osh: 0.2, good: 0.2, end: 0.2, josh: 1e-9}
    model = save_unigram_model(place / "model", tokenizer.vocabulary.size, chances)
    whole = buy_texts(place / "whole", [_text(dice) for _ in range(ANSWERS)], tokenizer)
    before = _state(whole)
    fresh = RunFolder(Path(shutil.copytree(whole.path, place / "fresh")))
    summary = arbitrate_run(whole, model, threads=1)
    after, steps = _state(whole), summary["asked"]
    deaths = Deaths(answers=ANSWERS, changed=summary["changed"])
    while deaths.kills < kills:
        run = RunFolder(Path(shutil.copytree(fresh.path, place / f"run-{deaths.kills}")))
        while deaths.kills < kills and _decided(run) < steps:
            if not _dies(run, model, dice.randrange(1, steps), dice.uniform(0.0, 0.05)):
                break
            deaths.kills += 1
            deaths.decided.append(_decided(run))
            _look(run, before, after)
        arbitrate_run(run, model, threads=1)
        if _state(run) != after or _findings(run) != _findings(whole):
            raise Broken(f"{run.name} ended otherwise than the undisturbed run")
    return deaths


def _text(dice: random.Random) -> Bought:
    """Words of which one has a likelier cut than its canonical one, which the bill shows."""
    words = dice.choices((" good", " Josh"), weights=(3, 1), k=dice.randrange(3, 12))
    return Bought("".join(words), words.count(" Josh"))


def _dies(run: RunFolder, model: Path, after_asks: int, later_s: float) -> bool:
    """Start an arbitration and kill it soon after so many answers; False where it ended before."""
    asks = multiprocessing.get_context("fork").Semaphore(0)
    process = multiprocessing.get_context("fork").Process(target=_arbitrate, args=(run, model, asks))
    process.start()
    for _ in range(after_asks):
        while not asks.acquire(timeout=0.05):
            if process.exitcode is not None:
                return _ended(process.exitcode)
    process.join(later_s)
    process.kill()
    process.join(DEADLINE_S)
    return _ended(process.exitcode)


def _ended(code: int | None) -> bool:
    if code not in (0, -9):
        raise Broken(f"an arbitration ended with {code}")
    return code == -9


def _arbitrate(run: RunFolder, model: Path, asks: Any) -> None:
    arbitrating.EVERY_S = WRITTEN_AFTER_S  # type: ignore[misc]
    arbitrate_run(run, model, threads=1, progress=lambda _done, _of: asks.release())


Row = tuple[Any, ...]


def _state(run: RunFolder) -> dict[str, Row]:
    """All that is known of each answer: ids, labels, and the opinion without its time."""
    with LedgerReader(run.ledger_path) as reader:
        opinions = {row.sample_key: row for row in reader.opinions()}
    state: dict[str, Row] = {}
    for item in kept(run):
        row, tokens, opinion = item.row, item.tokens, opinions.get(item.row.sample_key)
        assert tokens is not None
        said = None
        if opinion is not None:
            said = (opinion.question, opinion.posterior, opinion.margin, opinion.changed, opinion.inferred)
        ids = tuple(tokens.output_ids or ())
        state[row.sample_key] = (ids, row.evidence, row.usability, row.drift_tokens, tokens.reason, tokens.spans, said)
    return state


def _findings(run: RunFolder) -> list[tuple[str, str]]:
    with LedgerReader(run.ledger_path) as reader:
        return sorted((row.kind, row.sentence) for row in reader.findings() if row.closed_at is None)


def _decided(run: RunFolder) -> int:
    with LedgerReader(run.ledger_path) as reader:
        return len(reader.opinions())


def _look(run: RunFolder, before: Mapping[str, Row], after: Mapping[str, Row]) -> None:
    state = _state(run)
    if state.keys() != before.keys():
        raise Broken(f"{len(state)} answers, expected {len(before)}")
    for key, row in state.items():
        if row not in (before[key], after[key]):
            raise Broken(f"{key} is half decided: {row}")


def _print_deaths(deaths: Deaths) -> None:
    print(f"{deaths.kills} deaths of an arbitration of {deaths.answers} answers, {deaths.changed} of them to change")
    print(f"answers decided and kept after each death: {', '.join(map(str, deaths.decided))}")
    print("no answer was half decided, and every run ended as an undisturbed one")
    print(json.dumps({"name": "arbiter", "kills": deaths.kills, "decided": deaths.decided}))


async def _sampled(samples: int, seed: int, sampling: Mapping[str, float], said: float | None) -> list[dict[str, Any]]:
    """Let the demo's model answer, and keep text, bill and the ids that no API would show."""
    tokenizer = load_tokenizer(tokenizer_dir())
    backend = await start_model(tokenizer.vocabulary, slots=4, threads=1)
    try:
        prompts = [form.format(subject) for subject, form in product(SUBJECTS, FORMS)]
        chosen = random.Random(seed).choices(prompts, k=samples)
        room = asyncio.Semaphore(4)
        return list(
            await asyncio.gather(
                *(
                    _answer(backend, tokenizer, room, f"a{number:03d}", prompt, seed + number, sampling, said)
                    for number, prompt in enumerate(chosen)
                )
            )
        )
    finally:
        await backend.close()


async def _answer(
    backend: ModelBackend,
    tokenizer: Tokenizer,
    room: asyncio.Semaphore,
    name: str,
    prompt: str,
    seed: int,
    sampling: Mapping[str, float],
    said: float | None,
) -> dict[str, Any]:
    ask = Ask(
        "embedded",
        (AskMessage("user", prompt),),
        max_tokens=MOST_TOKENS,
        seed=seed,
        temperature=sampling["temperature"],
        top_p=sampling["top_p"],
    )
    async with room:
        answer = await backend.answer(ask, 0)
    vocabulary = tokenizer.vocabulary
    shown = [token_id for token_id in answer.output_ids if not vocabulary.is_special(token_id)]
    recorded = dict(sampling) if said is None else {**sampling, "temperature": said}
    return {
        "id": name,
        "request": {"messages": [{"role": "user", "content": prompt}], **recorded, "max_tokens": MOST_TOKENS},
        "response": {
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        # A character that was cut at the end is not shown; one that is broken within is a sign.
                        "content": _shown(vocabulary.decode(shown)),
                    },
                    "finish_reason": answer.finish_reason,
                }
            ],
            "usage": {"prompt_tokens": answer.prompt_tokens, "completion_tokens": len(answer.output_ids)},
        },
        "truth_ids": list(answer.output_ids),
    }


def _shown(data: bytes) -> str:
    for cut in range(4):
        try:
            return data[: len(data) - cut].decode()
        except UnicodeDecodeError:
            continue
    return data.decode("utf-8", "replace")


def _arbitrated(file: Path, flags: Sequence[str]) -> dict[str, Any]:
    options = ["--model", str(weights_path()), "--tokenizer", str(tokenizer_dir()), "--format", "smollm2"]
    printed = StringIO()
    code: object = 0
    with redirect_stdout(printed):
        try:
            eagletui(["arbitrate", str(file), *options, "--threads", "1", "--json", *flags])
        except SystemExit as end:
            code = end.code
    if code != 0:
        raise Broken(f"eagletui arbitrate ended with {code}")
    summary: dict[str, Any] = json.loads(printed.getvalue())
    return summary


def _print_answers(summary: Mapping[str, Any], *, is_sound: bool) -> None:
    with_count = "with" if summary["used_count"] else "without"
    print(
        f"{with_count} the bill: {summary['exact_before']} of {summary['samples']} exact before, {summary['exact']} "
        f"after, {summary['broken']} broken; CPU {summary['cpu_s_per_sample']:.2f} s a sample, "
        f"{summary['cpu_s_slowest']:.2f} s the slowest"
    )
    print(f"  {'stated':>8}  {'observed':>8}  {'answers':>8}")
    for row in summary["calibration"]:
        print(f"  {row['stated']:>8.3f}  {row['observed']:>8.3f}  {row['n']:>8}")
    found = [finding["sentence"] for finding in summary["findings"] if finding["kind"] == "impostor"]
    print(f"  {found[0] if found else 'the answers are what the target samples'}; {json.dumps(summary['likelihood'])}")
    if bool(found) == is_sound:
        raise Broken("the target's own answers are a finding" if is_sound else "another sampling is no finding")


if __name__ == "__main__":
    main()
