"""Device leases, tested with real processes in a folder of their own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import lease_lab
from dibs import errors
from dibs.leases import device_lease, evictable_marks, holders, rules_file, served_records, tickets
from dibs.model import lab_rules
from dibs.scheduling import choice
from dibs.system import locks, processes, users
from lease_lab import close, hangs_up, needs_root, race

# pytest finds fixtures by their names in this module.
place, puppet = lease_lab.place, lease_lab.puppet

NOTE = device_lease.Note("job 7", user="me")


def refusal(place: device_lease.Folder, *devices: str) -> device_lease.Refused:
    with pytest.raises(device_lease.Refused) as caught:
        close(device_lease.take(place, devices, NOTE))
    return caught.value


def open_fds() -> set[int]:
    """Return the open descriptors of this process, without the one used to list them."""
    return {fd for fd in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{fd}")}


# -- take and release ---------------------------------------------------------------------------------------------


def test_a_lease_has_one_holder(place, puppet):
    holder = puppet()
    assert holder.ask("take A") == "took"
    assert refusal(place, "A").why == "leased"
    assert holder.ask("release") == "released"
    close(device_lease.take(place, ["A"], NOTE))


def test_several_devices_are_taken_all_or_none(place, puppet):
    assert puppet().ask("take B") == "took"
    assert refusal(place, "C", "B", "A").device == "B"
    assert holders.held(place, ["A", "B", "C"]) == {"B"}


def test_a_refusal_names_the_holder(place, puppet):
    holder = puppet()
    holder.ask("take A vit-12")
    refused = refusal(place, "A")
    assert isinstance(refused, errors.Busy)
    assert refused.holder is not None
    assert (refused.holder.pid, refused.holder.job) == (holder.pid, "vit-12")
    assert f"pid {holder.pid}" in refused.line()
    assert "vit-12" in refused.line()


def test_many_processes_never_hold_a_device_together(place, tmp_path):
    granted = race("racer.py", place.path, tmp_path, 200)
    assert all(int(count) > 0 for count in granted)
    assert holders.held(place, ["A", "B", "C"]) == set()


def test_a_holder_of_our_own_is_confirmed_without_the_table_of_all_locks(place, monkeypatch):
    """Reading that table takes the kernel 10 ms and more."""
    monkeypatch.setattr(locks, "flocked", lambda: pytest.fail("the table was read"))
    (lease,) = device_lease.take(place, ["GPU-a"], device_lease.own_note("7"))
    (holder,) = holders.survey(place, ["GPU-a"])["GPU-a"]
    assert (holder.pid, holder.job) == (os.getpid(), "7")
    lease.close()


def test_a_note_about_a_process_that_does_not_hold_the_lock_is_not_believed(place):
    path = holders.file(place, "GPU-a")
    (lease,) = device_lease.take(place, ["GPU-a"], device_lease.own_note("7"))
    assert locks.has_flocked(os.getpid(), path)
    assert not locks.has_flocked(os.getppid(), path)
    assert not locks.has_flocked(os.getpid(), path + "-other")
    lease.close()
    assert not locks.has_flocked(os.getpid(), path)


def test_closing_twice_is_harmless(place):
    (lease,) = device_lease.take(place, ["A"], NOTE)
    lease.close()
    lease.close()
    assert holders.held(place, ["A"]) == set()


def test_lease_descriptors_are_closed_at_exec(place):
    taken = device_lease.take(place, ["A"], NOTE)
    assert not any(os.get_inheritable(fd) for fd in taken[0].fds())
    close(taken)


@pytest.mark.parametrize("device", ["", "a/b", "..", "a b", "a\n", "ü", "x" * 65])
def test_an_id_that_would_escape_the_lease_folder_is_refused(place, device):
    if device == "..":
        # Dots alone are harmless: the id is only the last part of a longer name.
        close(device_lease.take(place, [device], NOTE))
        assert sorted(os.listdir(place.path))[0] == ".dibs-gate-.."
    else:
        with pytest.raises(ValueError, match="expected a device id"):
            device_lease.take(place, [device], NOTE)


def test_a_dot_in_an_id_is_not_a_slot(place, puppet):
    puppet().ask("share A 5 10 8")
    close(device_lease.take(place, ["A.0.5"], NOTE))
    assert holders.held(place, ["A", "A.0.5"]) == {"A"}


# -- when holders end ---------------------------------------------------------------------------------------------


def test_a_lease_lasts_until_the_last_process_that_inherited_it_exits(place, puppet):
    taker = puppet()
    taker.ask("take A train")
    child = taker.spawn()
    (watch,) = holders.watches(place, "A")
    taker.kill()
    assert not hangs_up(watch, 0)
    assert refusal(place, "A").why == "leased"
    (holder,) = holders.survey(place, ["A"])["A"]
    assert (holder.pid, holder.uid, holder.job) == (child, os.geteuid(), "train"), "named by who holds it now"
    os.kill(child, signal.SIGKILL)
    assert hangs_up(watch, 10)
    os.close(watch)
    close(device_lease.take(place, ["A"], NOTE))


def test_a_dying_holder_is_never_reported_as_a_split_lease(place, puppet):
    """The kernel closes the file and the socket one after the other; a reader in between has to retry."""
    for _ in range(30):
        holder = puppet()
        holder.ask("take A,B,C")
        (watch,) = holders.watches(place, "B")
        holder.process.kill()
        assert hangs_up(watch, 10)
        os.close(watch)
        close(device_lease.take(place, ["B"], NOTE))
        holder.close()


def test_a_holder_that_exits_during_a_survey_is_not_listed_as_unknown(place, puppet):
    """Any process on the device could belong to an unknown holder, so foreign use would go unnoticed."""
    sharers = [puppet() for _ in range(3)]
    for sharer in sharers:
        sharer.ask("share A 100 1000 4")
    before = locks.table()
    sharers[1].kill()
    found = holders.survey(place, ["A"], before)["A"]
    assert [(holder.pid, holder.uid) for holder in found] == [(each.pid, os.geteuid()) for each in sharers[::2]]
    for sharer in sharers[::2]:
        sharer.kill()
    assert holders.survey(place, ["A"], before)["A"] == ()


def test_a_free_device_has_nothing_to_watch(place):
    assert holders.watches(place, "A") == []


def test_every_holder_of_a_share_is_watched(place, puppet):
    one, two = puppet(), puppet()
    one.ask("share A 100 1000 4")
    two.ask("share A 100 1000 4")
    watches = holders.watches(place, "A")
    assert len(watches) == 2
    one.kill()
    two.kill()
    assert all(hangs_up(watch, 10) for watch in watches)
    for watch in watches:
        os.close(watch)


def test_a_holder_with_a_full_connection_queue_is_not_watched_but_still_named(place):
    with socket.socket(socket.AF_UNIX) as holder:
        holder.bind(place.socket("gpu", "A"))
        holder.listen(0)
        (first,) = holders.watches(place, "A")
        assert holders.watches(place, "A") == []
        fd = os.open(holders.file(place, "A"), os.O_CREAT | os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert [found.pid for found in holders.survey(place, ["A"])["A"]] == [os.getpid()]
        os.close(fd)
        os.close(first)


# -- damaged and missing files ------------------------------------------------------------------------------------


def test_deleting_the_file_of_a_held_lease_allows_no_second_holder(place, puppet):
    holder = puppet()
    holder.ask("take A")
    os.unlink(holders.file(place, "A"))
    assert refusal(place, "A").why == "split"
    refused = refusal(place, "A")
    assert refused.holder is not None
    assert refused.holder.pid == holder.pid
    holder.kill()
    close(device_lease.take(place, ["A"], NOTE))


def test_deleting_the_file_of_a_shared_lease_allows_no_exclusive_holder(place):
    """Shared and exclusive leases use different socket names, so an exclusive holder has to check both."""
    share = device_lease.take_shared(place, "A", 100, 1000, 4, NOTE)
    os.unlink(holders.file(place, "A"))
    assert refusal(place, "A").why == "split"
    close([share])
    close(device_lease.take(place, ["A"], NOTE))


def test_a_forked_copy_of_a_gate_blocks_nobody(place):
    gate = device_lease._pass_gate(place, "A")
    assert gate is not None
    copy = os.dup(gate)
    device_lease._leave_gate(gate)
    close(device_lease.take(place, ["A"], NOTE))
    os.close(copy)


def test_a_shared_device_with_an_exclusive_socket_has_no_room_left(place):
    share = device_lease.take_shared(place, "A", 100, 1000, 4, NOTE)
    terms = choice.Terms(100, {"A": 1000})
    assert holders.rooms(place, ["A"], terms)["A"].fits(100)
    squatter = locks.bind(place.socket("gpu", "A"))
    assert squatter is not None
    assert holders.rooms(place, ["A"], terms) == {}
    os.close(squatter)
    close([share])


def test_a_lock_without_a_socket_is_a_split(place):
    """A holder looks like this in a container that shares the folder but has its own network namespace."""
    close(device_lease.take(place, ["A"], NOTE))
    fd = os.open(holders.file(place, "A"), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert holders.held(place, ["A"]) == {"A"}
    refused = refusal(place, "A")
    assert refused.why == "split"
    assert refused.holder is not None
    assert (refused.holder.pid, refused.holder.uid) == (os.getpid(), os.geteuid())
    os.close(fd)
    close(device_lease.take(place, ["A"], NOTE))


def test_a_socket_without_a_lock_is_a_split(place):
    squatter = locks.bind(place.socket("gpu", "A"))
    assert squatter is not None
    assert refusal(place, "A").why == "split"
    os.close(squatter)


def test_a_socket_of_another_type_is_ignored(place):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(place.socket("gpu", "A"))
        other.listen()
        assert holders.held(place, ["A"]) == set()
        close(device_lease.take(place, ["A"], NOTE))


@pytest.mark.parametrize(
    "rest",
    [b"\xff", b"A.x.y", b"A.1", b"A.1.2.3", b"A.99999999999999999999.5", b"A.0." + b"9" * 40, b" A", b"A\n@", b""],
)
def test_strange_abstract_socket_names_of_other_users_are_harmless(place, rest):
    """Any user may bind any abstract name."""
    for kind in ("gpu", "ticket"):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.bind(place.socket(kind, "") + rest)
            stranger.listen()
            assert all(place.socket(kind, name) for name in locks.bound(place, kind))
            assert lease_lab.shares(place, "A") == {}
            holders.survey(place, ["A"])
            assert tickets.line(place) == []


def test_running_out_of_descriptors_leaves_no_lease_behind(place):
    """Whichever call fails, gate, file and socket are released."""
    close(device_lease.take(place, ["A", "B"], NOTE))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = open_fds()
    unused = sorted(set(range(limits[0])) - used)
    failed = 0
    for more in range(10):
        resource.setrlimit(resource.RLIMIT_NOFILE, (unused[more], limits[1]))
        try:
            close(device_lease.take(place, ["A", "B"], NOTE))
        except (OSError, device_lease.Broken):
            failed += 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert open_fds() == used
        close(device_lease.take(place, ["A", "B"], NOTE))
    assert failed == 5


def test_a_gate_that_never_opens_is_an_error(place):
    close(device_lease.take(place, ["A"], NOTE))
    fd = os.open(place.file(".dibs-gate-A"), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert refusal(place, "A").why == "gate"
    os.close(fd)


@pytest.mark.parametrize("kind", [".dibs-lease-A", ".dibs-gate-A"])
@pytest.mark.parametrize("plant", ["symlink", "dangling", "hardlink", "second name", "fifo", "socket", "directory"])
def test_planted_files_are_named_and_not_followed(place, tmp_path, kind, plant):
    path = Path(place.file(kind))
    target = tmp_path / "target"
    target.write_text("precious")
    target.chmod(0o644)
    match plant:
        case "symlink":
            path.symlink_to(target)
        case "dangling":
            path.symlink_to(tmp_path / "nothing")
        case "hardlink":
            path.hardlink_to(target)
        case "second name":
            # A lease file as it should be, but that of another device too.
            path.touch()
            path.chmod(0o1666)
            path.with_name(path.name.replace("-A", "-B")).hardlink_to(path)
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as sock, contextlib.chdir(place.path):
                sock.bind(path.name)
        case "directory":
            path.mkdir()
    with pytest.raises(device_lease.Unusable) as caught:
        device_lease.take(place, ["A"], NOTE)
    assert caught.value.device == "A"
    assert str(path) in caught.value.line()
    assert f"(owner: {users.own()})" in caught.value.line()
    assert list(device_lease.unusable(place, ["A", "C"])) == ["A"]
    assert str(path) in device_lease.unusable(place, ["A"])["A"]
    assert target.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()
    assert holders.held(place, ["A"]) == set()
    if path.is_dir() and not path.is_symlink():
        path.rmdir()


@pytest.mark.parametrize("name", ["elsewhere", ".dibs-ticket-1-1-1", ".dibs-new-1"])
def test_a_second_name_that_is_no_lock_does_no_harm(place, name):
    """All users may link a file that all may write: if that were enough, anybody could take a device from everybody."""
    close(device_lease.take(place, ["A"], NOTE))
    os.link(holders.file(place, "A"), place.file(name))
    assert device_lease.unusable(place, ["A"]) == {}
    close(device_lease.take(place, ["A"], NOTE))


def test_a_missing_folder_is_an_error(place):
    with pytest.raises(device_lease.Broken, match="cannot write in the lease folder"):
        device_lease.take(device_lease.Folder(place.path + "/nothing"), ["A"], NOTE)


def test_concurrent_creators_agree_on_one_lease_file(place):
    outputs = race("maker.py", place.path, 50)
    assert len(set(outputs)) == 1
    for index in range(50):
        status = os.stat(holders.file(place, f"NEW-{index}"))
        assert stat.S_IMODE(status.st_mode) == 0o1666
    assert [name for name in os.listdir(place.path) if name.startswith(".dibs-new")] == []


# -- sharing ------------------------------------------------------------------------------------------------------


def test_an_exclusive_lease_and_shares_exclude_each_other(place, puppet):
    other = puppet()
    other.ask("share A 100 1000 4")
    assert refusal(place, "A").why == "leased"
    other.ask("release")
    other.ask("take A")
    with pytest.raises(device_lease.Refused, match="leased"):
        device_lease.take_shared(place, "A", 100, 1000, 4, NOTE)


def test_shares_take_the_lowest_free_slot(place):
    first, second, third = (device_lease.take_shared(place, "A", mib, 1000, 4, NOTE) for mib in (100, 200, 300))
    assert lease_lab.shares(place, "A") == {0: 100, 1: 200, 2: 300}
    second.close()
    fourth = device_lease.take_shared(place, "A", 400, 1000, 4, NOTE)
    assert lease_lab.shares(place, "A") == {0: 100, 1: 400, 2: 300}
    close([first, third, fourth])
    assert lease_lab.shares(place, "A") == {}


@pytest.mark.parametrize(("mib", "slots"), [(501, 4), (100, 1)])
def test_a_share_beyond_the_memory_or_the_slots_is_refused(place, puppet, mib, slots):
    puppet().ask("share A 500 1000 4")
    with pytest.raises(device_lease.Refused) as caught:
        device_lease.take_shared(place, "A", mib, 1000, slots, NOTE)
    assert caught.value.why == "full"


def test_a_shared_lock_without_a_share_is_a_split(place):
    close([device_lease.take_shared(place, "A", 100, 1000, 4, NOTE)])
    fd = os.open(holders.file(place, "A"), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    with pytest.raises(device_lease.Refused) as caught:
        device_lease.take_shared(place, "A", 100, 1000, 4, NOTE)
    assert caught.value.why == "split"
    os.close(fd)


def test_shares_never_exceed_the_capacity_of_the_device(place, tmp_path):
    granted = race("sharer.py", place.path, tmp_path, 200)
    assert all(int(count) > 0 for count in granted)
    assert lease_lab.shares(place, "A") == {}


def test_a_share_of_zero_memory_is_an_error(place):
    with pytest.raises(ValueError, match="at least 1 MiB"):
        device_lease.take_shared(place, "A", 0, 1000, 4, NOTE)


# -- survey of holders --------------------------------------------------------------------------------------------


def test_the_survey_names_every_holder(place, puppet):
    one, two, three = puppet(), puppet(), puppet()
    one.ask("take A vit")
    two.ask("share B 100 1000 4 llm")
    three.ask("share B 200 1000 4 gan")
    found = holders.survey(place, ["A", "B", "C"])
    assert [(h.pid, h.uid, h.job, h.mib) for h in found["A"]] == [(one.pid, os.geteuid(), "vit", None)]
    assert [(h.pid, h.job, h.mib) for h in found["B"]] == [(two.pid, "llm", 100), (three.pid, "gan", 200)]
    assert found["C"] == ()
    assert all(h.since is not None and h.since > 1.7e9 for h in found["A"] + found["B"])


@needs_root
def test_the_survey_names_other_users(place, puppet):
    holder = puppet(uid=61001)
    holder.ask("take A vit")
    (found,) = holders.survey(place, ["A"])["A"]
    assert (found.uid, found.user, found.pid, found.job) == (61001, "61001", holder.pid, "vit")


@pytest.mark.parametrize(
    "text",
    [
        '{"uid": %(uid)d, "pid": 1, "job": "old", "since": 1.0}',
        '{"uid": "x", "pid": [], "job": 3, "since": {}}',
        "[" * 1500,
        "\0" * 2048,
        "",
    ],
)
def test_a_stale_or_forged_note_is_ignored(place, puppet, text):
    holder = puppet()
    holder.ask("take A vit")
    Path(holders.file(place, "A")).write_text(text % {"uid": os.geteuid()} if "%" in text else text)
    (found,) = holders.survey(place, ["A"])["A"]
    assert (found.pid, found.uid, found.job, found.since) == (holder.pid, os.geteuid(), None, None)


def test_a_note_cannot_blame_another_user(place, puppet):
    holder = puppet()
    holder.ask("take A vit")
    path = Path(holders.file(place, "A"))
    path.write_text(path.read_text().replace(f'"uid": {os.geteuid()}', '"uid": 61009'))
    (found,) = holders.survey(place, ["A"])["A"]
    assert found.uid == os.geteuid()


def test_a_survey_leaves_no_connection_open_at_the_holder(place, puppet):
    """A connection that is never accepted would stay in the holder's queue until the holder ends."""
    puppet().ask("take A vit")
    name = place.socket("gpu", "A").replace(b"\0", b"@")
    for _ in range(3):
        holders.survey(place, ["A"])
    assert locks.read_all("/proc/net/unix").count(name) == 1


