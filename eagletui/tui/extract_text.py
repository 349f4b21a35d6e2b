"""Extraction in words: how far it is, what it takes of its machine, and whether the disk will hold it.

Pure: values in, pieces of text out. What is not known says why.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from eagletui.core.disk_outlook import DiskOutlook, ToWrite
from eagletui.core.features import FAULTY_FEATURES
from eagletui.core.fidelity import TRAINABLE
from eagletui.core.gauges import ExtractorDetail, Gpu, Machine, read_detail
from eagletui.ledger.filters import UNPROVED
from eagletui.ledger.reader_opinions import ArbiterFigures
from eagletui.ledger.rows import ShardRow, TickRow
from eagletui.ledger.snapshot import Snapshot, WorkerFigures
from eagletui.tui import figures
from eagletui.tui.widgets.meter import Level
from eagletui.tui.widgets.safe_text import Piece

Pieces = tuple[Piece, ...]

_TO_COME: Final = ("queued", "in_flight", "answered")
_FRESH_S: Final = 10.0
"""Ticks older than this tell nothing about now."""
_STEADY_PER_MIN: Final = 0.1


class Pace(NamedTuple):
    """What the last minutes brought, a second."""

    answered: float
    """Samples."""
    extracted: float
    """Samples."""
    over_s: float


def pace(snapshot: Snapshot, ticks: Sequence[TickRow]) -> Pace | None:
    """Measure the last minutes; None without ticks of now."""
    if len(ticks) < 2 or ticks[-1].at < snapshot.at - _FRESH_S:
        return None
    first, last = ticks[0], ticks[-1]
    seconds = last.at - first.at
    return Pace((last.answered - first.answered) / seconds, (last.extracted - first.extracted) / seconds, seconds)


def extractor_of(snapshot: Snapshot) -> WorkerFigures | None:
    """Give the extractor's sign of life."""
    return next((worker for worker in snapshot.workers if worker.role == "extractor"), None)


def detail_of(snapshot: Snapshot) -> ExtractorDetail | None:
    """Give the figures of an extractor that lives."""
    worker = extractor_of(snapshot)
    return read_detail(worker.detail_json) if worker is not None and worker.alive else None


def progress(snapshot: Snapshot, ticks: Sequence[TickRow]) -> dict[str, Pieces]:
    """How far extraction is."""
    extract = snapshot.extract
    current, wanted = current_and_wanted(snapshot)
    now = pace(snapshot, ticks)
    each = f" of {figures.size(extract.bytes // extract.rows)}" if extract.rows else ""
    return {
        "features": (
            (figures.count(current), "bold"),
            f" / {figures.count(wanted)} trainable    {figures.percent(figures.share(current, wanted))}",
        ),
        "shards": (f"{figures.count(extract.shards)} sealed   {figures.size(extract.bytes)}",),
        "rows": (f"{figures.count(extract.rows)}{each}, one a token",),
        "lag": (lag(snapshot, now),),
        "rate": rate(snapshot, now),
    }


def current_and_wanted(snapshot: Snapshot) -> tuple[int, int]:
    """Count samples with features over their present ids, and all that can have some."""
    trainable = sum(snapshot.usability.get(kind, 0) for kind in TRAINABLE)
    # A sample whose ids changed since has features and waits for new ones: it is counted once.
    current = max(0, min(snapshot.extract.samples, trainable - snapshot.extract.pending))
    return current, current + snapshot.extract.pending


def lag(snapshot: Snapshot, now: Pace | None) -> str:
    """Say how many samples wait, and whether they become more."""
    waiting = snapshot.extract.pending
    if not waiting:
        return "in step, nothing waits"
    said = f"{figures.count(waiting)} waiting"
    if now is None:
        return f"{said}, trend unknown: no ticks of now"
    growth = (now.answered * _trainable_share(snapshot) - now.extracted) * 60
    if abs(growth) < _STEADY_PER_MIN:
        return f"{said}, steady for {figures.age(now.over_s)}"
    if growth > 0:
        return f"{said}, growing {figures.rate(growth)}/min"
    return f"{said}, shrinking {figures.rate(-growth)}/min, gone in {figures.age(waiting / -growth * 60)}"


