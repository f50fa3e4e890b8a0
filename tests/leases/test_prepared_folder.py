"""A lease folder prepared by root: users lock its files and add tickets, and can do nothing else to it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lease_lab
from dibs import errors
from dibs.leases import device_lease, holders, prepared_folder, served_records, tickets
from dibs.leases.device_lease import Folder, Note
from dibs.system import locks
from lease_lab import Puppet, close, needs_root

pytestmark = needs_root
# pytest finds fixtures by their names in this module.
puppet = lease_lab.puppet

ANN, BEN = 61001, 61002
DEVICES = ("GPU-a", "GPU-b")
Puppets = Callable[..., Puppet]


@pytest.fixture
def root() -> Iterator[str]:
    """A separate machine folder that every user can reach."""
    path = tempfile.mkdtemp(prefix="dibs-test-", dir="/tmp")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def place(root: str) -> Folder:
    assert prepared_folder.prepare(root, DEVICES) == sorted(DEVICES)
    return Folder(root + prepared_folder.FOLDER)


def modes(path: str) -> dict[str, tuple[int, int]]:
    """Return owner and mode of everything in a folder."""
    found = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(path)}
    return {name: (status.st_uid, stat.S_IMODE(status.st_mode)) for name, status in found.items()}


def test_users_take_turns_in_a_prepared_folder(place: Folder, puppet: Puppets) -> None:
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    assert ann.ask("take GPU-a") == "took"
    ben.tell("acquire 1 GPU-a")
    assert ben.hear() == "waits"
    assert [ticket.uid for ticket in tickets.line(place)] == [BEN]
    assert [who.uid for who in holders.survey(place, ["GPU-a"])["GPU-a"]] == [ANN]
    ann.ask("release")
    assert ben.hear() == "took GPU-a"
    assert served_records.of_users(place, [ANN, BEN]).keys() == {ANN, BEN}
    assert {name for name in os.listdir(place.path) if not name.startswith(".dibs-")} == {locks.TICKETS}


@pytest.mark.parametrize("kind", [locks.LEASE, locks.GATE])
@pytest.mark.parametrize(
    "attack",
    [
        "os.unlink(path)",
        "os.rename(path, path + '-away')",
        "os.chmod(path, 0o600)",
        "os.chown(path, os.geteuid(), -1)",
        "os.link(path, folder + '/.dibs-lease-GPU-c')",
        "os.mkdir(folder + '/.dibs-lease-GPU-c')",
        "os.symlink('/etc/passwd', folder + '/.dibs-lease-GPU-c')",
        "os.rename(folder + '/tickets', folder + '/gone')",
        "os.rmdir(folder + '/tickets')",
        "os.chmod(folder, 0o777)",
    ],
)
def test_no_user_can_remove_link_replace_or_change_anything(place: Folder, kind: str, attack: str) -> None:
    before = modes(place.path)
    program = f"import os; path, folder = {place.file(f'{kind}GPU-a')!r}, {place.path!r}; {attack}"
    done = subprocess.run(
        ["/usr/bin/python3", "-c", program], user=BEN, group=BEN, cwd="/", capture_output=True, text=True
    )
    assert "Error: [Errno" in done.stderr
    assert modes(place.path) == before


def test_a_device_without_prepared_files_is_reported_with_the_fix(place: Folder, puppet: Puppets) -> None:
    assert prepared_folder.missing(place, [*DEVICES, "GPU-c"]) == ["GPU-c"]
    assert prepared_folder.MISSING in puppet(uid=ANN).ask("broken GPU-c")
    prepared_folder.prepare(os.path.dirname(os.path.dirname(place.path)), ["GPU-c"])
    assert prepared_folder.missing(place, [*DEVICES, "GPU-c"]) == []
    assert puppet(uid=ANN).ask("take GPU-c") == "took"


@pytest.mark.parametrize("key", ["FAKE-0", "7", "text-1a2b3c4d"])
def test_a_key_that_is_no_hardware_needs_no_preparation(place: Folder, puppet: Puppets, key: str) -> None:
    ann, ben = puppet(uid=ANN), puppet(uid=BEN)
    assert ann.ask(f"take {key}") == "took"
    assert ben.ask(f"take {key}").startswith("refused")
    assert [who.uid for who in holders.survey(place, [key])[key]] == [ANN]


def test_preparing_again_changes_nothing_and_keeps_all_devices(root: str, place: Folder) -> None:
    before, text = modes(place.path), prepared_folder.read_tmpfiles(root)
    taken = device_lease.take(place, ["GPU-a"], Note())
    assert prepared_folder.prepare(root, ["GPU-b"]) == []
    assert (modes(place.path), prepared_folder.read_tmpfiles(root)) == (before, text)
    assert holders.held(place, DEVICES) == {"GPU-a"}
    close(taken)


def test_files_of_users_in_an_open_folder_are_taken_over(root: str) -> None:
    path = Path(root + prepared_folder.FOLDER)
    path.mkdir(parents=True)
    path.chmod(0o1777)
    ann = Puppet(str(path), ANN)
    try:
        ann.ask("take GPU-a")
        os.link(path / ".dibs-lease-GPU-a", path / ".dibs-lease-GPU-b")
        os.unlink(path / ".dibs-gate-GPU-a")
        (path / ".dibs-gate-GPU-a").symlink_to("/etc/passwd")
        passwd = os.stat("/etc/passwd")
        prepared_folder.prepare(root, DEVICES)
        found = modes(str(path))
        assert {found[f".dibs-{kind}-{device}"] for kind in ("lease", "gate") for device in DEVICES} == {(0, 0o1666)}
        assert all(entry.stat(follow_symlinks=False).st_nlink == 1 for entry in os.scandir(path) if entry.is_file())
        assert os.stat("/etc/passwd") == passwd
        # Its socket still shows that it is held, whatever happened to its file.
        assert holders.held(Folder(str(path)), DEVICES) == {"GPU-a"}
    finally:
        ann.close()


def test_it_is_restored_after_a_boot(root: str, place: Folder) -> None:
    if shutil.which("systemd-tmpfiles") is None:
        pytest.skip("NOT RUN: needs systemd-tmpfiles")
    before = modes(place.path)
    shutil.rmtree(f"{root}/run")
    subprocess.run(["systemd-tmpfiles", f"--root={root}", "--create"], check=True, capture_output=True)
    assert modes(place.path) == before
    assert Folder(place.path).is_prepared


def test_undo_removes_it_when_no_device_is_held(root: str, place: Folder, puppet: Puppets) -> None:
    ann = puppet(uid=ANN)
    ann.ask("take GPU-a")
    with pytest.raises(errors.Busy, match="GPU-a leased now"):
        prepared_folder.undo(root)
    ann.ask("release")
    (Path(place.line_path) / "planted").mkdir()
    assert prepared_folder.undo(root)
    assert not os.path.exists(place.path)
    assert prepared_folder.read_tmpfiles(root) is None
    assert not prepared_folder.undo(root)


def test_a_file_that_dibs_did_not_write_is_kept(root: str) -> None:
    path = Path(root + prepared_folder.TMPFILES)
    path.parent.mkdir(parents=True)
    path.write_text("d /run/dibs 0750 root gpu -\n")
    with pytest.raises(errors.UserError, match="was not written by dibs"):
        prepared_folder.prepare(root, DEVICES)
    assert not os.path.exists(root + prepared_folder.FOLDER)
    path.write_text(f"{prepared_folder.OLD_LINE}\n")
    prepared_folder.prepare(root, DEVICES)


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_a_world_writable_folder_without_the_sticky_bit_is_refused(root: str, mode: int) -> None:
    os.chmod(root, mode)
    with pytest.raises(locks.Broken, match=f"chmod \\+t {root}"):
        Folder(root)
    os.chmod(root, mode | stat.S_ISVTX)
    Folder(root)


def test_a_folder_counts_as_prepared_only_if_only_root_can_change_it(root: str, place: Folder) -> None:
    assert Folder(place.path).is_prepared
    for path, owner, mode in (
        (place.path, 0, 0o775),
        (place.path, BEN, 0o755),
        (place.line_path, BEN, 0o1777),
        (place.line_path, 0, 0o755),
    ):
        before = os.stat(path)
        os.chown(path, owner, -1)
        os.chmod(path, mode)
        assert not Folder(place.path).is_prepared
        os.chown(path, before.st_uid, -1)
        os.chmod(path, before.st_mode)