def test_a_survey_never_makes_a_free_device_look_held(place, puppet):
    """A process that takes the device during a survey must not be refused because of it."""
    other = puppet()
    for _ in range(100):
        other.tell("take A")
        holders.survey(place, ["A"])
        holders.held(place, ["A"])
        assert other.hear() == "took"
        assert other.ask("release") == "released"


def test_notes_hold_any_text(place):
    note = device_lease.Note('"\\ \n\udcff 👾' * 50, user="💥" * 50, tool="\x00" * 50)
    taken = device_lease.take(place, ["A"], note)
    (holder,) = holders.survey(place, ["A"])["A"]
    # Notes are shown in JSON and on terminals, which cannot show bytes that are no characters.
    assert holder.job == note.job.replace("\udcff", "?")
    assert os.stat(holders.file(place, "A")).st_size == holders.NOTE_BYTES
    close(taken)


def test_an_exclusive_lease_removes_old_notes(place):
    sharers = [device_lease.take_shared(place, "A", 100, 1000, 4, NOTE) for _ in range(3)]
    assert os.stat(holders.file(place, "A")).st_size == 3 * holders.NOTE_BYTES
    close(sharers)
    close(device_lease.take(place, ["A"], NOTE))
    assert os.stat(holders.file(place, "A")).st_size == holders.NOTE_BYTES


