"""Listen on one TCP port of several addresses, such as both loopback ones.

Apart: It knows nothing of HTTP.
"""

from __future__ import annotations

import errno
import os
import socket

from dibs.errors import Conflict, MachineError

#: Tries to find a port that is free on all addresses.
TRIES = 20


def listen(addresses: tuple[str, ...], port: int, backlog: int) -> list[socket.socket]:
    """Listen on all addresses with one port, a free one if it is 0; skip addresses that this machine does not have."""
    for left in reversed(range(TRIES if port == 0 else 1)):
        sockets: list[socket.socket] = []
        try:
            for address in addresses:
                if sock := _listen(address, sockets[0].getsockname()[1] if sockets else port, backlog):
                    sockets.append(sock)
            if sockets:
                return sockets
            raise MachineError(f"this machine has no address {addresses[0]}; no port was opened.")
        except OSError as error:
            for sock in sockets:
                sock.close()
            if not left or error.errno != errno.EADDRINUSE:
                raise Conflict(
                    f"port {port or 'for browsers'} cannot be opened: {os.strerror(error.errno or 0)}.",
                    "Choose another: dibs web --port 0 takes any that is free.",
                ) from error
    raise AssertionError("unreachable")


def _listen(address: str, port: int, backlog: int) -> socket.socket | None:
    """Return a listening socket; None if this machine does not have the address or its family."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        # It reuses a port that was just closed, but never one that another process listens on.
        sock = socket.create_server((address, port), family=family, backlog=backlog)
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise
    sock.setblocking(False)
    return sock
