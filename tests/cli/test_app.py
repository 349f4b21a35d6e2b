"""The command line itself: unknown commands, versions, closed pipes."""

import subprocess
import sys

import pytest

from eagletui import __version__
from tests.cli.conftest import Command

PROGRAM = [sys.executable, "-c", "from eagletui.cli.app import main; main()"]


def test_an_unknown_command_exits_2_and_names_the_nearest(eagletui: Command) -> None:
    ended = eagletui("stats")
    assert (ended.code, ended.out) == (2, "")
    assert "No command is called stats. Did you mean status?" in ended.err


def test_an_unknown_option_exits_2_without_a_traceback(eagletui: Command) -> None:
    ended = eagletui("ls", "--jsn")
    assert ended.code == 2
    assert "No such option" in ended.err
    assert "Traceback" not in ended.err


def test_the_version_is_the_packages(eagletui: Command) -> None:
    assert eagletui("--version").out == f"{__version__}\n"


@pytest.mark.parametrize("args", [["--help"], ["formats"], ["formats", "--json"]])
def test_a_reader_that_closes_the_pipe_causes_no_traceback(args: list[str]) -> None:
    with subprocess.Popen([*PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert said == ""
    assert process.returncode == 1
