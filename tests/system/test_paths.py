"""Where files are, and what is refused because others could write it."""

import fcntl
import os
import stat
from pathlib import Path

import pytest

from dibs import errors
from dibs.system import paths

ID = "0123456789abcdef0123456789abcdef"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")

#: Another user than the one that runs the tests.
STRANGER = 54321

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
24 22 0:22 / /home rw,relatime shared:7 - autofs /etc/auto.home rw,fd=6,pgrp=1
25 24 0:40 / /home/alice rw,relatime shared:9 master:2 - nfs4 server:/export/alice rw,vers=4.2
26 22 0:41 / /scratch rw - lustre 10.0.0.1@tcp:/scratch rw
27 26 8:2 / /scratch/local rw - xfs /dev/sdb1 rw
28 22 0:42 / /mnt/my\\040disk\\134a rw - cifs //nas/share rw
29 22 0:43 / /mnt/ssh rw - fuse.sshfs alice@host: rw
30 22 0:44 / /mnt/vault rw - fuse.gocryptfs /home/x rw
31 22 0:45 / /mnt/twice rw - ext4 /dev/sdc1 rw
32 31 0:46 / /mnt/twice rw - nfs server:/twice rw
33 22 8:3 / /data rw - ext4 /dev/sdd1 rw
broken line
34 22 8:4 / /broken rw -
"""


def machine(tmp_path=Path("/var/tmp"), mounts=MOUNTS):
    return paths.Machine(ID, 1000, mounts, tmp_path)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


# --- which folder ---


def test_the_state_folder_follows_the_xdg_standard_and_separates_machines():
    assert paths.choose_home({"HOME": "/data/bob"}, machine()) == paths.Home(Path(f"/data/bob/.local/state/dibs/{ID}"))
    environ = {"HOME": "/data/bob", "XDG_STATE_HOME": "/data/state"}
    assert paths.choose_home(environ, machine()).path == Path(f"/data/state/dibs/{ID}")


def test_a_relative_xdg_folder_is_ignored():
    environ = {"HOME": "/data/bob", "XDG_STATE_HOME": "state"}
    assert paths.choose_home(environ, machine()).path == Path(f"/data/bob/.local/state/dibs/{ID}")


def test_dibs_home_is_used_unchanged():
    environ = {"HOME": "/home/alice", "DIBS_HOME": "/data/x/"}
    assert paths.choose_home(environ, machine()) == paths.Home(Path("/data/x"))
    environ = {"HOME": "/data/bob", "DIBS_HOME": "~/x"}
    assert paths.choose_home(environ, machine()).path == Path("/data/bob/x")


@pytest.mark.parametrize("text", ["x", "./x", "../x", "~bob/x"])
def test_a_relative_dibs_home_is_refused(text):
    with pytest.raises(errors.UserError, match="DIBS_HOME: expected an absolute path"):
        paths.choose_home({"HOME": "/data/bob", "DIBS_HOME": text}, machine())


def test_a_dibs_home_that_json_cannot_hold_is_refused():
    with pytest.raises(errors.UserError, match="DIBS_HOME: expected UTF-8 text, got other bytes"):
        paths.choose_home({"HOME": "/data/bob", "DIBS_HOME": "/x/\udcff"}, machine())


def test_a_home_on_the_network_is_replaced_by_a_local_disk_with_a_message():
    found = paths.choose_home({"HOME": "/home/alice"}, machine())
    assert found.path == Path(f"/var/tmp/dibs-1000/{ID}")
    assert found.note == (
        f"/home/alice/.local/state/dibs/{ID} is on a network file system (nfs4), "
        f"so dibs keeps its state in /var/tmp/dibs-1000/{ID}"
    )


def test_an_explicit_home_on_the_network_is_refused_with_a_solution():
    with pytest.raises(errors.UserError, match=r"expected a folder on a local disk, got .* \(lustre\)") as caught:
        paths.choose_home({"HOME": "/data/bob", "DIBS_HOME": "/scratch/bob"}, machine())
    assert "DIBS_FILES" in caught.value.hint


def test_a_machine_without_any_local_disk_is_refused():
    everything = "22 1 0:9 / / rw - nfs server:/root rw\n"
    with pytest.raises(errors.UserError, match="both on a network file system"):
        paths.choose_home({"HOME": "/root"}, machine(mounts=everything))


def test_a_link_to_a_network_file_system_is_followed(tmp_path):
    (tmp_path / "state").symlink_to("/scratch/bob")
    found = paths.choose_home({"HOME": "/data/bob", "XDG_STATE_HOME": str(tmp_path / "state")}, machine())
    assert "lustre" in found.note


def test_without_home_the_user_database_is_used():
    import pwd

    assert paths.user_home({}) == Path(pwd.getpwuid(os.geteuid()).pw_dir)
    assert paths.user_home({"HOME": ""}) == paths.user_home({"HOME": "relative"}) == paths.user_home({})


def test_this_machine_has_a_state_folder():
    found = paths.home({"DIBS_HOME": "/"})
    assert found == paths.Home(Path("/"))
    assert paths.home({"HOME": "/proc/nonexistent"}).path.name == paths.machine_id()


# --- network or local ---


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", None),
        ("/etc", None),
        ("/home/alice", "nfs4"),
        ("/home/alice/.local/state", "nfs4"),
        ("/home/alicea", "autofs"),
        ("/scratch/x", "lustre"),
        ("/scratch/local/x", None),
        ("/scratchy", None),
        ("/mnt/my disk\\a/x", "cifs"),
        ("/mnt/ssh/x", "fuse.sshfs"),
        ("/mnt/vault/x", None),
        ("/mnt/twice/x", "nfs"),
        ("/broken/x", None),
    ],
)
def test_the_deepest_and_newest_mount_decides(path, kind):
    assert paths.network_type(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "fuseblk", "bcachefs"])
def test_local_file_systems_are_local(kind):
    assert paths.network_type(Path("/x"), f"1 0 8:1 / / rw - {kind} dev rw\n") is None


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "fuse.glusterfs", "fuse.x"]
)
def test_network_file_systems_are_not(kind):
    assert paths.network_type(Path("/x"), f"1 0 0:1 / / rw shared:1 - {kind} dev rw\n") == kind


def test_an_unreadable_mount_table_means_local():
    assert paths.network_type(Path("/x"), "") is None


# --- the machine id ---


def test_the_first_valid_machine_id_is_used(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    second.write_text(f"{ID}\n")
    assert paths.machine_id((str(first), str(second))) == ID
    first.write_text("uninitialized\n")
    assert paths.machine_id((str(first), str(second))) == ID
    first.write_text("../../etc/passwd/aaaaaaaaaaaaaaa\n")
    assert paths.machine_id((str(first), str(second))) == ID


def test_without_a_machine_id_the_host_name_is_used():
    assert paths.machine_id(()) == os.uname().nodename


# --- creating or refusing it ---


@pytest.fixture
def home(tmp_path):
    return tmp_path / "state" / "dibs" / ID


def test_the_state_folder_is_private_and_its_parents_are_not(home):
    old = os.umask(0o022)
    try:
        paths.prepare(home)
    finally:
        os.umask(old)
    assert mode(home) == 0o700
    assert mode(home.parent) == 0o755
    paths.prepare(home)


def test_a_state_folder_of_ours_with_open_permissions_is_made_private(home):
    home.mkdir(parents=True)
    home.chmod(0o755)
    paths.prepare(home)
    assert mode(home) == 0o700


def test_a_state_folder_may_be_a_link_of_ours(home, tmp_path):
    (tmp_path / "disk").mkdir()
    home.parent.mkdir(parents=True)
    home.symlink_to(tmp_path / "disk")
    paths.prepare(home)
    assert mode(tmp_path / "disk") == 0o700


@pytest.mark.parametrize("make", [lambda path: path.write_text(""), lambda path: path.symlink_to("nothing")])
def test_a_state_folder_that_is_no_folder_is_refused(home, make):
    home.parent.mkdir(parents=True)
    make(home)
    with pytest.raises(errors.UserError):
        paths.prepare(home)


def test_a_state_folder_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UserError, match="cannot create"):
        paths.prepare(tmp_path / "file" / "state" / "dibs")


@needs_root
def test_a_state_folder_of_another_user_is_refused(home):
    home.mkdir(parents=True)
    os.chown(home, STRANGER, -1)
    with pytest.raises(errors.UserError, match=f"expected {home} to belong to you .* belongs to user {STRANGER}"):
        paths.prepare(home)


@needs_root
def test_root_creates_nothing_in_a_users_home(tmp_path, home):
    """This happens when sudo keeps HOME."""
    os.chown(tmp_path, STRANGER, -1)
    with pytest.raises(errors.UserError, match=f"expected {tmp_path} to belong to root") as caught:
        paths.prepare(home)
    assert "without sudo" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_permissions_is_refused():
    """/proc accepts no chmod, and on a mounted vfat it has no effect."""
    with pytest.raises(errors.UserError):
        paths.make_private(Path("/proc/self"))


@pytest.fixture
def shared(tmp_path):
    """Return a folder like /tmp: any user may create files in it."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_folders_in_a_shared_place_are_created_private(shared):
    paths.prepare(shared / "dibs-1000" / ID)
    assert mode(shared / "dibs-1000") == 0o700


