"""Workers forked from a process that has loaded what they load: as real as `python -m`, and a second faster."""

import importlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from typing import Any, Final

import pytest

from eagletui.runs import workers

_FORKS: Final = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.loaded", "tests.forked"])
_FORKED: Final = ("eagletui.engine", "eagletui.embedded")


Constants = Mapping[str, Mapping[str, object]]
"""By module: names, and the values they have in a worker, so that a wait of minutes can be tested in a second."""


def start(
    module: str, args: Sequence[str], log: str, env: Mapping[str, str], constants: Constants | None = None
) -> BaseProcess:
    """Start a worker in a session of its own.

    Args:
        module: what `python -m` would be given.
        args: of the worker.
        log: file that takes its output.
        env: its environment.
        constants: of its modules.
    """
    process = _FORKS.Process(target=_work, args=(module, list(args), log, dict(env), constants or {}), daemon=True)
    process.start()
    return process


def _work(module: str, args: list[str], log: str, env: dict[str, str], constants: Constants) -> None:
    from tests.loaded import MAINS

    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(env)
    for name, values in constants.items():
        vars(importlib.import_module(name)).update(values)
    sys.exit(MAINS[module](args))


class _Worker:
    """The part of a `subprocess.Popen` that whoever starts workers uses."""

    def __init__(self, process: BaseProcess) -> None:
        assert process.pid is not None
        self.pid = process.pid
        self._process = process

    def poll(self) -> int | None:
        """The exit code of a process that has ended."""
        return self._process.exitcode


class _Forking:
    """Stands where `eagletui.runs.workers` looks for the module `subprocess`."""

    DEVNULL = subprocess.DEVNULL

    @staticmethod
    def Popen(command: Sequence[str], **options: Any) -> "_Worker | subprocess.Popen[bytes]":
        python, _, module, *args = command
        assert python == sys.executable
        if module not in _FORKED:
            return subprocess.Popen(command, **options)
        return _Worker(start(module, args, os.readlink(f"/proc/self/fd/{options['stdout']}"), os.environ))


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines and providers that commands of this process start are forked; `tests.runs` starts them the usual way."""
    monkeypatch.setattr(workers, "subprocess", _Forking)
