"""Draw every screen of a finished run at both sizes: `python -m tests.tui.screenshots RUN FOLDER`.

The run is copied first, and nothing is written to it. The pictures are SVG without anything from elsewhere.
"""

import argparse
import asyncio
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from eagletui.runs import RunFolder
from eagletui.tui.app import EagleApp
from tests.tui.driving import NARROW, NEVER_S, WIDE, Screens, Size

SCREENS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("run", ()),
    ("samples", ("2",)),
    ("diff", ("2", "enter")),
    ("tail", ("2", "enter", "t")),
    ("spend", ("3",)),
    ("extract", ("4",)),
    ("log", ("5",)),
    ("verdicts", ("6",)),
    ("charts", ("7",)),
    ("help", ("question_mark",)),
    ("limits", ("dollar_sign",)),
    ("attach", ("a",)),
    ("launch", ("a", "n")),
)
"""A name and the keys that lead there from the dashboard."""
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> None:
    """Draw them."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("run", type=Path, help="the folder of a finished run")
    options.add_argument("out", type=Path, help="where the pictures go")
    options.add_argument("--only", nargs="*", help="names of screens; left out: all")
    given = options.parse_args()
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="eagletui-") as folder:
        copy = Path(folder) / "runs" / given.run.name
        shutil.copytree(Path(__file__).parents[2] / "configs", Path(folder) / "configs")
        shutil.copytree(given.run, copy, ignore=shutil.ignore_patterns("features", "exports", "provider"))
        os.chdir(folder)  # the list of runs and the launcher show where they are
        os.environ.pop("EAGLETUI_RUNS", None)
        for name, keys in SCREENS:
            if not given.only or name in given.only:
                for size in (WIDE, NARROW):
                    target = out / f"{name}-{size[0]}x{size[1]}.svg"
                    target.write_text(asyncio.run(picture(copy, keys, size)), "utf-8")


async def picture(run: Path, keys: tuple[str, ...], size: Size) -> str:
    """Go to a screen and draw it."""
    app = EagleApp(RunFolder(run), refresh_s=NEVER_S, theme="eagle-dark")
    async with app.run_test(size=size) as pilot:
        screens = Screens(app, pilot)
        await screens.look()
        await screens.press(*keys)
        return _FONT.sub("", app.export_screenshot(title=f"eagletui attach {run.name}", simplify=True))


if __name__ == "__main__":
    main()
