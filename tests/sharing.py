"""Which process runs which test files: one takes all that load torch, so that the others do not."""

from functools import cached_property
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

_LOAD_TORCH: Final = ("tests/extract/", "tests/export/", "tests/models/", "tests/arbitration/")
"""Where models are loaded: seconds for their modules, and again for the tiny models that their tests share."""
_LARGEST_SHARE: Final = 1 / 3
"""Of the tests that run: more of them are worth a second process."""


class _Sharing(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """By file, but for the files that load torch."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "torch" if self._keeps_torch_together and file.startswith(_LOAD_TORCH) else file

    @cached_property
    def _keeps_torch_together(self) -> bool:
        tests: list[str] = self.collection or []
        return sum(test.startswith(_LOAD_TORCH) for test in tests) <= _LARGEST_SHARE * len(tests)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Share files out, unless another way was asked for."""
    return _Sharing(config, log) if config.getoption("dist") == "loadfile" else None
