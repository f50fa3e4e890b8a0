"""Who is at the other end of a connection, according to the kernel: its tables as text, and real sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator

import pytest

from dibs.system import peers
from dibs.system.peers import Peer

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
OURS, THEIRS = ("127.0.0.1", 0x1F90), ("127.0.0.1", 0xC350)
LITTLE = sys.byteorder == "little"
LOOPBACK = "0100007F" if LITTLE else "7F000001"
LOOPBACK_6 = "000000000000000000000000" + ("01000000" if LITTLE else "00000001")


def line(ours: str, theirs: str, *, state: str = "01", uid: int = 1000, inode: int = 77) -> str:
    """Return a line of the table, with its own end first."""
    return f"   1: {ours} {theirs} {state} 00000000:00000000 00:00000000 00000000  {uid}        0 {inode} 1 0 20 4"


def table(*lines: str) -> str:
    """Return a whole table."""
    return "\n".join((HEAD, *lines, ""))


def test_the_owner_of_the_remote_end_is_found() -> None:
    text = table(
        line(f"{LOOPBACK}:1F90", "00000000:0000", state="0A", uid=1),
        line(f"{LOOPBACK}:1F90", f"{LOOPBACK}:C350", uid=2),
        line(f"{LOOPBACK}:C351", f"{LOOPBACK}:1F90", uid=3),
        line(f"{LOOPBACK}:C350", f"{LOOPBACK}:1F90", uid=4),
    )
    assert peers.find(text, THEIRS, OURS) == Peer(4, is_local=True)


def test_ipv6_addresses_are_found_too() -> None:
    text = table(line(f"{LOOPBACK_6}:C350", f"{LOOPBACK_6}:1F90", uid=5))
    assert peers.find(text, ("::1", 0xC350), ("::1", 0x1F90)) == Peer(5, is_local=True)


@pytest.mark.parametrize("state", ["01", "04", "05", "06"])
def test_a_closed_socket_does_not_count_as_roots(state: str) -> None:
    """The kernel reports uid 0 for it; another user who connects and closes at once must not pass for root."""
    text = table(line(f"{LOOPBACK}:C350", f"{LOOPBACK}:1F90", state=state, uid=0, inode=0))
    assert peers.find(text, THEIRS, OURS) == Peer(None, is_local=True)


def test_a_peer_in_no_table_is_remote_unless_its_address_is_loopback() -> None:
    assert peers.find(table(), ("10.0.0.9", 5), ("10.0.0.5", 6)) == Peer(None, is_local=False)
    assert peers.find(table(), ("fe80::1%eth0", 5), ("fe80::2%eth0", 6)) == Peer(None, is_local=False)
    for address in ("127.0.0.1", "127.0.0.2", "::1"):
        assert peers.find(table(), (address, 5), (address, 6)) == Peer(None, is_local=True)


@pytest.mark.parametrize("text", ["", "nonsense", "1: 2 3", "   1: x y z"])
def test_an_unreadable_table_gives_no_owner(text: str) -> None:
    assert peers.find(text, THEIRS, OURS).uid is None


@contextlib.contextmanager
def connected(family: int, address: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the two ends of a connection: the client and the server."""
    with socket.socket(family) as listening:
        listening.bind((address, 0))
        listening.listen()
        with socket.socket(family) as asking:
            asking.connect(listening.getsockname())
            asked, _ = listening.accept()
            with asked:
                yield asking, asked


def test_our_own_connection_is_recognized() -> None:
    with connected(socket.AF_INET, "127.0.0.1") as (_, asked):
        assert peers.of_tcp(asked) == Peer(os.geteuid(), is_local=True)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peers.of_unix(ours).uid == os.geteuid()


def test_a_closed_connection_has_no_owner() -> None:
    with connected(socket.AF_INET, "127.0.0.1") as (asking, asked):
        asking.sendall(b"GET / HTTP/1.1\r\n\r\n")
        asking.close()
        assert peers.of_tcp(asked).uid is None


@pytest.mark.parametrize(
    ("listens", "host", "is_found"),
    [
        (LOOPBACK, "127.0.0.1", True),
        ("00000000", "127.0.0.1", True),
        ("0" * 32, "127.0.0.1", True),
        ("0" * 32, "::1", True),
        (LOOPBACK_6, "::1", True),
        ("00000000", "::1", False),
        (LOOPBACK_6, "127.0.0.1", False),
        # That address may be another machine, whatever listens here.
        ("00000000", "192.0.2.1", False),
    ],
)
def test_listeners_are_found_by_the_address_a_connection_would_reach(listens: str, host: str, is_found: bool) -> None:
    text = table(
        line(f"{listens}:1F90", "00000000:0000", state="0A", uid=7),
        line(f"{listens}:1F91", "00000000:0000", state="0A", uid=8),
        line(f"{listens}:1F90", f"{LOOPBACK}:C350", uid=9),
    )
    assert peers.find_listeners(text, (host, 0x1F90)) == ({7} if is_found else set())


def test_our_own_listening_socket_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        assert peers.listeners("127.0.0.1", ours.getsockname()[1]) == {os.geteuid()}