# -- record of who was served -------------------------------------------------------------------------------------


def test_a_successful_take_is_recorded_with_its_time(place):
    assert lease_lab.served(place) == {}
    before = locks.boot_ns()
    close(device_lease.take(place, ["A"], NOTE))
    assert before < lease_lab.served(place)[os.geteuid()] < locks.boot_ns()
    assert stat.S_IMODE(os.stat(place.file(f".dibs-served-{os.geteuid()}")).st_mode) == 0o644


def test_a_refused_take_is_not_recorded(place, puppet):
    puppet().ask("take A")
    first = lease_lab.served(place)
    refusal(place, "A")
    assert lease_lab.served(place) == first


def test_only_the_users_own_record_of_this_boot_counts(place):
    uid = os.geteuid()
    record = Path(place.file(f".dibs-served-{uid}"))
    # Python parses at most 4300 digits; one user must not be able to block the line for everybody.
    long = f"{processes.boot_id()} {'9' * 5000}\n"
    for text in ("", "garbage", "00000000-0000-0000-0000-000000000000 5\n", f"{locks.boot_ns()}\n", "\0" * 60, long):
        record.write_text(text)
        assert lease_lab.served(place) == {}
    served_records.mark(place)
    assert list(lease_lab.served(place)) == [uid]
    Path(place.file(".dibs-served-61001")).write_text(record.read_text())
    Path(place.file(".dibs-served-x")).write_text(record.read_text())
    assert list(lease_lab.served(place)) == [uid]


