"""Packets between a scheduler, its foreman and the task parents: small tuples, sometimes with descriptors."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Sequence

#: Longest packet in bytes: names and folders; whatever may be longer travels as a file in memory.
LONGEST = 65536

#: Descriptors that may come with a packet.
MOST_FDS = 4


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
