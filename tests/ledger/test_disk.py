"""A ledger on a network file system is refused with a place that would do."""

from pathlib import Path

import pytest

from eagletui.core.errors import LedgerError
from eagletui.ledger.disk import network_kind, refuse_network_disk

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
fileserver:/home {home} nfs4 rw,vers=4.2 0 0
/dev/nvme0n1 {scratch} xfs rw 0 0
//nas/share {spaced} cifs rw 0 0
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    for name in ("home", "scratch", "my share"):
        (tmp_path / name).mkdir()
    table = tmp_path / "mounts"
    spaced = str(tmp_path / "my share").replace(" ", "\\040")
    table.write_text(MOUNTS.format(home=tmp_path / "home", scratch=tmp_path / "scratch", spaced=spaced))
    return table


def test_a_ledger_on_nfs_is_refused_and_a_local_folder_is_named(tmp_path: Path, mounts: Path) -> None:
    ledger = tmp_path / "home" / "me" / "runs" / "a" / "ledger.sqlite"
    with pytest.raises(LedgerError) as refused:
        refuse_network_disk(ledger, mounts=mounts, candidates=[tmp_path / "home", tmp_path / "scratch"])
    assert str(ledger) in str(refused.value)
    assert "(nfs4)" in str(refused.value)
    assert f"export EAGLETUI_RUNS={tmp_path / 'scratch' / 'eagletui-runs'}" in str(refused.value)


def test_without_a_local_folder_the_variable_is_named_all_the_same(tmp_path: Path, mounts: Path) -> None:
    with pytest.raises(LedgerError, match="set EAGLETUI_RUNS to a folder on one"):
        refuse_network_disk(tmp_path / "home" / "ledger.sqlite", mounts=mounts, candidates=[tmp_path / "home"])


def test_a_mount_point_with_a_space_is_found(tmp_path: Path, mounts: Path) -> None:
    with pytest.raises(LedgerError, match=r"\(cifs\)"):
        refuse_network_disk(tmp_path / "my share" / "ledger.sqlite", mounts=mounts, candidates=[])


def test_a_link_into_a_network_folder_is_followed(tmp_path: Path, mounts: Path) -> None:
    (tmp_path / "scratch" / "runs").symlink_to(tmp_path / "home")
    with pytest.raises(LedgerError, match=r"\(nfs4\)"):
        refuse_network_disk(tmp_path / "scratch" / "runs" / "ledger.sqlite", mounts=mounts, candidates=[])


def test_a_local_disk_is_fine(tmp_path: Path, mounts: Path) -> None:
    refuse_network_disk(tmp_path / "scratch" / "ledger.sqlite", mounts=mounts)
    refuse_network_disk(tmp_path / "elsewhere" / "ledger.sqlite", mounts=mounts)


def test_without_a_mount_table_nothing_is_refused(tmp_path: Path) -> None:
    refuse_network_disk(tmp_path / "ledger.sqlite", mounts=tmp_path / "absent")


def test_the_kind_of_a_network_disk_is_named_and_a_local_one_is_none(tmp_path: Path, mounts: Path) -> None:
    assert network_kind(tmp_path / "home" / "ledger.sqlite", mounts=mounts) == "nfs4"
    assert network_kind(tmp_path / "scratch" / "ledger.sqlite", mounts=mounts) is None
    assert network_kind(tmp_path / "home" / "ledger.sqlite", mounts=tmp_path / "absent") is None
