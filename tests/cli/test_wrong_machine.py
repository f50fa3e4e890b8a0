"""Settings, state folders and databases that cannot be used: one line with the solution, and nothing is changed.

What happens when the machine fails later, under each verb, is in `test_troubles`.
"""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.test_wrong_words import check_refused, content

from bench import PATIENCE_S, Bench
from keyboard import Typed, Typist

NO_DAEMON = 5
ADD = ("add", "-g0", "true")


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A queue with a finished job, and a running daemon."""
    bench = Bench(tmp_path_factory.mktemp("used"))
    bench.until(bench.add("true", gpus=0))
    yield bench
    bench.close()


# -- settings --

#: The text of a settings file, and the error about it; None: there is a folder in its place.
FILES: list[tuple[bytes | None, str]] = [
    (b"grace\n", "config.toml, line 1: expected TOML"),
    (b"# hi\ncolour = 1\n", 'config.toml, line 2: there is no setting "colour".'),
    (b"grace = 30\n", "config.toml, line 1: grace: expected a time such as 90m"),
    (b"shell = '\xff'\n", "config.toml: expected UTF-8 text, got other bytes at offset 9."),
    (b"cpu_slots = 'many'\n", "cpu_slots: expected a whole number"),
    (None, "config.toml: expected a file that you can read, got: Is a directory."),
]
#: An invalid variable, and the error about it.
VARIABLES = [
    ("DIBS_CONFIG", "/no/such/file", "DIBS_CONFIG expected a file, but /no/such/file does not exist."),
    ("DIBS_GRACE", "30", 'DIBS_GRACE: expected a time such as 90m, 2h or 1d12h, got "30": write 30m or 30s'),
    ("DIBS_CPU_SLOTS", "x", 'DIBS_CPU_SLOTS: expected a whole number from 1 up, got "x".'),
    ("DIBS_VISIBLE", "both", 'DIBS_VISIBLE: expected "uuid" or "index", got "both".'),
    ("DIBS_FILES", "relative", 'DIBS_FILES: expected an absolute path, got "relative".'),
    ("DIBS_LEASE_DIR", "relative", 'DIBS_LEASE_DIR: expected an absolute path, got "relative".'),
]


def check_settings(used: Bench, new: Bench, typist: Typist, environ: dict[str, str | None], text: str) -> None:
    """Check that invalid settings are refused where they matter, with and without a daemon."""
    before = content(used)
    # With a daemon: by the verbs that read them here. Without one: by the daemon too, which cannot start.
    for words in (ADD, ("cancel", "1"), ("lease", "true"), ("pipe",), ("config",)):
        check_refused(typist.type(used, *words, environ=environ), 2, text)
    assert content(used) == before
    check_refused(typist.type(new, *ADD, environ=environ), 2, text)
    assert not new.home.exists()
    check_refused(typist.type(new, "status", environ=environ), NO_DAEMON, text)
    assert not (new.home / "dibs.db").exists()


@pytest.mark.parametrize(("written", "text"), FILES, ids=lambda value: str(value)[:20])
def test_a_broken_settings_file_is_refused(
    used: Bench, bench: Bench, typist: Typist, written: bytes | None, text: str
) -> None:
    file = bench.folder / "config.toml"
    file.mkdir() if written is None else file.write_bytes(written)
    check_settings(used, bench, typist, {"DIBS_CONFIG": str(file)}, text)


@pytest.mark.parametrize(("name", "value", "text"), VARIABLES)
def test_an_invalid_setting_is_refused(
    used: Bench, bench: Bench, typist: Typist, name: str, value: str, text: str
) -> None:
    check_settings(used, bench, typist, {name: value}, text)


def test_an_invalid_devices_setting_is_refused_with_and_without_a_daemon(
    used: Bench, bench: Bench, typist: Typist
) -> None:
    wrong: dict[str, str | None] = {"DIBS_DEVICES": "banana"}
    before = content(used)
    for words in (ADD, ("status",), ("gpus",), ("cancel", "1")):
        said = 'the daemon runs with DIBS_DEVICES="fake:4", here it is "banana". `dibs daemon restart` takes'
        check_refused(typist.type(used, *words, environ=wrong), 2, said)
    assert content(used) == before
    said = 'DIBS_DEVICES=banana: expected GPUs as indices or UUIDs (0,1 or GPU-8f4a...), none, or fake:4, got "banana".'
    for alone in (("lease", "true"), ("pipe",)):
        check_refused(typist.type(bench, *alone, environ=wrong), 2, said)
    check_refused(typist.type(bench, "status", environ=wrong), NO_DAEMON, said)


# -- the state folder --


def relative(bench: Bench) -> dict[str, str]:
    return {"DIBS_HOME": "relative"}


def a_file(bench: Bench) -> dict[str, str]:
    bench.home.write_text("")
    return {}


def a_link_to_nowhere(bench: Bench) -> dict[str, str]:
    bench.home.symlink_to("/no/such/place")
    return {}


def below_a_file(bench: Bench) -> dict[str, str]:
    (bench.folder / "file").write_text("")
    return {"DIBS_HOME": str(bench.folder / "file" / "home")}


def of_somebody_else(bench: Bench) -> dict[str, str]:
    bench.home.mkdir(mode=0o700)
    os.chown(bench.home, 65534, 65534)
    return {}


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
HOMES = [
    (relative, 'DIBS_HOME: expected an absolute path, got "relative". Start it with / or ~/.'),
    (a_file, "to be a folder, but it is something else. Move it away."),
    (a_link_to_nowhere, "Set DIBS_HOME to another folder."),
    (below_a_file, "Set DIBS_HOME to another folder."),
    pytest.param(of_somebody_else, "it belongs to nobody (user 65534). Set DIBS_HOME to another", marks=needs_root),
]


@pytest.mark.parametrize(("make", "text"), HOMES)
def test_an_unusable_state_folder_is_refused(
    bench: Bench, typist: Typist, make: Callable[[Bench], dict[str, str]], text: str
) -> None:
    environ: dict[str, str | None] = {**make(bench)}
    before = sorted(bench.folder.rglob("*"))
    for words in (ADD, ("status",), ("wait",), ("daemon", "start")):
        check_refused(typist.type(bench, *words, environ=environ), 2, text)
    assert sorted(bench.folder.rglob("*")) == before
    # Whatever was put there is no state folder that could be closed.
    shutil.rmtree(bench.home, ignore_errors=True)
    bench.home.unlink(missing_ok=True)


@needs_root
def test_a_state_folder_on_the_network_is_refused_with_a_solution(bench: Bench) -> None:
    """The mount table is a fixture, bind-mounted over the real one for this process alone."""
    home = bench.folder / "network" / "home"
    mounts = bench.folder / "mountinfo"
    mounts.write_text(
        f"22 1 8:1 / / rw - ext4 /dev/sda rw\n25 22 0:40 / {bench.folder}/network rw - nfs4 server:/export rw\n"
    )
    script = 'mount --bind "$0" "/proc/$$/mountinfo" && exec "$@"'
    for words in (ADD, ("status",), ("daemon", "start")):
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, str(mounts), sys.executable, "-m", "dibs", *words],
            env=bench.environ | {"DIBS_HOME": str(home)}, capture_output=True, text=True, timeout=PATIENCE_S,
            cwd=bench.folder, check=False,
        )  # fmt: skip
        typed = Typed(done.returncode, done.stdout, done.stderr)
        check_refused(typed, 2, f'DIBS_HOME: expected a folder on a local disk, got "{home}" on a network file system')
        assert "(nfs4). Leave DIBS_HOME unset, or name a local folder; logs may go to the network" in typed.err
    assert not home.parent.exists()


# -- the database --


def altered(sql: str) -> Callable[[Path], None]:
    """Return a function that makes a database and changes it without the store."""

    def make(path: Path) -> None:
        store = sqlite3.connect(path)
        store.executescript(sql)
        store.close()

    return make


STORES: list[tuple[Callable[[Path], object], str]] = [
    (altered("PRAGMA user_version = 99"), "was written by a newer dibs (schema 99, this one knows "),
    (altered("PRAGMA application_id = 7"), "is not a database of dibs; it was not changed. Choose another folder with"),
    (lambda path: path.write_bytes(b"garbage" * 1000), "is damaged (file is not a database); it was left as it is."),
]


@pytest.mark.parametrize(("make", "text"), STORES, ids=["newer", "another program's", "garbage"])
def test_an_unusable_database_is_refused_and_unchanged(
    bench: Bench, typist: Typist, make: Callable[[Path], object], text: str
) -> None:
    bench.start()
    bench.stop()
    store = bench.home / "dibs.db"
    make(store)
    before = store.read_bytes()
    for words in (ADD, ("status",), ("cancel", "1"), ("wait",), ("daemon", "start")):
        typed = typist.type(bench, *words)
        check_refused(typed, NO_DAEMON, text)
        assert f"Its log is {bench.home}/daemon.log." in typed.err
    assert store.read_bytes() == before
    # No daemon is needed for these.
    assert typist.type(bench, "daemon", "status").code == NO_DAEMON
    assert typist.type(bench, "lease", "true").code == 0
    assert typist.type(bench, "pipe").code == 0
    store.unlink()


def test_a_folder_in_place_of_the_database_is_an_error(bench: Bench, typist: Typist) -> None:
    (bench.home / "dibs.db").mkdir(parents=True)
    bench.home.chmod(0o700)
    check_refused(typist.type(bench, "status"), NO_DAEMON, "does another program use the file? Its log is ")
    (bench.home / "dibs.db").rmdir()


# -- dead daemons --


def test_a_killed_daemon_is_restarted_with_all_its_jobs(bench: Bench, typist: Typist) -> None:
    bench.add("true", hold=True)
    before = content(bench)["jobs"]
    bench.kill()
    assert typist.type(bench, "status", "-q") == Typed(0, "1\n", "")
    assert content(bench)["jobs"] == before


def hang_up(listening: socket.socket) -> None:
    """Close every connection at once, until nobody listens."""
    while True:
        try:
            listening.accept()[0].close()
        except OSError:
            return


def test_a_daemon_that_does_not_answer_is_an_error(bench: Bench, typist: Typist) -> None:
    """A process listens, and closes each connection at once."""
    bench.home.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(bench.home / "dibs.sock"))
        deaf.listen()
        rude = threading.Thread(target=hang_up, args=(deaf,))
        rude.start()
        try:
            said = "the connection to the daemon was lost. Try again; `dibs status` shows what was saved."
            check_refused(typist.type(bench, *ADD), NO_DAEMON, said)
            check_refused(typist.type(bench, "status"), NO_DAEMON, said)
        finally:
            deaf.shutdown(socket.SHUT_RDWR)
            rude.join()
    (bench.home / "dibs.sock").unlink()
