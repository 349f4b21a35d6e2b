"""The command line itself: unknown commands, versions, closed pipes."""

import errno
import shlex
import subprocess
import sys
from typing import NoReturn

import pytest

from eagletui import __version__
from tests.cli.conftest import Command, Ended

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


@pytest.mark.parametrize(
    ("redirection", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_an_output_that_cannot_be_written_is_one_line_and_exit_2(redirection: str, why: str) -> None:
    command = f"exec {shlex.join([*PROGRAM, '--help'])} {redirection}"
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, f"eagletui: output: {why}\n")


def test_ctrl_c_while_a_command_is_loaded_is_quiet(eagletui: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("eagletui.cli.app.import_module", interrupted)
    assert eagletui("formats") == Ended(130, "", "")


def test_with_json_an_error_is_one_object_too_and_stays_a_line_for_people(eagletui: Command) -> None:
    for args in (("status", "nowhere"), ("inspect", "nowhere"), ("ctl", "nowhere", "pause"), ("plan", "nowhere.toml")):
        ended = eagletui(*args, "--json")
        assert (ended.code, ended.json["ok"]) == (2, False)
        assert ended.err == f"eagletui: {ended.json['error']}\n"


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("run", "--nope"), "No such option: --nope"),
        (("run", "small.toml"), "No such option: --json"),
        (("status",), "Missing argument 'RUN'"),
        (("extract", "small", "--engine", "tpu"), "'tpu' is not one of"),
        (("statsu", "small"), "No command is called statsu. Did you mean status? See: eagletui --help"),
    ],
)
def test_with_json_wrong_usage_is_one_object_too(eagletui: Command, args: tuple[str, ...], error: str) -> None:
    ended = eagletui(*args, "--json")
    assert (ended.code, set(ended.json), ended.json["ok"]) == (2, {"ok", "error"}, False)
    assert error in ended.json["error"]
    assert ended.err.splitlines()[-1].endswith(ended.json["error"].splitlines()[-1]), "people read it too"
    assert eagletui(*args[:1], "--", "--json").out == "", "that is no option"


def test_with_json_an_error_about_a_hostile_name_is_one_object_in_ascii(eagletui: Command) -> None:
    name = "no\udcff\x9b31mwhere.toml"
    for args in (("plan", name), ("audit", "--tokenizer", name, "--format", "smollm2")):
        ended = eagletui(*args, "--json")
        assert (ended.code, ended.json["ok"]) == (2, False)
        assert ended.out.isascii()
        assert "no\ufffdwhere.toml" in ended.json["error"]
        assert ended.err == f"eagletui: {ended.json['error']}\n"


def test_with_json_what_the_operating_system_refuses_is_one_object_too(
    eagletui: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", b"/runs/\xff")

    monkeypatch.setattr("eagletui.cli.ls.list_runs", refused)
    ended = eagletui("ls", "--json")
    assert (ended.code, ended.json) == (2, {"ok": False, "error": "/runs/\ufffd: Permission denied"})
    assert ended.err == "eagletui: /runs/\ufffd: Permission denied\n"


def test_with_json_an_output_that_cannot_be_written_is_said_once() -> None:
    command = f"exec {shlex.join([*PROGRAM, 'status', 'nowhere', '--json'])} >/dev/full"
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.count("eagletui: ") == 1
    assert "Traceback" not in ended.stderr
