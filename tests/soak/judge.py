"""What must hold of a run: never more than the cap while it works, and books that agree when it is done."""

import http.client
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from eagletui.core.money import format_usd
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.rows import AttemptRow
from tests.engine.run_folder import EngineRun
from tests.ledger.build import sql
from tests.soak.workers import KEPT, RECEIVED, Provider

LOOK_EVERY_S = 0.03
"""Between looks of the watch: money moves in steps of milliseconds, but what was charged stays charged."""


class Broken(AssertionError):
    """A promise was broken."""


@dataclass
class CapWatch:
    """Compares the provider's books with the cap, over and over, from a thread of its own.

    The provider's figure is read before the ledger's: what it has charged by then must be covered by what the ledger
    has committed a moment later, and by what any cap so far allowed.
    """

    run: EngineRun
    provider: Provider
    allowed_pico: int
    """The most the caps so far allow to be charged, ever."""
    looks: int = 0
    nearest: float = 0.0
    """The largest share of the allowed money that was charged, before the limits are lifted for the end."""
    lifted: bool = False
    broken: str | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._watch, name="cap-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, after one more look.

        Raises:
            Broken: a look found too much.
        """
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self.broken is not None:
            raise Broken(self.broken)

    def will_be(self, cap_pico: int) -> None:
        """A cap is about to be set: if it is higher, more is allowed from now on."""
        self.allowed_pico = max(self.allowed_pico, cap_pico)

    def is_now(self, cap_pico: int) -> None:
        """A cap is in force: nothing beyond it is allowed but what was committed before."""
        with self.run.reader() as reader:
            self.allowed_pico = max(cap_pico, reader.books().committed_pico)

    def _watch(self) -> None:
        with self.run.reader() as reader:
            while self.broken is None:
                last = self._ended.wait(LOOK_EVERY_S)
                self._look(reader)
                if last:
                    return

    def _look(self, reader: LedgerReader) -> None:
        allowed_pico = self.allowed_pico
        try:
            charged_pico = charged(self.provider)
        except (OSError, http.client.HTTPException):
            return  # it was just killed
        allowed_pico = max(allowed_pico, self.allowed_pico)
        committed_pico = reader.books().committed_pico
        self.looks += 1
        if not self.lifted and allowed_pico:
            self.nearest = max(self.nearest, charged_pico / allowed_pico)
        if charged_pico > allowed_pico:
            self.broken = f"charged {format_usd(charged_pico, 12)}, allowed {format_usd(allowed_pico, 12)}"
        elif charged_pico > committed_pico:
            self.broken = f"charged {format_usd(charged_pico, 12)}, committed {format_usd(committed_pico, 12)}"


def charged(provider: Provider) -> int:
    """Return what the provider's key shows, in picodollars."""
    whole, _, fraction = str(provider.get("/api/v1/key")["data"]["usage"]).partition(".")
    return int(whole) * 10**12 + int(fraction.ljust(12, "0"))


@dataclass
class Verdict:
    """Figures of one run that kept its promises."""

    attempts: Counter[str] = field(default_factory=Counter)
    """By state, and `released`."""
    errors: Counter[str] = field(default_factory=Counter)
    """Attempts by kind of failure."""
    generations: int = 0
    spent_pico: int = 0
    unattributed_pico: int = 0
    bought_twice: int = 0
    """Answers that the provider sent whole and that no sample has: the engine was killed with them in its memory."""
    adjustments: int = 0