def rate(snapshot: Snapshot, now: Pace | None) -> Pieces:
    """Say how fast it goes: samples over the last minutes, and tokens while the device computes."""
    if not _is_at_work(snapshot):
        return ("nothing is computed",)
    samples = (
        "unknown yet" if now is None else f"{figures.rate(now.extracted)} samples/s over {figures.age(now.over_s)}"
    )
    detail = detail_of(snapshot)
    return (samples, f"   {figures.rate(detail.rows_per_s)} tok/s" if detail is not None and detail.rows_per_s else "")


def verified(snapshot: Snapshot, shards: Sequence[ShardRow]) -> Pieces:
    """Say what the last check of the features found."""
    faulty = next((finding for finding in snapshot.findings if finding.kind == FAULTY_FEATURES), None)
    if faulty is not None:
        return ((f"FAILED {figures.time_of_day(faulty.last_at)}: {faulty.sentence}", "bold $error"),)
    times = [shard.verified_at for shard in shards if shard.verified_at is not None]
    if not times:
        return ("not yet: eagletui verify checks them" if shards else "nothing to check yet",)
    return (f"{len(times):,} of {figures.plural(len(shards), 'shard')}, {figures.date_time(max(times))}",)


def arbiter(snapshot: Snapshot, known: ArbiterFigures | None, now: float) -> Pieces:
    """Say what the target model decided about answers without proof."""
    if known is None:
        unproved = sum(snapshot.evidence.get(kind, 0) for kind in UNPROVED)
        if not unproved:
            return ("not needed, all are proved" if snapshot.evidence else "nothing to decide yet",)
        return (f"{figures.count(unproved)} without proof: eagletui arbitrate decides",)
    others = f", {figures.count(known.changed)} other ids" if known.changed else ""
    return (
        (f"{figures.count(known.asked)} asked, {figures.count(known.inferred)} inferred{others}"),
        (f", {figures.age(max(0.0, now - known.last_at))} ago", "$quiet"),
    )


def level(snapshot: Snapshot) -> Level:
    """The bar of extraction."""
    current, wanted = current_and_wanted(snapshot)
    return Level(current / wanted if wanted else 0.0)


def extractor(snapshot: Snapshot) -> Pieces:
    """Name the process and what it does."""
    worker = extractor_of(snapshot)
    if worker is None:
        return ("not started", ("   eagletui extract starts it", "$quiet"))
    if worker.stopped:
        return ("ended",)
    if not worker.alive:
        return ((f"pid {worker.pid} dead", "bold $error"),)
    detail = read_detail(worker.detail_json)
    refused = f", {figures.count(detail.refused)} refused" if detail is not None and detail.refused else ""
    return (f"pid {worker.pid} running", f"   {detail.phase}{refused}" if detail is not None else "")


def machine(snapshot: Snapshot) -> dict[str, Pieces]:
    """What the extractor takes of its machine."""
    found = detail_of(snapshot)
    taken = found.machine if found is not None else Machine()
    if taken.cores is None:
        unknown: Pieces = ((f"unknown: {_why_unknown(snapshot)}", "$quiet"),)
        return dict.fromkeys(("cpu", "memory", "gpu", "process"), unknown)
    cpu = f"{taken.cpu_percent or 0:.0f} % of {figures.plural(taken.cores, 'core')}"
    held = f"{figures.size(taken.resident_bytes)} held"
    left = f"{figures.part_of(taken.memory_free_bytes, taken.memory_total_bytes)} free"
    return {
        "cpu": (cpu,),
        "memory": (held, f"   {left}"),
        "gpu": gpus(taken),
        "process": (f"{cpu}   {held}   {left}",),
    }


def gpus(taken: Machine) -> Pieces:
    """Load and memory of the GPUs, summed where there are many."""
    found = taken.gpus
    if not found:
        return ((f"none: {taken.without_gpu}", "$quiet"),)
    memory = figures.part_of(sum(gpu.used_bytes for gpu in found), sum(gpu.total_bytes for gpu in found))
    name = found[0].name.removeprefix("NVIDIA ") if len(found) == 1 else f"{len(found)} GPUs"
    return (f"{name}: load {_load(found)}, {memory}",)


def _load(found: Sequence[Gpu]) -> str:
    loads = [gpu.load_percent for gpu in found if gpu.load_percent is not None]
    if not loads:
        return "unknown"
    low, high = min(loads), max(loads)
    return f"{low} %" if low == high else f"{low} to {high} %"


def _is_at_work(snapshot: Snapshot) -> bool:
    worker = extractor_of(snapshot)
    return worker is not None and worker.alive


