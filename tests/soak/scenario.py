"""What happens in one run of the cap campaign, drawn from its seed alone."""

from dataclasses import dataclass
from random import Random
from typing import Final, Literal

HOLD_PICO: Final = 290_000_000
"""About the bound of one request of the campaign."""

ENDPOINTS: Final = 3
"""Of the embedded provider."""

FAULTS: Final = (
    'kind = "http_429"\nparams = { retry_after_s = 0 }',
    'kind = "http_402"',
    'kind = "http_403"',
    'kind = "http_500"\nparams = { billed = true }',
    'kind = "http_502"',
    'kind = "http_503"\nparams = { retry_after_s = 0 }',
    'kind = "mid_stream_error"',
    'kind = "mid_stream_error"\nparams = { billed = false }',
    'kind = "disconnect_before_headers"\nparams = { billed = true }',
    'kind = "disconnect_before_headers"',
    'kind = "disconnect_after_headers"',
    'kind = "slow"\nparams = { first_token_s = 0.3 }',
    'kind = "empty_choices"\nparams = { billed = true }',
    'kind = "html_from_edge"\nparams = { billed = true }',
    'kind = "error_in_200"\nparams = { billed = true }',
    'kind = "no_usage"',
    'kind = "no_generation_id"',
    'kind = "late_bill"\nparams = { after_s = 0.1 }',
    'kind = "late_bill"\nparams = { after_s = 1.2 }',
    'kind = "stalled_stream"\nparams = { stall_s = 0.3 }',
    *(
        f'kind = "{kind}"'
        for kind in (
            *("http_400", "http_401", "http_403_budget", "http_403_moderation", "http_404_price", "http_408"),
            *("http_413", "http_422", "http_429_bare", "http_503_route", "http_524", "http_529", "redirect"),
            *("slow_trickle", "wrong_content_type", "gzip_garbage", "truncated_json", "two_finish_chunks"),
            *("duplicate_chunk", "missing_done", "missing_finish", "reordered_fields", "nan_logprobs"),
            *("empty_answer", "content_filter", "no_cost", "usage_only_chunk", "usage_on_choice", "odd_cost"),
            *("excess_reasoning", "late_generation"),
        )
    ),
)
"""Every kind that keeps to its published price and leaves the key's figure true."""

LATE_EVERY: Final = 3
"""Every so many seeds begin with the following."""
LATE_S: Final = 1.4
LATE_FAULTS: Final = (
    f'[[fault]]\nkind = "late_bill"\nparams = {{ after_s = {LATE_S}, named = false }}\n'
    "match = { probability = 0.5, seed = 1 }\ntimes = 6\n"
)
"""Bills without a known generation that come when the key has been at rest for long."""

POINTS: Final = (
    "admit",
    "mark_sent",
    "launch",
    "mark_headers",
    "judge",
    "finish",
    "keep_answer",
    "keep_failure",
    "settle",
    "adjust_unattributed",
    "recover",
    "set_run_state",
    "apply_command",
)
"""Steps of the engine before or after which it can be killed; `workers.py` knows where they are in the code."""

ActName = Literal[
    "wait",
    "kill",
    "kill_receiver",
    "term",
    "term_twice",
    "kill_provider",
    "pause",
    "pause_now",
    "resume",
    "cap",
    "stop_at",
    "in_flight",
    "quarantine",
    "release",
    "retry",
]
_ACTS: Final[tuple[tuple[ActName, int], ...]] = (
    ("wait", 4),
    ("kill", 4),
    ("term", 1),
    ("term_twice", 1),
    ("kill_provider", 1),
    ("pause", 1),
    ("pause_now", 1),
    ("resume", 3),
    ("cap", 4),
    ("stop_at", 2),
    ("in_flight", 1),
)
"""What can be done to a run, with weights."""

_ORDERS: Final[tuple[ActName, ...]] = ("quarantine", "quarantine", "release", "retry")
"""Orders about many samples, with which some runs are mixed."""
_WITH_ORDERS: Final = 0.3
"""Share of these runs."""

_WITH_RECEIVERS: Final = 0.2
"""Share of the runs that take replies in a receiver process, whose start costs as much as the rest of a run."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The engine kills itself at this step."""

    point: str
    nth: int
    """The so many-th time it comes there, from 1."""
    after: bool
    """The step has been done."""


