"""Who is at the other end of a connection, as the kernel tells: its tables as text, and real sockets."""

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


def test_the_owner_of_the_other_end_is_found_and_not_that_of_our_own() -> None:
    text = table(
        line(f"{LOOPBACK}:1F90", "00000000:0000", state="0A", uid=1),
        line(f"{LOOPBACK}:1F90", f"{LOOPBACK}:C350", uid=2),
        line(f"{LOOPBACK}:C351", f"{LOOPBACK}:1F90", uid=3),
        line(f"{LOOPBACK}:C350", f"{LOOPBACK}:1F90", uid=4),
    )
    assert peers.find(text, THEIRS, OURS) == Peer(4, is_local=True)


def test_addresses_of_the_sixth_version_are_found_too() -> None:
    text = table(line(f"{LOOPBACK_6}:C350", f"{LOOPBACK_6}:1F90", uid=5))
    assert peers.find(text, ("::1", 0xC350), ("::1", 0x1F90)) == Peer(5, is_local=True)


@pytest.mark.parametrize("state", ["01", "04", "05", "06"])
def test_a_socket_that_nobody_has_open_any_more_is_not_of_root(state: str) -> None:
    """The kernel writes uid 0 for it; a stranger who asks and hangs up at once must not pass for root."""
    text = table(line(f"{LOOPBACK}:C350", f"{LOOPBACK}:1F90", state=state, uid=0, inode=0))
    assert peers.find(text, THEIRS, OURS) == Peer(None, is_local=True)


def test_who_is_in_no_table_is_of_another_machine_unless_the_address_says_otherwise() -> None:
    assert peers.find(table(), ("10.0.0.9", 5), ("10.0.0.5", 6)) == Peer(None, is_local=False)
    assert peers.find(table(), ("fe80::1%eth0", 5), ("fe80::2%eth0", 6)) == Peer(None, is_local=False)
    for address in ("127.0.0.1", "127.0.0.2", "::1"):
        assert peers.find(table(), (address, 5), (address, 6)) == Peer(None, is_local=True)


@pytest.mark.parametrize("text", ["", "nonsense", "1: 2 3", "   1: x y z"])
def test_a_table_that_cannot_be_read_names_nobody(text: str) -> None:
    assert peers.find(text, THEIRS, OURS).uid is None


@contextlib.contextmanager
def connected(family: int, address: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the two ends of a connection: who asked, and who was asked."""
    with socket.socket(family) as listening:
        listening.bind((address, 0))
        listening.listen()
        with socket.socket(family) as asking:
            asking.connect(listening.getsockname())
            asked, _ = listening.accept()
            with asked:
                yield asking, asked


def test_a_connection_of_our_own_is_ours() -> None:
    with connected(socket.AF_INET, "127.0.0.1") as (_, asked):
        assert peers.of_tcp(asked) == Peer(os.geteuid(), is_local=True)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peers.of_unix(ours).uid == os.geteuid()


def test_a_connection_that_was_hung_up_is_nobodys() -> None:
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
def test_who_listens_where_a_connection_would_arrive(listens: str, host: str, is_found: bool) -> None:
    text = table(
        line(f"{listens}:1F90", "00000000:0000", state="0A", uid=7),
        line(f"{listens}:1F91", "00000000:0000", state="0A", uid=8),
        line(f"{listens}:1F90", f"{LOOPBACK}:C350", uid=9),
    )
    assert peers.find_listeners(text, (host, 0x1F90)) == ({7} if is_found else set())


def test_a_listening_socket_of_our_own_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        assert peers.listeners("127.0.0.1", ours.getsockname()[1]) == {os.geteuid()}
