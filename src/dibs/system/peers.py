"""The peer of a connection: the user whose process opened it, according to the kernel.

A unix socket reports it directly. For loopback TCP, which every user of a machine can reach, the kernel's tables name
the owner of the peer's socket. Nothing here decides who may do what.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: The kernel's tables of TCP sockets, by family. They list the sockets of our own network namespace.
TABLES = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}

#: The state of a listening socket in these tables.
LISTENING = "0A"

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Peer:
    """The peer. `uid` is None if the kernel names no living owner on this machine."""

    uid: int | None
    #: Whether its address belongs to this machine, so that a peer without an owner must not be trusted.
    is_local: bool


def of_unix(sock: socket.socket) -> Peer:
    """Return the peer of a connected unix socket."""
    creds = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", creds)
    return Peer(uid, is_local=True)


def of_tcp(sock: socket.socket) -> Peer:
    """Return the peer of a connected TCP socket; reads a kernel table, which may take milliseconds."""
    return of_all_tcp([sock])[0]


def of_all_tcp(socks: Sequence[socket.socket]) -> list[Peer]:
    """Return the peers of connected TCP sockets, with one look at the kernel's tables for all of them."""
    tables = {family: _by_ends(family) for family in {sock.family for sock in socks}}
    return [_of(sock, tables[sock.family]) for sock in socks]


def _by_ends(family: int) -> dict[str, str]:
    """Return the lines of a kernel table by the addresses of their two ends; none if the kernel does not tell."""
    try:
        text = TABLES[socket.AddressFamily(family)].read_text("ascii")
    except OSError:
        return {}
    split = ((line.split(None, 3), line) for line in text.splitlines())
    return {f"{words[1]} {words[2]}": line for words, line in split if len(words) == 4}


def _of(sock: socket.socket, lines: Mapping[str, str]) -> Peer:
    try:
        theirs, ours = sock.getpeername()[:2], sock.getsockname()[:2]
    except OSError:
        # The peer is gone: the owner is unknown.
        return Peer(None, is_local=True)
    found = lines.get(f"{_written(theirs)} {_written(ours)}", "")
    return find(found, theirs, ours) if lines else Peer(None, is_local=True)


def find(table: str, theirs: Address, ours: Address) -> Peer:
    """Return the peer at `theirs` of our end at `ours` from lines of one of the kernel's tables."""
    at = table.find(f": {_written(theirs)} {_written(ours)} ")
    if at >= 0:
        # "local remote state queues timer retransmissions uid timeout inode ..."
        words = table[at + 2 : at + 400].partition("\n")[0].split()
        # A socket that its process has closed has no inode, and the kernel writes uid 0 for it: a client that hangs up
        # at once would pass for root.
        return Peer(int(words[6]) if words[8] != "0" else None, is_local=True)
    return Peer(None, is_local=ipaddress.ip_address(theirs[0].partition("%")[0]).is_loopback)


def listeners(host: str, port: int) -> set[int]:
    """Return the users who listen where a connection to `host` would arrive, as far as that is on this machine."""
    tables = "".join(path.read_text("ascii") for path in TABLES.values() if path.exists())
    addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    return {uid for address in addresses for uid in find_listeners(tables, (address, port))}


def find_listeners(tables: str, address: Address) -> set[int]:
    """Return the owners of the sockets that listen at an address, from the text of the kernel's tables."""
    where = ipaddress.ip_address(address[0].partition("%")[0])
    hosts = [str(where), f"::ffff:{where}"] if where.version == 4 else [str(where)]
    if where.is_loopback:
        # A socket that listens everywhere gets what is sent to loopback. What is sent elsewhere may leave the machine.
        hosts += ["0.0.0.0", "::"] if where.version == 4 else ["::"]
    written = {_written((host, address[1])) for host in hosts}
    rows = (line.split() for line in tables.splitlines())
    return {int(row[7]) for row in rows if row[3] == LISTENING and row[1] in written}


def _written(address: Address) -> str:
    """Format an address as in the kernel's tables: 32-bit words in the machine's byte order, then the port."""
    packed = ipaddress.ip_address(address[0].partition("%")[0]).packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