def judge(run: EngineRun, provider: Provider, samples: int) -> Verdict:
    """Compare a finished run with the provider's books.

    Raises:
        Broken: they do not agree, or a sample has not exactly one answer.
    """
    books = provider.get("/embedded/books")
    attempts = run.attempts()
    with run.reader() as reader:
        snapshot, adjustments = reader.snapshot(), reader.adjustments()
    money = snapshot.spend.books
    _expect(snapshot.states["tokenized"], samples, "samples with an answer")
    answered = Counter(attempt.sample_id for attempt in attempts if attempt.has_answer)
    _expect(len(answered), samples, "samples that an attempt answers")
    _expect(set(answered.values()), {1}, "answers a sample has")
    _expect(money.spent_pico, books["spent_pico"], "picodollars spent")
    _expect(money.open_pico, 0, "picodollars still held")
    _expect(sum(row["cost_pico"] for row in books["rows"]), books["spent_pico"], "picodollars of the provider's rows")
    owners = _owners(attempts)
    received = _noted(run, RECEIVED)
    unknown_pico = 0
    for row in books["rows"]:
        owner = owners.pop(row["id"], None)
        if owner is None:
            if row["id"] in received:
                raise Broken(f"{row['id']} is not in the ledger, although its body was read")
            unknown_pico += row["cost_pico"]
        else:
            _expect((owner.state, owner.cost_pico), ("settled", row["cost_pico"]), f"state and cost of {row['id']}")
    for generation_id, attempt in owners.items():
        _expect(attempt.cost_pico or 0, 0, f"cost of {generation_id}, which was never billed,")
    _expect(_noted(run, KEPT) - _with_reply(run), set(), "generations whose reply was on disk and is not in the ledger")
    _expect([path.name for path in run.folder.spool_dir.glob("*")], [], "spooled replies that nobody filed")
    _expect(money.unattributed_pico, unknown_pico, "picodollars without a known generation")
    for attempt in attempts:
        if (attempt.cost_pico or 0) > attempt.hold_pico:
            raise Broken(f"attempt {attempt.id} cost {attempt.cost_pico}, its hold was {attempt.hold_pico}")
    kept = {attempt.generation_id for attempt in attempts if attempt.has_answer}
    return Verdict(
        attempts=Counter("released" if attempt.released else attempt.state for attempt in attempts),
        errors=Counter(attempt.error_kind for attempt in attempts if attempt.error_kind),
        generations=len(books["rows"]),
        spent_pico=books["spent_pico"],
        unattributed_pico=money.unattributed_pico,
        bought_twice=sum(row["delivered"] and row["id"] not in kept for row in books["rows"]),
        adjustments=len(adjustments),
    )


def expect_closed(run: EngineRun, until: float) -> None:
    """Compare when endpoints were quarantined with who was asked.

    Args:
        run: the run.
        until: Unix seconds; what was still closed then is not looked at from then on.

    Raises:
        Broken: an endpoint was asked between the end of a quarantine's order and the release.
    """
    orders = sql(
        run.folder.ledger_path,
        "SELECT verb, json_extract(args_json, '$.endpoint'), at, applied_at FROM commands"
        " WHERE verb IN ('quarantine', 'release') AND changed ORDER BY id",
    )
    for number, (verb, endpoint, _, applied_at) in enumerate(orders):
        if verb == "quarantine":
            later = orders[number + 1 :]
            opened = min((at for verb, tag, at, _ in later if (verb, tag) == ("release", endpoint)), default=until)
            asked = sql(
                run.folder.ledger_path,
                "SELECT count(*) FROM attempts WHERE endpoint = ? AND held_at > ? AND held_at < ?",
                endpoint,
                applied_at,
                opened,
            )
            _expect(asked, [(0,)], f"requests to {endpoint} while it was quarantined")


def _owners(attempts: list[AttemptRow]) -> dict[str, AttemptRow]:
    owners: dict[str, AttemptRow] = {}
    for attempt in attempts:
        if attempt.generation_id is not None:
            if attempt.generation_id in owners:
                raise Broken(f"two attempts have generation {attempt.generation_id}")
            owners[attempt.generation_id] = attempt
    return owners


def _with_reply(run: EngineRun) -> set[str]:
    """Generation ids of the attempts whose reply the ledger keeps."""
    rows = sql(run.folder.ledger_path, "SELECT generation_id FROM attempts JOIN replies ON attempt_id = attempts.id")
    return {generation_id for (generation_id,) in rows}


def _noted(run: EngineRun, name: str) -> set[str]:
    file = run.folder.path / name
    return set(file.read_text(encoding="utf-8").split()) if file.exists() else set()


def _expect(found: Any, expected: Any, what: str) -> None:
    if found != expected:
        raise Broken(f"{what}: found {found}, expected {expected}")
