"""The watch campaign: how soon is an endpoint stopped that went wrong, and is a sound one ever.

`python -m tests.soak.watch [--clean N] [--seeds N] [--captures DIR]`. Sound answers of several jobs are shown to the
content watch, from one endpoint and from several; then each degradation sets in at one endpoint. Counted are its
answers until the watch raises a finding, and findings at endpoints that were sound.
"""

import argparse
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eagletui.core.answer_traits import traits_of
from eagletui.core.findings import Finding
from eagletui.engine.content_watch import ContentWatch
from tests.soak.answers import CAPTURES, MIXTURES, Answers, Exchange, Mixture
from tests.soak.degradations import DEGRADATIONS, Degradation

PROMISED: Final = 200
SOUND_BEFORE: Final = 400
"""Sound answers of the endpoint before it goes wrong."""
ENOUGH: Final = 600
"""An endpoint that is not stopped after so many is given up."""


@dataclass
class Show:
    """Answers shown to a watch, endpoint by endpoint."""

    watch: ContentWatch = field(default_factory=lambda: ContentWatch(time.time))
    number: int = 0

    def answer(self, endpoint: str, exchange: Exchange) -> tuple[Finding, ...]:
        """Show one answer, and return the findings that stand."""
        self.number += 1
        key = f"{exchange.dataset}-{self.number}"
        self.watch.see(endpoint, key, traits_of(exchange.reply, exchange.prompt, exchange.dataset))
        return self.watch.findings(endpoint)


def sound(answers: Answers, samples: int, dice: random.Random) -> Counter[str]:
    """Show sound answers of one job after the other, and count the findings that were raised."""
    raised: Counter[str] = Counter()
    shown = 0
    while shown < samples:
        job = min(samples - shown, dice.choice((2_000, 5_000)))
        endpoints = [f"e{number}" for number in range(dice.choice((1, 1, 2, 3, 5)))]
        show, standing = Show(), set[tuple[str, str]]()
        for exchange in itertools.islice(_job(answers, job, dice), job):
            endpoint = dice.choice(endpoints)
            for finding in show.answer(endpoint, exchange):
                if (endpoint, finding.kind) not in standing:
                    standing.add((endpoint, finding.kind))
                    raised[finding.kind] += 1
                    print(f"  false: {finding.sentence}", file=sys.stderr)
        shown += job
    return raised


def _job(answers: Answers, samples: int, dice: random.Random) -> Iterator[Exchange]:
    """Draw the answers of a job: one mixture, data sets one after the other, or a mixture that moves slowly."""
    order = dice.choice(("one", "sets", "moving"))
    if order == "one":
        mixture = dice.choice(MIXTURES)
        while True:
            yield answers.draw(mixture)
    sets = dice.sample(MIXTURES, 3)
    for number in itertools.count():
        if order == "sets":
            yield answers.draw(sets[min(2, number * 3 // samples)])
        else:
            yield answers.draw(_moved(sets[0], number / samples))


def _moved(mixture: Mixture, part: float) -> Mixture:
    """Return a mixture whose first kind has become half as frequent at the end, and its last twice."""
    first, *_, last = mixture.weights
    weights = mixture.weights | {
        first: mixture.weights[first] * (1 - part / 2),
        last: mixture.weights[last] * (1 + part),
    }
    return Mixture(mixture.name, weights, mixture.reasoning, mixture.cut, mixture.abroad)


def until_stopped(
    answers: Answers, degradation: Degradation, dice: random.Random, *, endpoints: int, share: float = 1.0
) -> tuple[int | None, Finding | None, int]:
    """Let the first of some endpoints go wrong.

    Returns:
        Its answers from then on until a finding stood, None where none came; the finding; findings at others.
    """
    mixture = next(one for one in MIXTURES if one.name == "all")
    show, others = Show(), 0
    bad = 0
    for number in itertools.count():
        endpoint = f"e{number % endpoints}"
        exchange = answers.draw(mixture)
        is_bad = endpoint == "e0" and number >= SOUND_BEFORE * endpoints
        if is_bad:
            bad += 1
            exchange = degradation(exchange, dice) if dice.random() < share else exchange
        found = show.answer(endpoint, exchange)
        if found and is_bad:
            return bad, found[0], others
        others += bool(found)
        if bad >= ENOUGH:
            return None, None, others
    raise AssertionError("not reached")


def main(argv: list[str] | None = None) -> int:
    """Run the campaign and print its figures; exit 1 if an endpoint was stopped late or a sound one at all."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--clean", type=int, default=100_000, help="sound answers")
    options.add_argument("--seeds", type=int, default=3, help="times that each degradation is tried")
    options.add_argument("--captures", type=Path, default=CAPTURES, help="folder of captured replies")
    options.add_argument("--seed", type=int, default=1, help="of the sound answers")
    options.add_argument("--only", default="", help="part of a degradation's name")
    chosen = options.parse_args(argv)
    began = time.process_time()
    late: list[str] = []
    false_stops = 0
    table: dict[str, list[int | None]] = {}
    print(f"{'degradation':34} {'alone':>6} {'of 3':>6} {'a third bad':>12}   finding")
    for name, degradation in DEGRADATIONS.items():
        if chosen.only not in name:
            continue
        worst: list[int | None] = []
        words = ""
        for endpoints, share in ((1, 1.0), (3, 1.0), (3, 0.33)):
            counts: list[int | None] = []
            for seed in range(chosen.seeds):
                stopped, finding, others = until_stopped(
                    Answers(seed, chosen.captures), degradation, random.Random(seed), endpoints=endpoints, share=share
                )
                counts.append(stopped)
                false_stops += others
                words = finding.sentence if finding is not None and share == 1.0 else words
            worst.append(None if None in counts else max(count for count in counts if count is not None))
        table[name] = worst
        if any(count is None or count > PROMISED for count in worst[:2]):
            late.append(name)
        print(f"{name:34} {worst[0] or '-':>6} {worst[1] or '-':>6} {worst[2] or '-':>12}   {words[:110]}", flush=True)
    raised = sound(Answers(chosen.seed, chosen.captures), chosen.clean, random.Random(chosen.seed))
    false_stops += raised.total()
    seconds = time.process_time() - began
    print(f"\n{len(table)} degradations, {len(late)} stopped later than after {PROMISED} answers {late or ''}")
    print(f"{chosen.clean:,} sound answers, {false_stops} false stops {dict(raised) or ''}")
    figures = {"name": "watch", "until_stopped": table, "false_stops": false_stops, "clean": chosen.clean}
    print(json.dumps(figures | {"cpu_s": round(seconds, 1)}))
    return 1 if late or false_stops else 0


if __name__ == "__main__":
    sys.exit(main())
