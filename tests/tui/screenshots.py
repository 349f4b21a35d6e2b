"""Draw every screen and dialog of real runs at both sizes.

`python -m tests.tui.screenshots RUN FOLDER --paused RUN --failed RUN`: a finished run, one that is paused half-way,
and one with samples that failed. The runs are copied first, and nothing is written to them. The pictures are SVG
without anything from elsewhere.
"""

import argparse
import asyncio
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from eagletui.runs.folder import RunFolder
from eagletui.tui.app import EagleApp
from tests.tui.driving import NARROW, NEVER_S, WIDE, Screens, Size

Which = Literal["run", "paused", "failed"]


@dataclass(frozen=True)
class Picture:
    """What is drawn, and the way there from the dashboard."""

    name: str
    keys: tuple[str, ...] = ()
    text: str = ""
    """Typed then."""
    of: Which = "run"
    theme: str = "eagle-dark"
    sizes: tuple[Size, ...] = (WIDE, NARROW)


_OLD_CAP: Final = ("backspace",) * 4
PICTURES: Final = (
    Picture("run"),
    Picture("run-light", theme="eagle-light"),
    Picture("run-mono", theme="eagle-mono"),
    Picture("samples", ("2",)),
    Picture("mismatched", ("2", "f")),
    Picture("filter", ("2", "slash"), "evidence:conflict drift>0"),
    Picture("diff", ("2", "f", "enter")),
    Picture("diff-light", ("2", "f", "enter"), theme="eagle-light"),
    Picture("tail", ("2", "enter", "t")),
    Picture("texts", ("2", "enter", "v")),
    Picture("spend", ("3",)),
    Picture("quarantine", ("3", "u")),
    Picture("extract", ("4",)),
    Picture("log", ("5",)),
    Picture("verdicts", ("6",)),
    Picture("sign", ("6", "enter"), "same bytes, other cut"),
    Picture("charts", ("7",)),
    Picture("help", ("question_mark",)),
    Picture("palette", ("colon",), "run"),
    Picture("export", ("2", "e")),
    Picture("attach", ("a",)),
    Picture("compare", ("a", "home", "space", "down", "c")),
    Picture("launch", ("a", "n", "enter", "f5")),
    Picture("paused", of="paused"),
    Picture("limits", ("dollar_sign",), of="paused"),
    Picture("new-cap", ("dollar_sign", "tab", *_OLD_CAP), "0.10", of="paused"),
    Picture("stop", ("X",), of="paused"),
    Picture("start", ("R",), of="paused"),
    Picture("failed", of="failed"),
    Picture("retry", ("2", "f", "f", "f", "r"), of="failed"),
    Picture("too-small", sizes=((50, 12),)),
)
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> None:
    """Draw them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("run", type=Path, help="the folder of a finished run")
    options.add_argument("out", type=Path, help="where the pictures go")
    options.add_argument("--paused", type=Path, required=True, help="the folder of a run that is paused")
    options.add_argument("--failed", type=Path, required=True, help="the folder of a run with failed samples")
    options.add_argument("--only", nargs="*", help="names of pictures; left out: all")
    given = options.parse_args()
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    runs: dict[Which, Path] = {
        "run": given.run.resolve(),
        "paused": given.paused.resolve(),
        "failed": given.failed.resolve(),
    }
    configs = Path(__file__).parents[2] / "configs"
    for picture in PICTURES:
        if given.only and picture.name not in given.only:
            continue
        for size in picture.sizes:
            with tempfile.TemporaryDirectory(prefix="eagletui-") as folder:
                shutil.copytree(configs, Path(folder) / "configs")
                for run in runs.values():
                    copy = Path(folder) / "runs" / run.name
                    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("features", "exports", "provider"))
                os.chdir(folder)  # the list of runs and the launcher show where they are
                os.environ.pop("EAGLETUI_RUNS", None)
                target = out / f"{picture.name}-{size[0]}x{size[1]}.svg"
                target.write_text(asyncio.run(draw(picture, Path("runs") / runs[picture.of].name, size)), "utf-8")
                os.chdir(out)


async def draw(picture: Picture, run: Path, size: Size) -> str:
    """Go to a screen and draw it."""
    app = EagleApp(RunFolder(run), refresh_s=NEVER_S, theme=picture.theme)
    async with app.run_test(size=size) as pilot:
        screens = Screens(app, pilot)
        await screens.look()
        await screens.press(*picture.keys)
        if picture.text:
            await screens.write(picture.text)
        return _FONT.sub("", app.export_screenshot(title=f"eagletui attach {run.name}", simplify=True))


if __name__ == "__main__":
    main()
