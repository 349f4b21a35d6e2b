"""Act on samples that were picked from a list: export them, ask them again, save one; each said before it is done."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from eagletui.core.errors import LedgerError
from eagletui.runs.folder import RunFolder
from eagletui.tui import background, orders
from eagletui.tui.asking_again import Again, ask_ledger
from eagletui.tui.sample_export import Picked, export_folder, export_lines, export_samples
from eagletui.tui.sample_text import sample_document
from eagletui.tui.screens.clip import save_text
from eagletui.tui.screens.dialogs import ConfirmDialog
from eagletui.tui.screens.frame import FramedScreen


def offer_export(screen: FramedScreen, picked: Picked) -> None:
    """Write the picked samples, after saying how many and where."""
    folder = screen.eagle.folder
    if folder is None or not picked.listed:
        screen.say("There is no sample to export.")
        return
    if screen.eagle.read_only:
        screen.say(("Export: read-only", "$warning"))
        return
    out = export_folder(folder, screen.eagle.clock())

    def done(act: bool | None) -> None:
        if act:
            screen.say("Exporting ...")
            work = partial(_export, screen, folder, picked, out)
            background.start(screen, "export samples", work, group="export", exclusive=False)

    screen.app.push_screen(ConfirmDialog("Export samples", export_lines(picked, out), "Export", "Do not"), done)


async def _export(screen: FramedScreen, folder: RunFolder, picked: Picked, out: Path) -> None:
    screen.say(await export_samples(screen.eagle.program, screen.eagle.reader, folder, picked, out))


def offer_retry(screen: FramedScreen, ids: Sequence[int], when_ordered: Callable[[], None]) -> None:
    """Queue failed, refused or set-aside samples again, after saying what that costs at most.

    Args:
        screen: asks.
        ids: of the samples, whatever their states.
        when_ordered: called once a person has agreed.
    """
    if screen.eagle.read_only:
        screen.say(("Retry: read-only", "$warning"))
    elif ids:
        background.start(screen, "look what to ask again", partial(_retry, screen, ids, when_ordered), group="retry")


async def _retry(screen: FramedScreen, ids: Sequence[int], when_ordered: Callable[[], None]) -> None:
    rows = await screen.eagle.reader.rows(ids)
    again = Again.of(rows)
    folder, view = screen.eagle.folder, screen.eagle.view
    if not again.keys or folder is None or view is None:
        which = f"{rows[0].sample_key} is {rows[0].state}" if len(rows) == 1 else f"none of {len(rows):,} marked is"
        screen.say((f"Retry: {which}; only failed, refused or set-aside samples are asked again", "$warning"))
        return

    def done(act: bool | None) -> None:
        if act:
            orders.give(screen.eagle, ("retry", {"samples": again.keys}))
            when_ordered()

    asked = await asyncio.to_thread(ask_ledger, folder.ledger_path, again)
    act, keep = ("Buy other answers", "Keep these answers") if again.set_aside else ("Ask again", "Leave them")
    lines = again.lines(asked, view.snapshot.spend.books)
    screen.app.push_screen(ConfirmDialog("Ask again", lines, act, keep), done)


def save_sample(screen: FramedScreen, key: str) -> None:
    """Save everything about a sample."""
    background.start(screen, "save a sample", partial(_save, screen, key), group="save", exclusive=False)


async def _save(screen: FramedScreen, key: str) -> None:
    try:
        detail = await screen.eagle.reader.sample(key)
    except LedgerError as error:
        screen.say((str(error), "$error"))
        return
    if detail is not None:
        save_text(screen, key, sample_document(detail))
