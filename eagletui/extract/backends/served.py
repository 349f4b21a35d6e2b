"""Compute features through a server that returns its hidden states: what such servers have in common.

The server is asked for one sample at a time, several at once, within bounds: vLLM keeps every answer in pinned memory
until its disk has taken it. Before the first record is kept, the longest sample is asked twice (a prefix cache shows)
and the last stream of a few is proved, see `proof`.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import chain
from typing import Final, NamedTuple

import torch

from eagletui.core.errors import ModelError
from eagletui.core.features import FeatureLayers
from eagletui.core.reports import Report
from eagletui.extract.backends.presence import PATIENCE, Patience, Presence
from eagletui.extract.backends.proof import PROVED_ANSWERS, cut, held_against, unsure
from eagletui.extract.backends.refusals import Fault, Refusals, Unusable
from eagletui.extract.backends.states_server import Answer, Declined, StatesServer, Unanswered, Unreachable
from eagletui.extract.capture import TOLERANCE
from eagletui.extract.computing import WINDOW_SAMPLES, Computed, refuse_broken, require_vocabulary
from eagletui.extract.shards import IdsSample
from eagletui.models.facts import ModelFacts
from eagletui.models.tail import Tail

IN_FLIGHT: Final = 8
"""Requests at once."""

IN_FLIGHT_TOKENS: Final = 65_536
"""Tokens at once; a longer sample goes alone."""

ATTEMPTS_AFTER_S: Final = (1.0, 5.0)
"""Waits before a failed request is sent again; after the last one the sample is refused."""

_ALIKE: Final = 3
"""Samples of about the same length that may fail in a row before the proof goes on with much shorter ones."""

_LOOK_S: Final = 0.2


class NoStates(NamedTuple):
    """A sample that a server gave no states for."""

    fault: Fault
    why: str
    """One sentence."""


class ServedBackend:
    """Keeps a bounded number of requests in flight and hands their states out in order."""

    def __init__(
        self,
        server: StatesServer,
        facts: ModelFacts,
        layers: FeatureLayers,
        report: Report,
        *,
        in_flight: int = IN_FLIGHT,
        in_flight_tokens: int = IN_FLIGHT_TOKENS,
        attempts_after_s: Sequence[float] = ATTEMPTS_AFTER_S,
        patience: Patience = PATIENCE,
    ) -> None:
        """Ask the server how it runs.

        Args:
            server: the server.
            facts: of the model that it was started with.
            layers: the streams that it was told to return.
            report: takes what people should know.
            in_flight: requests at once.
            in_flight_tokens: tokens at once.
            attempts_after_s: waits before a failed request is sent again.
            patience: with a server that is away.

        Raises:
            Unusable: it cannot be used.
        """
        self.facts = facts
        self.layers = layers
        self.place = server.url
        self.window_samples = WINDOW_SAMPLES
        self._server = server
        self._report = report
        self._in_flight = in_flight
        self._in_flight_tokens = in_flight_tokens
        self._attempts_after_s = tuple(attempts_after_s)
        self._ended = threading.Event()
        try:
            self._presence = Presence(server.check, self._doubt, report, self._ended, patience)
        except ModelError:
            server.close()
            raise
        self._proof = ""
        self._is_proved = False
        self._refusals = Refusals()
        self._pool = ThreadPoolExecutor(max_workers=in_flight, thread_name_prefix="asking")

    @property
    def versions(self) -> Mapping[str, str]:
        """The server's."""
        return self._server.versions

    @property
    def choice(self) -> str:
        """What the server stated and what was proved; `undecided` before the first answers."""
        return f"{self._presence.stated}; {self._proof}" if self._proof else "undecided"

    def prepare(self, samples: Sequence[IdsSample]) -> str | None:
        """Prove the server on the longest samples; see `Backend`."""
        require_vocabulary(self.facts, samples)
        without = self._prove(samples, lambda: True) if samples and not self._is_proved else {}
        if not without:
            return None
        key, found = without.popitem()
        return f"The server gave states for none of {len(samples)} samples. The last one, sample {key}: {found.why}"

    def compute(self, samples: Sequence[IdsSample], go_on: Callable[[], bool]) -> Iterator[Computed]:
        """Ask for samples and yield them in order; see `Backend`."""
        require_vocabulary(self.facts, samples)
        if samples and not self._is_proved:
            without = self._prove(samples, go_on)
            if not self._is_proved:  # stopped, or every one was asked for and got none
                yield from (Computed(sample, None, without[sample.key].why) for sample in samples if go_on())
                return
        waiting = deque(samples)
        running: deque[tuple[IdsSample, Future[Answer | NoStates]]] = deque()
        while waiting or running:
            while waiting and self._has_room(running, waiting[0]):
                sample = waiting.popleft()
                running.append((sample, self._pool.submit(self._try, sample.token_ids)))
            sample, asked = running[0]
            is_done = bool(wait([asked], timeout=_LOOK_S).done)
            if not go_on():
                for _, other in running:
                    other.cancel()
                return
            if is_done:
                running.popleft()
                yield self._judge(sample, asked.result())

    def close(self) -> None:
        """End the requests that still wait for another attempt, and close the connections."""
        self._ended.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._server.close()

    def _has_room(self, running: "deque[tuple[IdsSample, Future[Answer | NoStates]]]", sample: IdsSample) -> bool:
        tokens = sum(len(other.token_ids) for other, _ in running)
        return not running or (
            len(running) < self._in_flight and tokens + len(sample.token_ids) <= self._in_flight_tokens
        )

    def _try(self, token_ids: Sequence[int], go_on: Callable[[], bool] = lambda: True) -> Answer | NoStates:
        """Ask until there is an answer; as long as there is no server, no attempt is used up."""
        waits = iter(self._attempts_after_s)
        while True:
            try:
                answer = self._server.ask(token_ids)
                self._presence.answered()
            except Declined as error:
                return NoStates("declined", str(error))
            except Unreachable as error:
                if not go_on() or not self._presence.wait(str(error)):
                    return NoStates("unanswered", str(error))
            except Unanswered as error:
                wait_s = next(waits, None)
                if wait_s is None or self._ended.wait(wait_s):
                    return NoStates("unanswered", f"{error} Asked {len(self._attempts_after_s) + 1} times.")
            else:
                return answer

    def _doubt(self) -> None:
        """Let the next window be proved anew: the server was started again."""
        self._is_proved = False

    def _judge(self, sample: IdsSample, answer: Answer | NoStates) -> Computed:
        """Tell whether an answer makes a record, and count it.

        Raises:
            Unusable: too many in a row do not.
        """
        if isinstance(answer, Answer):
            computed = _refuse_zeros(sample, answer.streams)
            fault: Fault = "broken"
        else:
            computed, fault = Computed(sample, None, answer.why), answer.fault
        if computed.refusal is None:
            self._refusals.given()
        else:
            self._refusals.add(sample.key, fault, computed.refusal)
        return computed

    def _prove(self, samples: Sequence[IdsSample], go_on: Callable[[], bool]) -> dict[str, NoStates]:
        """Ask for a few samples whose answers are not kept, and hold them against each other and the model's head.

        Returns:
            the refusals by sample where none of them has states, which proves nothing: others may; else nothing.

        Raises:
            Unusable: the answers are no records, or too many samples in a row get none.
        """
        without: dict[str, NoStates] = {}
        ordered = sorted(samples, key=lambda sample: -len(sample.token_ids))
        twice = self._asked_twice(ordered, without, go_on)
        if twice is None:
            return without
        longest, once, again = twice
        scale = torch.linalg.vector_norm(once.streams.float()).clamp_min(1e-30)
        error = float(torch.linalg.vector_norm(again.streams.float() - once.streams.float()) / scale)
        if not error <= TOLERANCE[self.facts.dtype]:
            raise Unusable(
                f"Asked twice for sample {longest.key}, the server gave other states (relative error {error:.1e}). "
                "Start it without prefix caching and without chunked prefill."
            )
        tail, why_not = Tail.load(self.facts)
        if tail is None:
            self._unproved(why_not)
            return {}
        cuts = cut([sample for sample in ordered if sample.key not in without][:PROVED_ANSWERS])
        answers = chain([once], (answer for _, answer in self._given(cuts, {}, go_on)))
        telling = unsure(answers)
        if not go_on():
            return {}
        if telling:
            self._proof = f"asked twice, the states are the same; {held_against(tail, telling)}"
            self._is_proved = True
            self._report("info", "server_checked", f"{self.choice}.")
        else:
            self._unproved("the server was all but certain of every next token, which other streams give too")
        return {}

    def _asked_twice(
        self, samples: Sequence[IdsSample], without: dict[str, NoStates], go_on: Callable[[], bool]
    ) -> tuple[IdsSample, Answer, Answer] | None:
        """Return the first sample for which the server gives states twice, with both answers, and note the others."""
        for sample, once in self._given(samples, without, go_on):
            again = next(self._given([sample], without, lambda: True), None)
            if again is not None:
                return sample, once, again[1]
        return None

    def _unproved(self, why: str) -> None:
        self._proof = f"asked twice, the states are the same; the last slot is not proved: {why}"
        self._is_proved = True  # as far as can be
        self._report("warn", "server_unproved", f"The server's last stream is not proved: {why}.")

    def _given(
        self, samples: Sequence[IdsSample], without: dict[str, NoStates], go_on: Callable[[], bool]
    ) -> Iterator[tuple[IdsSample, Answer]]:
        """Yield the samples for which the server gives states, and note the others.

        Where several of about the same length fail, it goes on with shorter ones: length may be what it cannot do.
        """
        left = deque(samples)
        while left and go_on():
            sample = left.popleft()
            answer = self._try(sample.token_ids, go_on)
            computed = self._judge(sample, answer)
            if isinstance(answer, Answer) and computed.refusal is None:
                yield sample, answer
                continue
            without[sample.key] = answer if isinstance(answer, NoStates) else NoStates("broken", str(computed.refusal))
            if without[sample.key].fault != "declined" and self._refusals.in_a_row % _ALIKE == 0:
                left.rotate(-(len(left) // 2))


def _refuse_zeros(sample: IdsSample, streams: torch.Tensor) -> Computed:
    zero = (streams == 0).all(dim=-1).any(dim=-1)
    if bool(zero.any()):
        return Computed(sample, None, f"{int(zero.sum())} of {len(streams)} rows have a stream of zeros.")
    return refuse_broken(sample, streams)
