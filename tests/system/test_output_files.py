"""Where output may go: a regular file, a terminal or /dev/null. Nothing else is opened, and opening never waits."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path

import pytest

from dibs.system import output_files


def opened(path: Path | str, *, follows_links: bool = True) -> int:
    return output_files.open_to_append(os.fsencode(path), 0o600, follows_links=follows_links)


@pytest.mark.parametrize("has_reader", [False, True])
@pytest.mark.parametrize("follows_links", [False, True])
def test_a_fifo_is_refused_without_waiting_for_a_reader(tmp_path: Path, has_reader: bool, follows_links: bool) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK) if has_reader else None
    with pytest.raises(OSError, match="it is a FIFO") as refused:
        opened(tmp_path / "fifo", follows_links=follows_links)
    assert refused.value.errno == errno.EINVAL
    if reader is not None:
        os.close(reader)


def test_sockets_folders_and_other_devices_are_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="it is a socket"):
            opened(tmp_path / "socket")
    with pytest.raises(OSError, match="it is a folder"):
        opened(tmp_path)
    assert output_files.find_refusal("/dev/random") == "expected a regular file or a terminal, but it is a device"


@pytest.mark.parametrize("path", ["/dev/null", "/dev/full"])
def test_null_devices_are_allowed(path: str) -> None:
    os.close(opened(path))


def test_a_terminal_is_allowed_and_writes_to_it_wait() -> None:
    ours, theirs = os.openpty()
    fd = opened(os.ttyname(theirs))
    assert os.isatty(fd)
    assert not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK
    for each in (ours, theirs, fd):
        os.close(each)


def test_a_file_is_created_and_appended_to(tmp_path: Path) -> None:
    for text in (b"one", b"two"):
        fd = opened(tmp_path / "log")
        os.write(fd, text)
        os.close(fd)
    assert (tmp_path / "log").read_bytes() == b"onetwo"
    assert output_files.find_refusal(str(tmp_path / "missing")) is None
