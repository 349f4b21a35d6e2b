"""Read what this process takes of its machine: processor, memory and GPUs."""

import os
from types import ModuleType
from typing import Any, Final, Self

import psutil
import pynvml

from eagletui.core.gauges import Gpu, Machine
from eagletui.core.text import clean_line

_NAME_CELLS: Final = 40


class MachineReader:
    """Reads this process and the GPUs that its driver lists. Use as a context manager, from one thread at a time."""

    def __init__(self, nvml: ModuleType = pynvml) -> None:
        """Look for GPUs.

        Args:
            nvml: the driver's library, as nvidia-ml-py binds it.
        """
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first call only starts the measurement
        self._nvml = nvml
        self._gpus: list[Any] = []
        self._without_gpu = ""
        self._is_open = False
        try:
            nvml.nvmlInit()
            self._is_open = True
            self._gpus = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError_LibraryNotFound:
            self._without_gpu = "no NVIDIA driver"
        except nvml.NVMLError as error:
            self._without_gpu = _said(error)
        if not self._gpus and not self._without_gpu:
            self._without_gpu = "the NVIDIA driver lists none"

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the driver."""
        if self._is_open:
            self._nvml.nvmlShutdown()
            self._is_open = False

    def read(self) -> Machine:
        """Read everything as of now."""
        memory = psutil.virtual_memory()
        gpus, without = self._read_gpus()
        return Machine(
            cpu_percent=self._process.cpu_percent(),
            cores=len(os.sched_getaffinity(0)),
            resident_bytes=self._process.memory_info().rss,
            memory_free_bytes=memory.available,
            memory_total_bytes=memory.total,
            gpus=gpus,
            without_gpu=without,
        )

    def _read_gpus(self) -> tuple[tuple[Gpu, ...], str]:
        try:
            return tuple(self._gpu(handle) for handle in self._gpus), self._without_gpu
        except self._nvml.NVMLError as error:
            return (), _said(error)

    def _gpu(self, handle: Any) -> Gpu:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        try:
            load: int | None = int(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except self._nvml.NVMLError:
            # A slice of a GPU has memory of its own and no load of its own.
            load = None
        name = self._nvml.nvmlDeviceGetName(handle)
        return Gpu(clean_line(str(name), _NAME_CELLS), load, int(memory.used), int(memory.total))


def _said(error: Exception) -> str:
    return clean_line(str(error)) or "the NVIDIA driver failed"
