"""What ends detached workers although nobody stopped them: a logout, a batch job's end, a container's end.

A session of its own (`setsid`) outlives a closed terminal and a lost SSH connection, but none of these three.
"""

import configparser
import getpass
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eagletui.cli.checkup import Check

_LOGIND_FOLDERS: Final = ("usr/lib/systemd", "run/systemd", "etc/systemd")
"""Later ones win, as systemd reads them."""

_JOBS: Final = {
    "SLURM_JOB_ID": "Slurm job",
    "PBS_JOBID": "PBS job",
    "LSB_JOBID": "LSF job",
    "JOB_ID": "Grid Engine job",
}
_CONTAINER_MARKS: Final = (".dockerenv", "run/.containerenv")


def lifetime_checks(environ: Mapping[str, str], root: Path = Path("/")) -> list[Check]:
    """Say for each of the three what dies when, and how to prevent it.

    Args:
        environ: the environment.
        root: where the machine's files lie.
    """
    return [_logout(environ, root), _job(environ), _container(environ, root)]


def _logout(environ: Mapping[str, str], root: Path) -> Check:
    name = "logout"
    if not (root / "run/systemd/system").is_dir():
        return Check(name, "ok", "systemd does not run here: a logout ends no workers")
    try:
        groups = (root / "proc/self/cgroup").read_text()
    except OSError:
        groups = ""
    if ".slice/session-" not in groups:
        return Check(name, "ok", "this shell belongs to no login session: a logout ends no workers")
    chosen = _kill_user_processes(root)
    if chosen is None:
        detail = "KillUserProcesses is not set; its default is no on most systems, so that workers outlive a logout"
        return Check(name, "ok", detail)
    if chosen:
        user = environ.get("USER") or getpass.getuser()
        return Check(
            name,
            "warn",
            "KillUserProcesses=yes: workers die when you log out",
            f"loginctl enable-linger {user} && systemd-run --user --scope eagletui run CONFIG --detach",
        )
    return Check(name, "ok", "KillUserProcesses=no: workers outlive a logout")


def _kill_user_processes(root: Path) -> bool | None:
    """Read the setting; None where no file sets it."""
    chosen: bool | None = None
    for folder in _LOGIND_FOLDERS:
        drop_ins = sorted((root / folder / "logind.conf.d").glob("*.conf"))
        for path in (root / folder / "logind.conf", *drop_ins):
            parsed = configparser.ConfigParser(interpolation=None, strict=False)
            try:
                parsed.read_string(path.read_text(encoding="utf-8"))
                value = parsed.get("Login", "KillUserProcesses")
            except (OSError, UnicodeDecodeError, configparser.Error):
                continue
            chosen = value.strip().lower() in ("yes", "true", "on", "1")
    return chosen


def _job(environ: Mapping[str, str]) -> Check:
    for variable, kind in _JOBS.items():
        if environ.get(variable):
            return Check(
                "batch job",
                "warn",
                f"inside {kind} {environ[variable]}: workers die with it, at its time limit too",
                "keep the runs on a disk that stays; in the next job: eagletui run NAME",
            )
    return Check("batch job", "ok", "not inside a batch job")


def _container(environ: Mapping[str, str], root: Path) -> Check:
    inside = (
        any((root / mark).exists() for mark in _CONTAINER_MARKS)
        or "container" in environ
        or "KUBERNETES_SERVICE_HOST" in environ
    )
    if not inside:
        return Check("container", "ok", "not inside a container")
    return Check(
        "container",
        "warn",
        "inside a container: workers die with it, and so do runs that lie on no volume",
        "set EAGLETUI_RUNS to a folder on a volume; in the next container: eagletui run NAME",
    )
