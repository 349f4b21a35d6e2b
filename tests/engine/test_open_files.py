"""The limit of open files: raised as far as it goes, and where that is too little, said and kept."""

import resource
import subprocess
import sys
from functools import partial

from eagletui.engine.open_files import BESIDE, OpenFiles
from eagletui.ledger.reader import LedgerReader
from tests.engine.conftest import NewRun
from tests.provider_fixture import StartProvider

LOW = """
import resource
from eagletui.engine.open_files import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    done = subprocess.run([sys.executable, "-c", LOW], capture_output=True, text=True, check=True)
    assert done.stdout == "128 (128, 128)\n"


def test_each_receiver_has_a_limit_of_its_own_and_too_many_requests_are_doubted_with_the_way_out() -> None:
    ready = 0
    files = OpenFiles(1024, lambda: ready)
    assert files.room() == 1024 - BESIDE
    assert files.doubt(824) is None
    doubt = files.doubt(1200)
    assert doubt is not None
    assert "Only 824 of 1,200 requests can be in flight" in doubt
    assert "may open 1,024 files" in doubt
    assert "`ulimit -n 1400`" in doubt
    ready = 2
    assert files.room() == 2 * 824
    assert files.doubt(1200) is None


def doubts(number: int, reader: LedgerReader) -> bool:
    return sum(event.kind == "files" for event in reader.events()) == number


def test_a_run_keeps_to_what_its_files_leave_and_says_so_at_its_start_and_when_more_is_ordered(
    new_run: NewRun, start_provider: StartProvider
) -> None:
    provider = start_provider(latency_s=0.05, tokens_per_s=500)
    run = new_run(provider.api_url, 14, max_in_flight=8)
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    process = run.start(constants={"eagletui.engine.open_files": {"BESIDE": limit - 3}})
    run.until(partial(doubts, 1), "a line in the log")
    applied = run.order("in-flight", n=5)
    assert applied.changed == 1
    assert "Only 3 of 5 requests can be in flight" in (applied.result or "")
    assert run.order("in-flight", n=3).result == "At most 3 requests in flight."
    run.until(partial(doubts, 2), "another line")
    assert run.wait(process) == 0, run.log()
    with run.reader() as reader:
        details = [reader.sample(f"p{number:04d}") for number in range(14)]
    spans = [
        (detail.attempts[0].sent_at, detail.attempts[0].sent_at + (detail.row.latency_s or 0.0))
        for detail in details
        if detail is not None and detail.attempts[0].sent_at is not None
    ]
    together = [sum(began <= at < ended for began, ended in spans) for at, _ in spans]
    assert max(together) == 3
