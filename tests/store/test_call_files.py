"""The files of Python calls: contents survive a round trip, and a file that others may have written is not read."""

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.store import call_files

KEY = "0123456789abcdef"


@pytest.fixture
def home(tmp_path):
    return str(tmp_path)


def write(home, *payloads, key=KEY):
    call_files.write(home, key, b"context", payloads)
    return call_files.path_of(home, key)


@given(st.binary(max_size=50), st.lists(st.binary(max_size=200), min_size=1, max_size=20))
def test_every_call_survives_a_round_trip(tmp_path_factory, context, payloads):
    home = str(tmp_path_factory.mktemp("home"))
    call_files.write(home, KEY, context, payloads)
    assert [call_files.read(home, KEY, n) for n in range(len(payloads))] == [(context, payload) for payload in payloads]


def test_calls_are_private_to_their_owner(home):
    path = write(home, b"one")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700


def test_calls_never_overwrite_others(home):
    write(home, b"one")
    with pytest.raises(FileExistsError):
        write(home, b"two")
    assert call_files.read(home, KEY, 0)[1] == b"one"


def test_a_truncated_file_is_refused(home):
    path = write(home, b"x" * 100, b"y" * 100)
    os.truncate(path, os.path.getsize(path) - 1)
    assert call_files.read(home, KEY, 0)[1] == b"x" * 100
    with pytest.raises(ValueError, match="cut short"):
        call_files.read(home, KEY, 1)


def test_a_file_of_another_kind_is_refused(home):
    path = write(home, b"one")
    with open(path, "r+b") as file:
        file.write(b"dibs-calls 2")
    with pytest.raises(ValueError, match="expected a file of calls"):
        call_files.read(home, KEY, 0)


@pytest.mark.parametrize("kind", [call_files.VALUE, call_files.ERROR])
@pytest.mark.parametrize("told", ["", "Traceback\n  ünïcode \ud800\n"])
def test_a_result_survives_a_round_trip(tmp_path, kind, told):
    path = f"{tmp_path}/result"
    call_files.write_result(path, kind, b"\n body \n", told)
    assert call_files.read_result(path) == (kind, b"\n body \n", told.replace("\ud800", "\\ud800"))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["result"]


def test_a_result_that_cannot_be_written_leaves_no_file(tmp_path):
    """A folder has its name here; a full disk has the same effect."""
    os.mkdir(tmp_path / "result")
    with pytest.raises(IsADirectoryError):
        call_files.write_result(f"{tmp_path}/result", call_files.VALUE, b"body")
    assert os.listdir(tmp_path) == ["result"]


@pytest.mark.parametrize(
    "text", [b"", b"dibs-result 2 value 0\n", b"dibs-result 1 secret 0\n", b"dibs-result 1 value\n"]
)
def test_a_file_that_is_no_result_is_refused(tmp_path, text):
    path = tmp_path / "result"
    path.touch(0o600)
    path.write_bytes(text)
    with pytest.raises(ValueError, match="expected a result"):
        call_files.read_result(str(path))


def link(path):
    path.symlink_to(path.with_name("whole"))


def hard_to_read(path):
    os.mkfifo(path, 0o600)


def open_to_the_group(path):
    os.link(path.with_name("whole"), path)
    path.chmod(0o660)


def open_to_all(path):
    os.link(path.with_name("whole"), path)
    path.chmod(0o602)


def somebody_elses(path):
    os.link(path.with_name("whole"), path)
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, -1)


@pytest.mark.parametrize("make", [link, hard_to_read, open_to_the_group, open_to_all, somebody_elses])
def test_a_file_that_others_may_have_written_is_never_read(tmp_path, make):
    call_files.write_result(f"{tmp_path}/whole", call_files.VALUE, b"body")
    make(tmp_path / "result")
    with pytest.raises(call_files.Untrusted, match="it was not read"):
        call_files.read_result(f"{tmp_path}/result")


def test_a_missing_file_is_reported_as_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        call_files.read_result(f"{tmp_path}/result")


def test_removing_calls_returns_the_freed_bytes(home):
    path = write(home, b"x" * 1000)
    size = os.path.getsize(path)
    assert call_files.remove(home, [KEY, "nothere"]) == size
    assert not os.path.exists(path)


def test_old_call_files_without_a_job_are_removed(home):
    assert call_files.remove_strays(home, set(), 100) == 0
    for key, age in (("known", 50), ("stray", 50), ("young", 150)):
        os.utime(write(home, b"", key=key), (age, age))
    assert call_files.remove_strays(home, {"known"}, before=100) > 0
    assert sorted(os.listdir(f"{home}/{call_files.FOLDER}")) == ["known", "young"]


def test_the_command_of_a_call_is_recognized():
    words = call_files.words(("python", "-P"), KEY, 12)
    assert os.path.isfile(words[2])
    assert words[3:] == [KEY, "12"]
    assert call_files.is_call(words)


def test_a_call_of_an_older_release_runs_with_the_current_program():
    words = call_files.words(("python", "-P"), KEY, 12)
    old = [*words[:2], words[2].removesuffix(call_files.PROGRAM) + call_files.OLD_PROGRAM, *words[3:]]
    assert call_files.is_call(old)
    assert call_files.current(old) == words


@pytest.mark.parametrize("path", ["/nowhere/dibs/call.py", "/nowhere/dibs/python_api/call_main.py"])
def test_a_call_whose_installation_is_gone_keeps_its_command(path):
    words = ["python", path, KEY, "1"]
    assert call_files.current(words) == words


@pytest.mark.parametrize("argv", [None, [], ["python", "call.py", "x", "1"], ["a", "/dibs/call.py", "x", "y"]])
def test_other_commands_are_not_recognized_as_calls(argv):
    assert not call_files.is_call(argv)