def _why_unknown(snapshot: Snapshot) -> str:
    worker = extractor_of(snapshot)
    if worker is None:
        return "no extractor runs"
    if worker.stopped:
        return "the extractor has ended"
    return "it starts" if worker.alive else "the extractor is dead"


def disk(snapshot: Snapshot, free_bytes: int | None, ticks: Sequence[TickRow]) -> dict[str, Pieces]:
    """Free space, what is still to be written, how fast, and whether it fits."""
    detail = detail_of(snapshot)
    if detail is not None and detail.storage is not None:
        elsewhere: Pieces = (f"shards go to {detail.storage}",)
        outlook: Pieces = (("unknown: not a disk of this machine", "$quiet"),)
        return {"disk": elsewhere, "writing": writing(snapshot, ticks), "outlook": outlook, "storage": elsewhere}
    rest = to_write(snapshot, detail)
    free = f"{figures.size(free_bytes)} free"
    if rest.bytes is None:
        come = f"   {figures.plural(rest.samples, 'sample')} to come"
    else:
        come = f"   ~{figures.size(rest.bytes)} to come" if rest.bytes else "   nothing to come"
    speed = writing(snapshot, ticks)
    return {
        "disk": (free, come),
        "writing": speed,
        "outlook": disk_outlook(snapshot, free_bytes, ticks),
        "storage": (free, come, "   writing ", *speed),
    }


def to_write(snapshot: Snapshot, detail: ExtractorDetail | None) -> ToWrite:
    """Estimate what extraction still has before it, from what is sealed, answered and queued."""
    extract, answered = snapshot.extract, snapshot.states["tokenized"]
    follows = detail is not None and detail.follows
    if extract.samples and extract.rows:
        tokens_each: float | None = extract.rows / extract.samples
    else:
        tokens_each = (snapshot.tokens.prompt + snapshot.tokens.output) / answered if answered else None
    row_bytes = extract.bytes / extract.rows if extract.rows else None
    if row_bytes is None and detail is not None:
        row_bytes = detail.row_bytes
    return ToWrite(
        waiting=extract.pending,
        to_come=sum(snapshot.states[state] for state in _TO_COME) if follows else 0,
        answered=answered,
        trainable=extract.samples + extract.pending,
        tokens_each=tokens_each,
        row_bytes=row_bytes,
    )


def writing(snapshot: Snapshot, ticks: Sequence[TickRow]) -> Pieces:
    """Say how fast shards grow."""
    per_s = _bytes_per_s(snapshot, ticks)
    if per_s is not None:
        return (f"{figures.size(round(per_s))}/s",)
    return ("pace unknown" if _is_at_work(snapshot) else "nothing",)


def disk_outlook(snapshot: Snapshot, free_bytes: int | None, ticks: Sequence[TickRow]) -> Pieces:
    """Say whether the rest fits on the disk, and if not, when it is full."""
    detail = detail_of(snapshot)
    if detail is not None and detail.stream_ahead is not None:
        return (f"bounded: a trainer takes the shards, {detail.stream_ahead} ahead",)
    if free_bytes is None:
        return (("unknown: the disk does not tell", "$warning"),)
    rest = to_write(snapshot, detail)
    outlook = DiskOutlook(free_bytes, rest.bytes, _bytes_per_s(snapshot, ticks))
    if outlook.to_write_bytes == 0:
        return (f"{figures.size(outlook.room_bytes)} to spare, nothing to come",)
    if outlook.spare_bytes is None:
        return (f"{figures.size(free_bytes)} free, need unknown yet",)
    if outlook.spare_bytes >= 0:
        return (f"fits, {figures.size(outlook.spare_bytes)} to spare",)
    if outlook.full_in_s is not None:
        return ((f"full in {figures.duration(outlook.full_in_s)}, before the end", "bold $error"),)
    return ((f"{figures.size(-outlook.spare_bytes)} short, when is unknown: no pace", "bold $warning"),)


def _bytes_per_s(snapshot: Snapshot, ticks: Sequence[TickRow]) -> float | None:
    extract, now = snapshot.extract, pace(snapshot, ticks)
    if now is None or not extract.samples:
        return None
    return now.extracted * extract.bytes / extract.samples


def _trainable_share(snapshot: Snapshot) -> float:
    answered = snapshot.answered
    return (snapshot.extract.samples + snapshot.extract.pending) / answered if answered else 1.0
