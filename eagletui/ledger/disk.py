"""Refuse to keep a ledger on a network file system, where WAL loses data, and name a local path that would do."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from eagletui.core.errors import LedgerError

PROC_MOUNTS: Final = Path("/proc/mounts")

NETWORK_FILESYSTEMS: Final = frozenset(
    "nfs nfs4 cifs smb3 smbfs afs ncpfs lustre gpfs beegfs ceph glusterfs fuse.sshfs fuse.glusterfs fuse.s3fs".split()
)
"""WAL needs memory shared by every process, which these give only within one host or not at all
(https://www.sqlite.org/wal.html, "does not work over a network filesystem")."""

LOCAL_CANDIDATES: Final = (Path("/local"), Path("/scratch"), Path("/mnt/local"), Path("/var/tmp"), Path("/tmp"))
"""Usual places for local disks on GPU boxes, best first."""


def refuse_network_disk(
    path: Path, *, mounts: Path = PROC_MOUNTS, candidates: Iterable[Path] = LOCAL_CANDIDATES
) -> None:
    """Check that a ledger at `path` would lie on a local disk.

    Args:
        path: the ledger file, which need not exist yet.
        mounts: the mount table, in the format of /proc/mounts. Absent: nothing is checked.
        candidates: folders to look through for a local one.

    Raises:
        LedgerError: the path lies on a network file system; the message names a local folder.
    """
    kind = network_kind(path, mounts=mounts)
    if kind is None:
        return
    table = _read_mounts(mounts)
    local = next((folder for folder in candidates if os.access(folder, os.W_OK) and _is_local(folder, table)), None)
    advice = (
        f"Keep runs on a local disk: export EAGLETUI_RUNS={local / 'eagletui-runs'}"
        if local
        else "Keep runs on a local disk: set EAGLETUI_RUNS to a folder on one"
    )
    raise LedgerError(f"{path} lies on a network file system ({kind}), where SQLite's WAL can lose data. {advice}.")


def network_kind(path: Path, *, mounts: Path = PROC_MOUNTS) -> str | None:
    """Name the network file system a path lies on; None for a local disk, and where no table of mounts tells."""
    if not mounts.exists():
        return None
    kind = _filesystem_of(path, _read_mounts(mounts))
    return kind if kind in NETWORK_FILESYSTEMS else None


def _read_mounts(mounts: Path) -> dict[Path, str]:
    """Map mount points to file system types; a later mount on the same point hides the earlier."""
    table: dict[Path, str] = {}
    for line in mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields = line.split(" ")
        if len(fields) >= 3:
            # The kernel writes space, tab, newline and backslash in mount points as octal escapes.
            point = fields[1]
            for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                point = point.replace(escape, character)
            table[Path(point)] = fields[2]
    return table


def _filesystem_of(path: Path, table: dict[Path, str]) -> str | None:
    resolved = path.resolve()
    for folder in (resolved, *resolved.parents):
        if folder in table:
            return table[folder]
    return None


def _is_local(folder: Path, table: dict[Path, str]) -> bool:
    kind = _filesystem_of(folder, table)
    return kind is not None and kind not in NETWORK_FILESYSTEMS
