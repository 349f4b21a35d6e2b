"""What the extractor reads of its machine. The driver's library stands in where there is none to ask."""

import os
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil

from eagletui.core.gauges import Gpu
from eagletui.extract.gauges import MachineReader


class _NvmlError(Exception):
    """Stands for the driver's error."""


class _LibraryNotFoundError(_NvmlError):
    """There is no driver."""


class _Driver(ModuleType):
    """What nvidia-ml-py offers, over GPUs given as (name, load, used, total)."""

    NVMLError = _NvmlError
    NVMLError_LibraryNotFound = _LibraryNotFoundError

    def __init__(self, gpus: list[tuple[str, int | None, int, int]], fault: Exception | None = None) -> None:
        super().__init__("driver")
        self.gpus, self.fault, self.ended = gpus, fault, 0

    def nvmlInit(self) -> None:
        if self.fault is not None:
            raise self.fault

    def nvmlShutdown(self) -> None:
        self.ended += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return self.gpus[handle][0]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        if self.fault is not None:
            raise self.fault
        return SimpleNamespace(used=self.gpus[handle][2], total=self.gpus[handle][3])

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        load = self.gpus[handle][1]
        if load is None:
            raise _NvmlError("Not Supported")
        return SimpleNamespace(gpu=load)


def test_the_process_and_its_machine_are_read() -> None:
    driver = _Driver([("NVIDIA H200", 83, 6, 10), ("NVIDIA H200 MIG", None, 1, 2)])
    with MachineReader(driver) as reader:
        found = reader.read()
        assert found.gpus == (Gpu("NVIDIA H200", 83, 6, 10), Gpu("NVIDIA H200 MIG", None, 1, 2))
        assert found.without_gpu == ""
        driver.fault = _NvmlError("GPU is lost")
        lost = reader.read()
    assert (lost.gpus, lost.without_gpu) == ((), "GPU is lost")
    assert driver.ended == 1
    assert found.cores == len(os.sched_getaffinity(0))
    total = psutil.virtual_memory().total
    assert found.memory_total_bytes == total
    assert found.resident_bytes is not None
    assert 10**6 < found.resident_bytes < total
    assert found.cpu_percent is not None
    assert found.cpu_percent >= 0


def test_a_machine_without_gpus_says_why() -> None:
    for driver, reason in (
        (_Driver([], _LibraryNotFoundError("x")), "no NVIDIA driver"),
        (_Driver([], _NvmlError("Driver/library version mismatch")), "Driver/library version mismatch"),
        (_Driver([]), "the NVIDIA driver lists none"),
    ):
        with MachineReader(driver) as reader:
            assert (reader.read().gpus, reader.read().without_gpu) == ((), reason)
