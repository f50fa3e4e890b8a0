"""What a scheduler, its foreman, the task parents and the tasks get from each other.

Packets are small tuples, sometimes with descriptors. Imports only cheap modules, as all that a foreman loads: each task
is a fork, and tears down all of them.
"""

from __future__ import annotations

import marshal
import os
import pickle
import socket
import sys
from collections.abc import Sequence

from dibs_compat.gpu_tasks.sources import Source

#: Longest packet in bytes: names and folders; whatever may be longer travels as a file in memory.
LONGEST = 65536

#: Descriptors that may come with a packet.
MOST_FDS = 4
#: A fresh interpreter that first gets our own path, then a function of ours with the rest of what it is to know.
BOOT = (
    "import marshal, sys; f = open(int(sys.argv[1]), 'rb'); sys.path[:] = marshal.load(f); "
    "from dibs_compat.gpu_tasks import {module}; {module}.main(f)"
)


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a line that says when the other end is gone."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, *words: object, fds: Sequence[int] = ()) -> bool:
    """Send a packet; False if nobody is there any more."""
    try:
        socket.send_fds(sock, [pickle.dumps(words)], list(fds))
    except (BrokenPipeError, ConnectionError):
        return False
    return True


def receive(sock: socket.socket) -> tuple[tuple[object, ...], list[int]] | None:
    """Return the next packet and its descriptors, or None when the other end is gone."""
    try:
        data, fds, _, _ = socket.recv_fds(sock, LONGEST, MOST_FDS, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        # It has left something of ours unread, and the kernel says so once, before the last that it sent.
        data, fds, _, _ = socket.recv_fds(sock, LONGEST, MOST_FDS, socket.MSG_CMSG_CLOEXEC)
    # Only we have the other end, so what comes is ours.
    return (pickle.loads(data), fds) if data else None


def file(content: bytes) -> int:
    """Return a descriptor of a file in memory, to be read from its beginning."""
    fd = os.memfd_create("gpu-task", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as out:
        out.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class Place:
    """Where one task at a time can run: its name, CUDA_VISIBLE_DEVICES, and the leased devices."""

    __slots__ = ("devices", "name", "visible")

    def __init__(self, name: str, visible: str, devices: tuple[str, ...]) -> None:
        self.name = name
        self.visible = visible
        self.devices = devices


class Order:
    """What is the same for every task of a scheduler."""

    __slots__ = ("cwd", "grace_s", "limit_s", "places", "source", "temp_folder")

    def __init__(
        self,
        source: Source,
        places: tuple[Place, ...],
        cwd: str,
        temp_folder: str,
        grace_s: float,
        limit_s: float | None = None,
    ) -> None:
        self.source = source
        self.places = places
        self.cwd = cwd
        self.temp_folder = temp_folder
        #: Seconds from TERM to KILL.
        self.grace_s = grace_s
        #: Seconds after which a quota ends a task; None: never.
        self.limit_s = limit_s


class Task:
    """The task of a worker."""

    __slots__ = ("config", "leases", "log", "place", "work_dir")

    def __init__(self, place: Place, work_dir: str, log: str | None, config: int, leases: tuple[int, ...]) -> None:
        self.place = place
        #: As the user's code gets it.
        self.work_dir = work_dir
        #: None: nobody wants to read it.
        self.log = log
        #: A descriptor of the pickled configuration, and those of the leases.
        self.config = config
        self.leases = leases


def fresh(module: str, content: bytes) -> tuple[list[str], int]:
    """Return the command line of a fresh interpreter like ours for `module`.main, and the descriptor it needs."""
    if not sys.executable:
        raise RuntimeError("the interpreter that runs this cannot be found; sys.executable is empty")
    import subprocess

    fd = file(marshal.dumps([os.fspath(entry) for entry in sys.path]) + content)
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", BOOT.format(module=module), str(fd)], fd