@pytest.mark.parametrize("plant", ["symlink_to", "hardlink_to"])
def test_a_planted_record_does_not_prevent_a_lease(place, tmp_path, plant):
    target = tmp_path / "target"
    target.write_text("precious")
    getattr(Path(place.file(f".dibs-served-{os.geteuid()}")), plant)(target)
    close(device_lease.take(place, ["A"], NOTE))
    assert target.read_text() == "precious"
    assert lease_lab.served(place) == {}


# -- the folder, the cost -----------------------------------------------------------------------------------------


def test_the_lease_folder_is_read_from_the_environment(place, monkeypatch):
    monkeypatch.setenv("DIBS_LEASE_DIR", place.path)
    assert device_lease.folder().path == place.path


def test_only_the_default_folders_have_plain_socket_names(place):
    assert device_lease.Folder("/tmp").socket("gpu", "A") == b"\0dibs.gpu.A"
    assert device_lease.Folder("/run/dibs").socket("gpu", "A") == b"\0dibs.gpu.A"
    assert place.socket("gpu", "A") != device_lease.Folder("/tmp").socket("gpu", "A")


def test_leases_in_two_folders_are_independent(place, tmp_path):
    taken = device_lease.take(place, ["A"], NOTE)
    close(device_lease.take(device_lease.Folder(str(tmp_path)), ["A"], NOTE))
    close(taken)


