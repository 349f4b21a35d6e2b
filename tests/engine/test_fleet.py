"""The receivers of an engine as it ends, and what several that died in one slot leave."""

import subprocess
from pathlib import Path
from typing import cast

from eagletui.engine.answers import AnswerDesk
from eagletui.engine.fleet import Fleet, Remote
from eagletui.engine.spool import Spool, keep, segments
from eagletui.engine.taking import Taker
from eagletui.providers.base import Provider, RawReply
from eagletui.runs.folder import RunFolder


def fleet_of(path: Path) -> Fleet:
    (path / "logs").mkdir()
    folder = RunFolder(path)
    taker = Taker(cast(Provider, None), cast(AnswerDesk, None), Spool(folder.spool_dir, "engine"))
    return Fleet(folder, taker, "key")


async def leave_reply(fleet: Fleet, folder: RunFolder, attempt_id: int) -> None:
    """Let a receiver of the first slot die whose reply the ledger does not have yet."""
    spool = Spool(folder.spool_dir, "receiver-1")
    await spool.put(keep(attempt_id, RawReply("json", b"{}", 200, None, 1.0, 2.0, None, 3.0)))
    await spool.close()
    process = cast("subprocess.Popen[bytes]", None)
    await fleet._bury(Remote(1, process, 0.0, unfiled={attempt_id}))


async def test_replies_of_two_that_died_in_one_slot_are_kept_until_the_ledger_has_each(tmp_path: Path) -> None:
    fleet, folder = fleet_of(tmp_path), RunFolder(tmp_path)
    await fleet.close()  # else another is started in the place of each
    await leave_reply(fleet, folder, 1)
    (first,) = segments(folder.spool_dir)
    await leave_reply(fleet, folder, 2)
    assert segments(folder.spool_dir)[0] == first
    assert len(segments(folder.spool_dir)) == 2
    fleet.filed([1])
    assert len(segments(folder.spool_dir)) == 1
    fleet.filed([2])
    assert segments(folder.spool_dir) == []


async def test_no_receiver_is_started_once_all_are_ending(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    await fleet.close()
    fleet.start(1)
    assert fleet.remotes == {}
