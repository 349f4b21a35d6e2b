"""Extraction: how far, what it takes of the machine, whether the disk holds it, and what checked it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from eagletui.core.gauges import ExtractorDetail, Gpu, Machine
from eagletui.ledger.reader import LedgerReader
from eagletui.ledger.reader_opinions import ArbiterFigures
from eagletui.ledger.rows import TickRow
from eagletui.ledger.snapshot import Snapshot
from eagletui.ledger.verification import record_verification
from eagletui.ledger.writer_extract import ExtractorWriter
from eagletui.tui import extract_text
from eagletui.tui.widgets.stat import plain
from tests.tui.driving import NARROW, WIDE, locks, opened
from tests.tui.factory import EXTRACTING, START, Built

GIB = 2**30


def snapshot_of(built: Built, detail: ExtractorDetail | None = None) -> Snapshot:
    if detail is not None:
        with ExtractorWriter(built.ledger, built.clock) as writer:
            writer.beat("extractor", detail=detail.detail())
    with locks(built, ("engine", "extractor")), LedgerReader(built.ledger, built.clock) as reader:
        return reader.snapshot()


def ticks(snapshot: Snapshot, answered: Sequence[int], extracted: Sequence[int]) -> list[TickRow]:
    """Ticks a minute apart, the last one now."""
    first = int(snapshot.at) - 60 * (len(answered) - 1)
    return [
        TickRow(first + 60 * number, made, 0, 0, 0, 0, done)
        for number, (made, done) in enumerate(zip(answered, extracted, strict=True))
    ]


async def test_every_figure_has_its_unit_its_age_and_the_result_of_its_check(busy: Built) -> None:
    async with opened(busy, WIDE) as screens:
        await screens.press("4")
        assert "10 / 37 trainable    27.0 %" in screens.text
        assert "800 of 18.2 KiB, one a token" in screens.line_with("rows  ")
        assert "27 waiting, growing 4.6/min" in screens.line_with("lag  ")
        assert "214 tok/s" in screens.line_with("pace  ")
        assert "not yet: eagletui verify checks them" in screens.line_with("verified  ")
        assert "11 without proof: eagletui arbitrate decides" in screens.line_with("arbiter  ")
        assert "running   extracting" in screens.line_with("extractor   pid")
        assert "187 % of 2 cores" in screens.line_with("cpu  ")
        assert "2.1 GiB held   11.0 of 15.6 GiB free" in screens.line_with("memory  ")
        assert "H200: load 83 %, 61.2 of 139.8 GiB" in screens.line_with("gpu  ")
        # 83 GB free; 27 samples wait and 20 come, 37 of 37 answers are trainable, 80 tokens of 18,625 bytes each.
        assert "77.3 GiB free   ~66.8 MiB to come" in screens.line_with("disk  ")
        assert "fits, 76.7 GiB to spare" in screens.line_with("outlook  ")
        assert "as of <5 s ago" in screens.text
        busy.clock.now += 9
        await screens.look()
        assert "as of 10 s ago" in screens.text
        record_verification(busy.ledger, ["shards/000000.safetensors"], "", 10, clock=busy.clock)
        await screens.look()
        assert "1 of 1 shard, 2025-10-09 09:08" in screens.line_with("verified  ")
        record_verification(
            busy.ledger,
            ["shards/000000.safetensors"],
            "files: shards/000000.safetensors has 3 bytes",
            10,
            clock=busy.clock,
        )
        await screens.look()
        assert "FAILED 09:08:10: Features do not hold what" in screens.line_with("verified  ")
        await screens.press("1")
        assert "Features do not hold what they should" in screens.line_with("finding")
        record_verification(busy.ledger, ["shards/000000.safetensors"], "", 10, clock=busy.clock)
        await screens.look()
        assert "Features do not hold" not in screens.text


async def test_a_small_terminal_shows_the_same_figures_and_one_list_at_a_time(busy: Built) -> None:
    async with opened(busy, NARROW, theme="eagle-mono") as screens:
        await screens.press("4")
        assert "187 % of 2 cores   2.1 GiB held   11.0 of 15.6 GiB free" in screens.line_with("cpu, memory")
        assert "77.3 GiB free   ~66.8 MiB to come   writing 0 B/s" in screens.line_with("disk  ")
        assert "shards/000000.safetensors" in screens.line_with("not yet ")
        await screens.press("tab")
        assert "b3_magicoder" in screens.text
        assert "shards/000000" not in screens.text
        await screens.press("tab")
        assert "shards/000000" in screens.text


def test_the_arbiter_is_summed_up(busy: Built) -> None:
    snapshot = snapshot_of(busy)
    asked = ArbiterFigures(asked=8, inferred=3, changed=1, mean_posterior=0.97, last_at=START)
    assert plain(extract_text.arbiter(snapshot, asked, START + 720)) == ("8 asked, 3 inferred, 1 other ids, 12 min ago")


def test_a_sample_whose_ids_changed_is_counted_once(busy: Built) -> None:
    snapshot = snapshot_of(busy)
    assert extract_text.current_and_wanted(snapshot) == (10, 37)
    stale = replace(snapshot, extract=replace(snapshot.extract, samples=37, pending=1))
    assert extract_text.current_and_wanted(stale) == (36, 37)
    as_text = replace(snapshot, extract=replace(snapshot.extract, samples=0, pending=0))
    assert extract_text.current_and_wanted(as_text) == (0, 0)


def test_lag_tells_its_trend(busy: Built) -> None:
    snapshot = snapshot_of(busy)

    def said(answered: Sequence[int], extracted: Sequence[int]) -> str:
        found = ticks(snapshot, answered, extracted)
        return extract_text.lag(snapshot, extract_text.pace(snapshot, found))

    assert said((30, 30, 30), (4, 7, 10)) == "27 waiting, shrinking 3.0/min, gone in 9 min"
    assert said((31, 34, 37), (10, 10, 10)) == "27 waiting, growing 3.0/min"
    assert said((31, 34, 37), (4, 7, 10)) == "27 waiting, steady for 2 min"
    assert extract_text.lag(snapshot, None) == "27 waiting, trend unknown: no ticks of now"


def test_the_outlook_says_when_the_disk_is_full(busy: Built) -> None:
    # What waits and comes takes 70 million bytes; half a GiB stays free whatever happens.
    snapshot = snapshot_of(busy)
    writing = ticks(snapshot, (30, 30, 30), (4, 7, 10))  # 3 samples of 1,490,000 bytes a minute

    def said(room: int, found: list[TickRow], snapshot: Snapshot = snapshot) -> str:
        return plain(extract_text.disk_outlook(snapshot, GIB // 2 + room, found))

    assert said(90_030_000, writing) == "fits, 19.1 MiB to spare"
    # 35,760,000 bytes at 4,470,000 a minute
    assert said(35_760_000, writing) == "full in 8 min, before the end"
    assert said(0, writing) == "full in <1 s, before the end"
    assert said(35_760_000, []) == "32.7 MiB short, when is unknown: no pace"
    assert plain(extract_text.disk_outlook(snapshot, None, writing)) == "unknown: the disk does not tell"
    streams = snapshot_of(busy, replace(EXTRACTING, stream_ahead=4))
    assert said(0, writing, streams) == "bounded: a trainer takes the shards, 4 ahead"
    away = snapshot_of(busy, replace(EXTRACTING, storage="s3://bucket/features"))
    assert plain(extract_text.disk(away, GIB, writing)["disk"]) == "shards go to s3://bucket/features"
    assert plain(extract_text.disk(away, GIB, writing)["outlook"]) == "unknown: not a disk of this machine"


@pytest.mark.parametrize(
    ("gpus", "without", "expected"),
    [
        ((), "no NVIDIA driver", "none: no NVIDIA driver"),
        ((Gpu("NVIDIA A100", None, 2 * GIB, 10 * GIB),), "", "A100: load unknown, 2.0 of 10.0 GiB"),
        ((Gpu("H200", 12, GIB, 4 * GIB), Gpu("H200", 97, GIB, 4 * GIB)), "", "2 GPUs: load 12 to 97 %, 2.0 of 8.0 GiB"),
    ],
)
def test_gpus_are_summed_up_and_none_has_a_reason(gpus: tuple[Gpu, ...], without: str, expected: str) -> None:
    assert plain(extract_text.gpus(Machine(gpus=gpus, without_gpu=without))) == expected


def test_what_is_unknown_says_why(busy: Built) -> None:
    with ExtractorWriter(busy.ledger, busy.clock) as writer:
        writer.beat("extractor", detail={"phase": "starting"})
        assert plain(extract_text.machine(snapshot_of(busy))["gpu"]) == "unknown: it starts"
        with LedgerReader(busy.ledger, busy.clock) as reader:
            dead = reader.snapshot()
        assert plain(extract_text.machine(dead)["cpu"]) == "unknown: the extractor is dead"
        writer.stop_beat("extractor")
        assert plain(extract_text.machine(snapshot_of(busy))["memory"]) == "unknown: the extractor has ended"
    nobody = replace(dead, workers=())
    assert plain(extract_text.machine(nobody)["process"]) == "unknown: no extractor runs"
    assert plain(extract_text.extractor(nobody)) == "not started   eagletui extract starts it"