def test_lean_processes_import_no_expensive_module():
    source = str(Path(device_lease.__file__).parents[2])
    script = (
        f"import sys; sys.path.insert(0, {source!r}); "
        "import dibs.leases.device_lease, dibs.leases.tickets, dibs.leases.waiters; "
        "print(*[name for name in 'json re typing dataclasses enum socket subprocess collections'.split() "
        "if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == ""


def test_a_released_lease_is_free_at_once(place):
    for _ in range(100):
        close(device_lease.take(place, ["A"], NOTE))
        assert holders.held(place, ["A"]) == set()


# -- loans ----------------------------------------------------------------------------------------------------------

BORROWS = device_lease.Note("8", is_evictable=True)


@pytest.fixture
def lends(place, monkeypatch):
    """Root lends GPUs with an idle lease."""
    rules = lab_rules.parse({"idle_gpus": "evictable"}, "site")
    monkeypatch.setattr(rules_file.RulesFile, "now", lambda self: rules)
    return place


def loan_refusal(place: device_lease.Folder, note: device_lease.Note = BORROWS) -> str:
    with pytest.raises(device_lease.Refused) as caught:
        close(device_lease.take(place, [evictable_marks.loan_of("A")], note))
    assert caught.value.device == "A"
    return caught.value.why


def test_a_loan_stands_beside_the_lease_of_its_holder(lends):
    held = device_lease.take(lends, ["A"], NOTE)
    lent = device_lease.take(lends, [evictable_marks.loan_of("A")], BORROWS)
    marks = evictable_marks.put(lends, [evictable_marks.loan_of("A")])
    found = holders.survey(lends, ["A"])["A"]
    assert [(one.job, one.is_loan, one.is_evictable) for one in found] == [("job 7", False, False), ("8", True, True)]
    assert loan_refusal(lends) == "leased", "two never borrow one device"
    # After its holder the device is not free before the borrower has left.
    close(held)
    assert refusal(lends, "A").why == "lent"
    assert holders.held(lends, ["A", "B"]) == {"A"}
    close(lent)
    for fd in marks:
        os.close(fd)
    close(device_lease.take(lends, ["A"], NOTE))


def test_only_a_leased_device_is_lent_and_only_to_evictable_jobs(lends):
    assert loan_refusal(lends) == "not held"
    held = device_lease.take(lends, ["A"], NOTE)
    assert loan_refusal(lends, NOTE) == "no loan"
    close(held)


def test_nothing_is_lent_without_the_word_of_root(place):
    held = device_lease.take(place, ["A"], NOTE)
    assert loan_refusal(place) == "no loan"
    close(held)
