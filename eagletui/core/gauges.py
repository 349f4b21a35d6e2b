"""What an extractor tells in its sign of life: how far it is, and what it takes of its machine.

The writing side makes the JSON with `detail`, the screens read it back with `read_detail`. A figure that could not be
read is None, and where no GPU is listed a sentence says why.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, with everything that runs on it."""

    name: str
    load_percent: int | None
    """Share of the last second in which it computed; None where the driver does not tell."""
    used_bytes: int
    """Of its memory, by all processes."""
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What a process takes of its machine, and what is left."""

    cpu_percent: float | None = None
    """Of one core since the last reading, all threads: 200 is two busy cores."""
    cores: int | None = None
    """That the process may use."""
    resident_bytes: int | None = None
    """Memory the process holds."""
    memory_free_bytes: int | None = None
    """That the machine can still give without swapping."""
    memory_total_bytes: int | None = None
    gpus: tuple[Gpu, ...] = ()
    without_gpu: str = ""
    """Why no GPU is listed; '' where there are some."""


@dataclass(frozen=True, slots=True)
class ExtractorDetail:
    """The figures of an extractor."""

    phase: str
    """What it does now, in a few words."""
    samples: int = 0
    """Computed by this process."""
    rows: int = 0
    """Their tokens."""
    rows_per_s: float = 0.0
    """While it computes; 0 before the first."""
    refused: int = 0
    """Samples that got no features."""
    row_bytes: int | None = None
    """Of one token on the disk; None until the model is known."""
    storage: str | None = None
    """Where shards go instead of the run's own folder."""
    stream_ahead: int | None = None
    """So many shards wait for a trainer that deletes them; None: features are kept."""
    follows: bool = False
    """It goes on as the run brings answers."""
    machine: Machine = Machine()

    def detail(self) -> dict[str, object]:
        """Give the figures as the sign of life keeps them."""
        return asdict(self)


def read_detail(detail_json: str) -> ExtractorDetail | None:
    """Read an extractor's figures back; None where there are none."""
    try:
        found = json.loads(detail_json)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("phase"), str):
        return None
    machine = found.get("machine")
    return ExtractorDetail(
        phase=found["phase"],
        samples=_whole(found, "samples") or 0,
        rows=_whole(found, "rows") or 0,
        rows_per_s=_number(found, "rows_per_s") or 0.0,
        refused=_whole(found, "refused") or 0,
        row_bytes=_whole(found, "row_bytes"),
        storage=_text(found, "storage"),
        stream_ahead=_whole(found, "stream_ahead"),
        follows=found.get("follows") is True,
        machine=_machine(machine) if isinstance(machine, dict) else Machine(),
    )


def _machine(found: Mapping[str, object]) -> Machine:
    gpus = found.get("gpus")
    return Machine(
        cpu_percent=_number(found, "cpu_percent"),
        cores=_whole(found, "cores"),
        resident_bytes=_whole(found, "resident_bytes"),
        memory_free_bytes=_whole(found, "memory_free_bytes"),
        memory_total_bytes=_whole(found, "memory_total_bytes"),
        gpus=tuple(_gpu(gpu) for gpu in gpus if isinstance(gpu, dict)) if isinstance(gpus, list) else (),
        without_gpu=_text(found, "without_gpu") or "",
    )


def _gpu(found: Mapping[str, object]) -> Gpu:
    return Gpu(
        name=_text(found, "name") or "GPU",
        load_percent=_whole(found, "load_percent"),
        used_bytes=_whole(found, "used_bytes") or 0,
        total_bytes=_whole(found, "total_bytes") or 0,
    )


def _whole(found: Mapping[str, object], name: str) -> int | None:
    value = found.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(found: Mapping[str, object], name: str) -> float | None:
    value = found.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(found: Mapping[str, object], name: str) -> str | None:
    value = found.get(name)
    return value if isinstance(value, str) else None
