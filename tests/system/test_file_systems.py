"""File systems that machines share are told by name, from what Linux lists."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from engrain.contracts.errors import UnsupportedSystem
from engrain.system.file_systems import (
    Mount,
    find_file_system,
    find_mount,
    is_shared,
    list_mounts,
    refuse_network_file_system,
)

MOUNTINFO = r"""22 28 0:21 / /proc rw,relatime - proc proc rw
28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
40 28 0:45 / /home rw shared:5 master:2 propagate_from:2 - nfs4 files:/home rw,vers=4.2
41 40 0:46 / /home/ana/local\040disk rw - xfs /dev/sdb1 rw
42 28 0:47 / /mnt/with\134back\011tab rw - fuse.sshfs ana@host:/ rw,user_id=1000
43 28 0:48 / /mnt/over rw - ext4 /dev/sdc1 rw
44 43 0:49 / /mnt/over rw - cifs //host/share rw
45 28 0:50 /@vol /data rw - btrfs /dev/sdd1 rw,subvol=/@vol
46 28 0:51 / /mnt/auto rw - autofs systemd-1 rw
47 46 0:52 / /mnt/auto rw - ext4 /dev/sde1 rw
"""
MOUNTS = list_mounts(MOUNTINFO.split("\n"))


def _type(path: str, device: str = "9:9") -> str | None:
    found = find_mount(MOUNTS, PurePosixPath(path), device)
    return None if found is None else found.file_system


def test_every_mount_is_read_with_its_escapes_undone() -> None:
    assert [mount.point for mount in MOUNTS[3:5]] == [
        "/home/ana/local disk",
        "/mnt/with\\back\ttab",
    ]
    assert MOUNTS[2] == Mount(device="0:45", point="/home", file_system="nfs4")
    assert len(MOUNTS) == 10


def test_lines_of_another_shape_are_left_out() -> None:
    lines = ["", "nonsense", "1 2 0:1 / /x rw", " - ext4", "1 2 0:1 / /x rw - "]
    assert list_mounts(lines) == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/lib/engrain", "ext4"),
        ("/home/ana", "nfs4"),
        ("/home/ana/local disk/engrain", "xfs"),
        ("/home/ana/local disks", "nfs4"),
        ("/homework", "ext4"),
        ("/mnt/with\\back\ttab/x", "fuse.sshfs"),
        ("/", "ext4"),
    ],
)
def test_the_deepest_mount_above_a_path_counts(path: str, expected: str) -> None:
    assert _type(path) == expected


def test_of_two_mounts_on_one_point_the_upper_one_counts() -> None:
    assert _type("/mnt/over/x") == "cifs"
    assert _type("/mnt/auto/x") == "ext4"


def test_the_device_tells_a_mount_that_hides_under_another() -> None:
    assert _type("/mnt/over/x", device="0:48") == "ext4"


def test_a_device_that_no_mount_has_is_told_by_the_path() -> None:
    assert _type("/data/sub/volume", device="0:77") == "btrfs"


def test_without_a_mount_above_nothing_is_known() -> None:
    assert find_mount(MOUNTS, PurePosixPath("relative"), "9:9") is None


@pytest.mark.parametrize(
    "name",
    [
        *("nfs", "nfs4", "NFS4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs"),
        *("lustre", "gfs2", "ocfs2", "vboxsf"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs"),
    ],
)
def test_file_systems_of_many_machines_are_known(name: str) -> None:
    assert is_shared(name)


@pytest.mark.parametrize(
    "name",
    [
        *("ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "apfs", "f2fs", "vfat", "squashfs"),
        *("fuse", "fuseblk", "fuse.bindfs", "fuse.mergerfs", "fuse.gocryptfs", "nfsd"),
    ],
)
def test_local_file_systems_are_not_refused(name: str) -> None:
    assert not is_shared(name)


def test_a_path_on_a_shared_file_system_is_refused_with_a_way_out(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    listed = tmp_path / "mountinfo"
    listed.write_text(
        f"1 0 {os.major(device)}:{os.minor(device)} / / rw - nfs4 files:/ rw\n", "utf-8"
    )
    with pytest.raises(UnsupportedSystem, match=r"nfs4.*local disk.*PostgreSQL") as refused:
        refuse_network_file_system(tmp_path, mountinfo=listed)
    assert refused.value.facts()["file_system"] == "nfs4"


def test_a_local_path_passes(tmp_path: Path) -> None:
    refuse_network_file_system(tmp_path)


def test_a_system_that_lists_no_mounts_refuses_nothing(tmp_path: Path) -> None:
    refuse_network_file_system(tmp_path, mountinfo=tmp_path / "absent")
    assert find_file_system(tmp_path, mountinfo=tmp_path / "absent") is None


def test_a_real_mount_on_a_name_with_spaces_is_found_through_a_link(tmp_path: Path) -> None:
    point = tmp_path / "a disk\twith spaces"
    point.mkdir()
    tmp_path.joinpath("link").symlink_to(point)
    program = (
        "import sys, pathlib; from engrain.system.file_systems import find_file_system; "
        "sys.stdout.write(str(find_file_system(pathlib.Path(sys.argv[1]))))"
    )
    script = 'mount -t tmpfs none "$1" && exec "$2" -c "$3" "$4"'
    arguments = [str(point), sys.executable, program, str(tmp_path / "link")]
    try:
        found = subprocess.run(
            ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", *arguments],
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        pytest.skip("needs the program unshare")
    if found.returncode != 0:
        pytest.skip(f"may not mount here: {found.stderr.strip()}")
    assert found.stdout == "tmpfs"