def test_a_link_planted_in_a_shared_place_is_refused(shared, tmp_path):
    (tmp_path / "trap").mkdir()
    (shared / "dibs-1000").symlink_to(tmp_path / "trap")
    with pytest.raises(errors.UserError, match=r"expected .*/dibs-1000 to be a folder of yours"):
        paths.prepare(shared / "dibs-1000" / ID)
    with pytest.raises(errors.UserError, match=r"expected .*/dibs-1000 to be a folder of yours"):
        paths.prepare(shared / "dibs-1000")
    assert list((tmp_path / "trap").iterdir()) == []


@needs_root
def test_a_folder_planted_in_a_shared_place_is_refused(shared):
    (shared / "dibs-1000").mkdir()
    os.chown(shared / "dibs-1000", STRANGER, -1)
    with pytest.raises(errors.UserError):
        paths.prepare(shared / "dibs-1000" / ID)
    assert list((shared / "dibs-1000").iterdir()) == []


def test_a_locked_folder_is_skipped_by_tmp_cleaners(home):
    """systemd-tmpfiles skips what it cannot lock."""
    paths.prepare(home)
    held = paths.hold(home)
    cleaner = os.open(home, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(cleaner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(held)
        fcntl.flock(cleaner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(cleaner)


# --- sockets ---


def long_home(length):
    """Return a home whose socket name has `length` bytes."""
    return Path("/" + "x" * (length - len("/") - len("/dibs.sock")))


def test_a_socket_is_in_the_state_folder_if_its_path_fits(shared):
    fits = long_home(100)
    assert paths.socket_path(fits, shared) == fits / "dibs.sock"
    assert paths.socket_path(long_home(101), shared).parent == shared / f"dibs-{os.geteuid()}"


def test_the_length_of_a_socket_path_is_counted_in_bytes(shared):
    home = Path("/" + "ü" * 60)
    assert paths.socket_path(home, shared).parent != home


def test_every_home_and_purpose_has_a_different_socket(shared):
    homes = [long_home(120), long_home(121)]
    names = {path(home, shared) for home in homes for path in (paths.socket_path, paths.notify_path)}
    assert len(names) == 4
    assert all(len(os.fsencode(Path("/tmp") / name.relative_to(shared))) <= 100 for name in names)
    assert paths.notify_path(Path("/x")) == Path("/x/notify.sock")


def test_the_folder_of_a_socket_outside_the_state_folder_is_private(tmp_path, shared):
    home = tmp_path / ("x" * 100)
    paths.prepare(home, shared)
    folder = paths.socket_path(home, shared).parent
    assert mode(folder) == 0o700
    folder.chmod(0o777)
    paths.prepare(home, shared)
    assert mode(folder) == 0o700


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/"), lambda path: path.write_text("")])
def test_a_planted_socket_folder_is_refused_by_every_client(shared, make):
    make(shared / f"dibs-{os.geteuid()}")
    with pytest.raises(errors.UserError, match=r"expected .* to be a folder"):
        paths.socket_path(long_home(120), shared)


@needs_root
def test_a_socket_folder_of_another_user_is_refused_by_every_client(shared):
    folder = shared / f"dibs-{os.geteuid()}"
    folder.mkdir()
    os.chown(folder, STRANGER, -1)
    with pytest.raises(errors.UserError, match="to belong to you"):
        paths.socket_path(long_home(120), shared)


# --- names of files ---


def test_files_have_fixed_names():
    home = Path("/h")
    assert paths.database(home) == Path("/h/dibs.db")
    assert len({paths.daemon_lock(home), paths.start_lock(home), paths.daemon_log(home)}) == 3


def test_the_configuration_file_follows_the_xdg_standard():
    assert paths.config_file({"HOME": "/h"}) == Path("/h/.config/dibs/config.toml")
    assert paths.config_file({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == Path("/c/dibs/config.toml")
    assert paths.config_file({"HOME": "/h", "DIBS_CONFIG": "~/x.toml"}) == Path("/h/x.toml")
