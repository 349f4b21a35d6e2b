"""Compute features with a model in this process, on a CPU or a CUDA device by the same code.

On CUDA a forward is launched before the streams of the one before are taken, so that the device computes while those
are copied, rounded and written.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import torch

from eagletui.core.features import FeatureLayers
from eagletui.core.reports import Report
from eagletui.extract import widened
from eagletui.extract.attention import Kernel
from eagletui.extract.capture import Capture, DeviceFullError, Launched, Mode, SelfTest
from eagletui.extract.computing import WINDOW_SAMPLES, Computed, refuse_broken, require_vocabulary, too_long
from eagletui.extract.pack import plan_packs
from eagletui.extract.shards import IdsSample

SELF_TEST_SAMPLES: Final = 4
"""Real samples that the self-test runs both ways, cut so that they share one pack and need no more memory than work."""


AHEAD_SAMPLES: Final = 512
"""Samples of a window where forwards are launched ahead: many packs, since the device waits at each window's end."""

LEAST_TOKENS: Final = 64
"""Where even a pack of so few does not fit into the device's memory, samples run one by one."""


class LocalBackend:
    """Chooses between lone and packed forwards once, by a self-test on the first real samples, then computes."""

    def __init__(self, capture: Capture, report: Report, *, lookahead: int | None = None) -> None:
        """Take a hooked model.

        Args:
            capture: the model.
            report: takes what people should know.
            lookahead: forwards to be under way while the streams of one are taken; each holds the memory of its
                streams. None takes 1 on CUDA, and 0 elsewhere, where a forward ends before it is launched.
        """
        self.capture = capture
        self.lookahead = int(capture.device_kind == "cuda") if lookahead is None else lookahead
        self.window_samples = AHEAD_SAMPLES if self.lookahead else WINDOW_SAMPLES
        self.mode: Mode | None = None
        """None until the first samples are there."""
        self.choice = "undecided"
        """The mode and its reason, one sentence for the manifest."""
        self.facts = capture.target.facts
        self.place: str = capture.target.device
        self.versions: Mapping[str, str] = {}
        self._report = report

    @property
    def layers(self) -> FeatureLayers:
        """The streams that the hooks keep."""
        return self.capture.layers

    def close(self) -> None:
        """Take the hooks off the model."""
        self.capture.close()

    def prepare(self, samples: Sequence[IdsSample]) -> str | None:
        """Run the self-test; see `Backend`."""
        require_vocabulary(self.facts, samples)
        whys = [too_long(self.facts, sample) for sample in samples]
        fitting = [sample for sample, why in zip(samples, whys, strict=True) if why is None]
        if self.mode is None:
            self._choose([torch.tensor(sample.token_ids, dtype=torch.int64) for sample in fitting])
        return whys[0] if samples and not fitting else None

    def compute(self, samples: Sequence[IdsSample], go_on: Callable[[], bool]) -> Iterator[Computed]:
        """Compute samples, in an order that fills the device.

        Args:
            samples: a window of samples; more of them pack better. One with more tokens than the model has positions
                is refused.
            go_on: asked before each forward; False ends the work.

        Yields:
            each sample once, unless the work was ended; what was launched before is yielded even then.

        Raises:
            ModelError: ids lie outside the model's vocabulary: it is another model's data.
        """
        self.prepare(samples)
        for sample in samples:
            if (why_not := too_long(self.facts, sample)) is not None:
                yield Computed(sample, None, why_not)
        samples = [sample for sample in samples if too_long(self.facts, sample) is None]
        ids = [torch.tensor(sample.token_ids, dtype=torch.int64) for sample in samples]
        under_way: _UnderWay = deque()
        left: Sequence[int] = range(len(ids))
        while left:
            packs = [[left[place] for place in places] for places in self._plan([len(ids[index]) for index in left])]
            left = ()
            for number, pack in enumerate(packs):
                if not go_on():
                    break
                tensors = [ids[index] for index in pack]
                why = self._launch(under_way, pack, tensors)
                if why is not None and under_way:  # its memory may be what is missing
                    while under_way:
                        yield from _taken(samples, *under_way.popleft())
                    why = self._launch(under_way, pack, tensors) if len(pack) == 1 else why
                if why is None:
                    if len(under_way) > self.lookahead:
                        yield from _taken(samples, *under_way.popleft())
                elif len(pack) == 1:
                    yield Computed(samples[pack[0]], None, why)
                else:
                    self._shrink(sum(map(len, tensors)))
                    left = sorted(index for rest in packs[number:] for index in rest)
                    break
        while under_way:
            yield from _taken(samples, *under_way.popleft())

    def _plan(self, lengths: Sequence[int]) -> Sequence[Sequence[int]]:
        """Choose which samples share forwards; alone they run in their own order."""
        if self.mode == "packed":
            return plan_packs(lengths, self.capture.budget_tokens)
        return [(place,) for place in range(len(lengths))]

    def _launch(self, under_way: "_UnderWay", pack: list[int], ids: list[torch.Tensor]) -> str | None:
        """Launch a forward and put it into the queue, or tell why it does not fit into the device."""
        try:
            launched = self.capture.start(ids) if self.mode == "packed" else self.capture.start_alone(ids[0])
        except DeviceFullError as error:
            why = str(error)
        else:
            under_way.append((pack, launched))
            return None
        self.capture.release()
        return why

    def _shrink(self, tokens: int) -> None:
        """Let packs be half as long as one that was too long for the device, from now on."""
        self.capture.budget_tokens = max(1, tokens // 2)
        self._report(
            "warn",
            "memory_short",
            f"{tokens:,} tokens do not fit into the memory of {self.place} at once: forwards take "
            f"{self.capture.budget_tokens:,} from now on.",
        )

    def _choose(self, ids: list[torch.Tensor]) -> None:
        obstacle = self.capture.packing_obstacle()
        if obstacle is not None:
            self.mode, self.choice = "one_by_one", f"one_by_one: {obstacle}"
            if self.capture.widens:
                self.choice += f", {widened.SAID}"
            self._report("info", "capture_mode", f"Samples run one by one: {obstacle}.")
            return
        if len(ids) < 2:
            return
        longest = sorted(ids, key=len)[-SELF_TEST_SAMPLES:]
        result = self._test(longest)
        if result is not None and result.failure is not None and self.capture.kernel.call is not None:
            self._report(
                "warn", "kernel_failed", f"Not used: {self.capture.kernel.said}: {result.failure}. Segments run alone."
            )
            self.capture.kernel = Kernel(None, "attention by segment: the kernel failed the self-test")
            result = self._test(longest)
        if result is None:
            why = f"packs of {LEAST_TOKENS} tokens do not fit into the memory of {self.place}"
            self.mode, self.choice = "one_by_one", f"one_by_one: {why}"
            self._report("warn", "self_test_failed", f"Samples run one by one: {why}.")
            return
        if result.failure is not None:
            self.capture.widens = False  # it may be what failed
            self.mode, self.choice = "one_by_one", f"one_by_one: {result.failure}"
            self._report("warn", "self_test_failed", f"Samples run one by one: {result.failure}.")
            return
        figures = f"{result.samples} samples both ways, median relative error {result.median_error:.1e}"
        if result.moved is not None:
            figures += f", {result.moved:.2%} of tokens with other experts"
        figures += f", {self.capture.kernel.said}"
        if self.capture.widens:
            figures += f", {widened.SAID}"
        self.mode, self.choice = "packed", f"packed: {figures}, accepted up to {result.tolerance:.0e}"
        self._report("info", "capture_mode", f"Samples share forwards; the self-test ran {figures}.")

    def _test(self, ids: list[torch.Tensor]) -> SelfTest | None:
        """Run the self-test in as much memory as there is; None where no pack fits into it."""
        while self.capture.budget_tokens >= LEAST_TOKENS:
            share = max(2, self.capture.budget_tokens // SELF_TEST_SAMPLES)
            cut = [sample[:share] for sample in ids]
            try:
                return self.capture.self_test(cut)
            except DeviceFullError:
                self._shrink(sum(map(len, cut)))
            self.capture.release()
        return None


_UnderWay = deque[tuple[list[int], Launched]]
"""Which samples share each forward that was launched and not taken yet, the oldest first."""


def _taken(samples: Sequence[IdsSample], pack: list[int], launched: Launched) -> Iterator[Computed]:
    """Wait for a forward and yield its samples."""
    taken = launched.take()
    del launched  # it holds what the next forward may need
    for index, (rows, are_finite) in zip(pack, taken, strict=True):
        yield Computed(samples[index], rows, None) if are_finite else refuse_broken(samples[index], rows)
