"""Copies beside a computation, by a stand-in for `torch.cuda`: no CUDA device was there to run them on."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from eagletui.extract.transfer import Aside, AtOnce, transfer_of

CUDA = torch.device("cuda:1")


class Cuda:
    """Logs what is asked of `torch.cuda`, by the names and parameters that it has."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def Stream(self, device: torch.device) -> "OneStream":
        assert device == CUDA
        return OneStream(self, "side")

    def Event(self, enable_timing: bool = False, blocking: bool = False) -> "OneEvent":
        assert (enable_timing, blocking) == (False, True)
        return OneEvent(self)

    def current_stream(self, device: torch.device) -> "OneStream":
        assert device == CUDA
        return OneStream(self, "main")

    @contextmanager
    def stream(self, stream: "OneStream") -> Iterator[None]:
        self.log.append(f"enter {stream.name}")
        yield
        self.log.append(f"leave {stream.name}")


class OneStream:
    def __init__(self, cuda: Cuda, name: str) -> None:
        self.cuda = cuda
        self.name = name

    def wait_stream(self, other: "OneStream") -> None:
        self.cuda.log.append(f"{self.name} waits for {other.name}")


class OneEvent:
    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda

    def record(self, stream: OneStream) -> None:
        self.cuda.log.append(f"record on {stream.name}")

    def synchronize(self) -> None:
        self.cuda.log.append("host waits for the event")


def test_the_stand_in_has_torch_s_names_and_parameters() -> None:
    assert "device" in inspect.signature(torch.cuda.Stream.__new__).parameters
    assert "blocking" in inspect.signature(torch.cuda.Event.__new__).parameters
    assert list(inspect.signature(torch.cuda.Stream.wait_stream).parameters) == ["self", "stream"]
    assert list(inspect.signature(torch.cuda.Event.record).parameters) == ["self", "stream"]
    assert list(inspect.signature(torch.cuda.Event.synchronize).parameters) == ["self"]
    assert list(inspect.signature(torch.cuda.current_stream).parameters) == ["device"]
    assert list(inspect.signature(torch.cuda.stream).parameters) == ["stream"]


def _results() -> list[torch.Tensor]:
    return [torch.arange(24.0).reshape(2, 4, 3), torch.tensor([True, False])]


def test_copies_wait_for_the_computation_and_the_host_for_the_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda()
    aside = Aside(CUDA, cuda)
    monkeypatch.setattr(aside, "_memory_for", lambda parts: [torch.empty_like(part) for part in parts])
    results = _results()
    wait = aside.bring(results)
    assert cuda.log == ["side waits for main", "enter side", "record on side", "leave side"]
    found = wait()
    assert cuda.log[-1] == "host waits for the event"
    assert all(torch.equal(one, other) for one, other in zip(found, results, strict=True))
    assert all(one.data_ptr() != other.data_ptr() for one, other in zip(found, results, strict=True))


def test_without_pinned_memory_the_host_copies_on_the_side_stream_when_it_waits() -> None:
    """A torch without CUDA has no pinned memory, as a machine with a limit on it."""
    cuda = Cuda()
    aside = Aside(CUDA, cuda)
    wait = aside.bring(_results())
    assert cuda.log == ["side waits for main"]
    found = wait()
    assert cuda.log == ["side waits for main", "enter side", "leave side"]
    assert all(torch.equal(one, other) for one, other in zip(found, _results(), strict=True))


def test_ids_are_sent_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    aside = Aside(torch.device("cpu"), SideOfCpu())
    ids = torch.arange(5)[None]
    assert torch.equal(aside.send(ids), ids)
    monkeypatch.setattr(aside, "_memory_for", lambda parts: [torch.empty_like(part) for part in parts])
    assert torch.equal(aside.send(ids), ids)


class SideOfCpu(Cuda):
    def Stream(self, device: torch.device) -> OneStream:
        return OneStream(self, "side")


def test_a_cpu_s_results_are_there_and_are_not_copied() -> None:
    transfer: Any = transfer_of(torch.device("cpu"))
    assert isinstance(transfer, AtOnce)
    results = _results()
    assert [part.data_ptr() for part in transfer.bring(results)()] == [part.data_ptr() for part in results]