@dataclass(frozen=True, slots=True)
class Act:
    """One thing done to a living engine."""

    after_s: float
    """Waited before it."""
    name: ActName
    value: int = 0
    """Picodollars of a limit, requests in flight, or which endpoint."""


@dataclass(frozen=True, slots=True)
class Life:
    """One engine process, from its start to its death."""

    crash: Crash | None
    acts: tuple[Act, ...]


LATE_LIFE: Final = Life(None, (Act(0.3, "pause"), Act(LATE_S + 0.4, "resume"), Act(0.3, "pause_now"), Act(0.1, "wait")))
"""A run that rests until late bills have come, and then goes on to buy."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run."""

    seed: int
    samples: int
    max_tokens: int
    max_in_flight: int
    cap_pico: int
    stop_at_pico: int
    script: str
    """Faults and prices of the provider, as TOML."""
    latency_s: float
    tokens_per_s: float
    lives: tuple[Life, ...]
    """The last engine, which works in peace until the run is done, is not one of them."""
    receivers: int
    """Processes that take replies."""


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    dice = Random(seed)
    late = seed % LATE_EVERY == 0
    receivers = int(dice.random() < _WITH_RECEIVERS)
    cap_pico = dice.randint(1, 14) * HOLD_PICO
    orders = Random(f"{seed} orders")  # of their own, so that the rest of a seed is the same with them and without
    has_orders = orders.random() < _WITH_ORDERS
    return Scenario(
        seed=seed,
        samples=dice.randint(6, 18),
        max_tokens=dice.choice((24, 48, 64)),
        max_in_flight=dice.randint(1, 8),
        cap_pico=cap_pico,
        stop_at_pico=int(cap_pico * dice.uniform(0.2, 1.0)),
        script=(LATE_FAULTS if late else "") + _script(dice),
        latency_s=dice.choice((0.0, 0.01, 0.04)),
        tokens_per_s=dice.choice((400.0, 1500.0, 10_000.0)),
        lives=(LATE_LIFE,) * late
        + tuple(
            _mixed(_life(dice, receivers), orders) if has_orders else _life(dice, receivers)
            for _ in range(2 if receivers else dice.randint(2, 5))
        ),
        receivers=receivers,
    )


def _script(dice: Random) -> str:
    lines = []
    for fault in dice.sample(FAULTS, dice.randint(4, 12)):
        match = f"match = {{ probability = {dice.uniform(0.03, 0.25):.3f}, seed = {dice.randrange(10**6)} }}"
        lines += ["[[fault]]", fault, match, f"times = {dice.randint(1, 5)}"]
    for _ in range(dice.choice((0, 0, 1, 2))):
        factor = dice.choice(("0.5", "0.9", "1.3", "2"))
        lines += ["[[price]]", f"after = {dice.randint(2, 30)}", f'factor = "{factor}"']
    return "\n".join(lines) + "\n"


def _life(dice: Random, receivers: int) -> Life:
    crash = None
    if dice.random() < 0.7:
        crash = Crash(dice.choice(POINTS), dice.choice((1, 1, 2, 3, 5, 9)), dice.random() < 0.5)
    acts: tuple[tuple[ActName, int], ...] = (*_ACTS, ("kill_receiver", 10)) if receivers else _ACTS
    names = dice.choices([name for name, _ in acts], [weight for _, weight in acts], k=dice.randint(1, 5))
    return Life(crash, tuple(_act(dice, name) for name in names))


def _mixed(life: Life, dice: Random) -> Life:
    """Put orders about many samples among what is done to an engine."""
    acts = list(life.acts)
    for name in dice.choices(_ORDERS, k=dice.randint(1, 3)):
        acts.insert(dice.randint(0, len(acts)), Act(dice.uniform(0.0, 0.1), name, dice.randrange(ENDPOINTS)))
    return Life(life.crash, tuple(acts))


def _act(dice: Random, name: ActName) -> Act:
    value = 0
    if name in ("cap", "stop_at"):
        value = int(dice.uniform(0.2, 18) * HOLD_PICO)
    elif name == "in_flight":
        value = dice.randint(1, 10)
    return Act(dice.uniform(0.0, 0.25), name, value)
