"""The port for browsers: valid settings, ports, TLS, and what a new daemon opens again."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

import people
from bench import PATIENCE_S, Bench, wait_for
from browsers import Browser, link, quiet_port
from dibs.errors import Conflict, MachineError, UserError
from dibs.http_api import web_port
from dibs.http_api.connections import BACKLOG
from dibs.http_api.tokens import Tokens
from dibs.system import paths, peers, settings, tcp_ports


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a self-signed certificate for 127.0.0.2, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=dibs", "-addext", "subjectAltName=IP:127.0.0.2", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    key.chmod(0o600)
    return cert, key


def values(**said: object) -> settings.Settings:
    """Return settings with only these values."""
    return settings.Settings(**said)  # type: ignore[arg-type]


@pytest.mark.parametrize("bind", ["", "localhost", "127.0.0.1", "::1"])
def test_loopback_needs_no_certificate(bind: str) -> None:
    found = web_port.place(values(web_bind=bind))
    assert {*found.addresses} <= {"127.0.0.1", "::1"}
    assert found.endpoint(8080).names == {"127.0.0.1:8080", "localhost:8080", "[::1]:8080"}
    assert not found.is_public
    assert "localhost" in found.endpoint(80).names


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "127.0.0.2", "10.0.0.5", "2001:db8::1", "127.1.1.1"])
def test_any_other_address_is_refused_without_tls(bind: str, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    for more in ({}, {"web_cert": cert}, {"web_key": key}):
        with pytest.raises(UserError, match="needs TLS; no port was opened") as caught:
            web_port.place(values(web_bind=bind, web_names=("gpu1",), **more))
        assert "\n" not in caught.value.line()
    found = web_port.place(values(web_bind=bind, web_names=("GPU1",), web_cert=cert, web_key=key))
    assert found.is_public
    assert found.endpoint(8443).names == {"gpu1:8443"} | ({f"{found.names[1]}:8443"} if len(found.names) > 1 else set())
    assert found.endpoint(8443).scheme == "https"
    assert "gpu1" in found.endpoint(443).names


@pytest.mark.parametrize("bind", ["gpu1", "127.0.0.1:80", "10.0.0", "*", "0", "http://127.0.0.1", "127.0.0.1 "])
def test_an_invalid_address_is_refused(bind: str) -> None:
    with pytest.raises(UserError, match="web_bind expected an address"):
        web_port.place(values(web_bind=bind))


def test_binding_to_all_addresses_needs_web_names(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    with pytest.raises(UserError, match="needs web_names"):
        web_port.place(values(web_bind="0.0.0.0", web_cert=cert, web_key=key))


def test_a_bad_certificate_or_a_readable_key_is_refused(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    open_key = tmp_path / "key.pem"
    open_key.write_bytes(key.read_bytes())
    open_key.chmod(0o644)
    wrong = ((cert, cert), (key, key), (tmp_path / "none", key), (cert, tmp_path / "none"), (cert, open_key))
    for one, other in wrong:
        with pytest.raises(UserError, match="web_key"):
            web_port.place(values(web_bind="127.0.0.2", web_cert=one, web_key=other))


def test_a_free_port_is_the_same_on_all_addresses() -> None:
    sockets = tcp_ports.listen(("127.0.0.1", "127.0.0.2"), 0, BACKLOG)
    assert len({sock.getsockname()[1] for sock in sockets}) == 1
    for sock in sockets:
        sock.close()


def test_a_port_in_use_is_refused_and_nothing_stays_open() -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        before = listeners(os.getpid())
        with pytest.raises(Conflict, match=f"port {port} cannot be opened"):
            tcp_ports.listen(("127.0.0.1", "127.0.0.2"), port, BACKLOG)
        assert listeners(os.getpid()) == before


def test_an_address_of_another_machine_is_skipped_unless_it_is_the_only_one() -> None:
    sockets = tcp_ports.listen(("127.0.0.1", "192.0.2.1"), 0, BACKLOG)
    assert len(sockets) == 1
    sockets[0].close()
    with pytest.raises(MachineError, match="no address"):
        tcp_ports.listen(("192.0.2.1",), 0, BACKLOG)


def listeners(pid: int) -> set[tuple[str, int]]:
    """Return where a process listens for TCP."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(fd.readlink().name)
        except OSError:
            continue
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        path = Path("/proc/net") / table
        for words in map(str.split, path.read_text().splitlines()[1:] if path.exists() else ()):
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                address, port = words[1].split(":")
                size = 4 if family == socket.AF_INET else 16
                packed = b"".join(int(address[i : i + 8], 16).to_bytes(4, "little") for i in range(0, size * 2, 8))
                found.add((socket.inet_ntop(family, packed), int(port, 16)))
    return found


@pytest.fixture
def daemon(bench: Bench) -> Bench:
    """Start a queue and its daemon."""
    bench.start()
    return bench


def test_no_port_is_open_before_it_is_requested_or_after_it_is_closed(daemon: Bench) -> None:
    pid = daemon.pid()
    assert pid is not None
    assert listeners(pid) == set()
    address, _ = link(daemon)
    port = int(address.rstrip("/").rpartition(":")[2])
    assert {*listeners(pid)} <= {("127.0.0.1", port), ("::1", port)}
    assert ("127.0.0.1", port) in listeners(pid)
    # A second time changes nothing.
    assert link(daemon)[0] == address
    daemon.cli("web", "--stop")
    assert listeners(pid) == set()
    daemon.stop()
    daemon.start()
    pid = daemon.pid()
    assert pid is not None
    assert listeners(pid) == set()


def test_a_new_daemon_opens_the_same_port_and_accepts_the_same_token(daemon: Bench) -> None:
    address, code = link(daemon, "--port", str(quiet_port()))
    browser = Browser(address)
    browser.sign_in(code)
    daemon.kill()
    daemon.start()
    assert browser.ask("GET", "/v1/daemon").status == 200
    assert link(daemon)[0] == address


def test_if_another_process_took_the_port_the_token_is_replaced(bench: Bench) -> None:
    """It may have served a page to our open tabs, which would reconnect where it was."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        bench.home.mkdir(mode=0o700)
        kept = Tokens(paths.web_file(bench.home))
        kept.rotate()
        kept.remember(port)
        before = kept.token
        bench.start()
        # A thread writes the log.
        wait_for(lambda: "the web page is not available" in (bench.home / "daemon.log").read_text())
        after = Tokens(paths.web_file(bench.home))
        assert (after.token != before, after.port) == (True, None)
        refused = bench.cli("web", "--port", str(port))
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert f"port {port} cannot be opened" in refused.stderr
        address, _ = link(bench)
        assert not address.endswith(f":{port}/")
        assert Browser(address).ask("GET", "/").status == 200


def test_another_address_is_opened_with_tls_and_a_token_or_not_at_all(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    own = Bench(tmp_path, DIBS_WEB_BIND="127.0.0.2")
    try:
        refused = own.cli("web")
        assert refused.returncode == 2
        assert "needs TLS; no port was opened" in refused.stderr
        pid = own.pid()
        assert pid is not None
        assert listeners(pid) == set()
        own.stop()
        own.environ |= {"DIBS_WEB_CERT": str(cert), "DIBS_WEB_KEY": str(key)}
        own.client.environ = own.environ
        address, code = link(own)
        assert address.startswith("https://127.0.0.2:")
        browser = Browser(address, context=ssl.create_default_context(cafile=str(cert)))
        assert browser.ask("GET", "/v1/jobs").status == 401
        browser.sign_in(code)
        assert browser.ask("GET", "/v1/jobs").status == 200
        # Not without TLS, and under no other name.
        port = int(address.rstrip("/").rpartition(":")[2])
        with socket.create_connection(("127.0.0.2", port)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.2\r\n\r\n")
            assert b"HTTP" not in plain.recv(100)
        assert browser.ask("GET", "/", Host=f"127.0.0.1:{port}").status == 403
        assert json.loads(own.cli("web", "--json").stdout)["link"].startswith(address)
    finally:
        own.close()


#: Opens many connections and keeps them until its stdin ends.
CROWD = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
print("there", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="being another user needs root")
def test_many_connections_of_other_users_do_not_block_the_owner(daemon: Bench) -> None:
    """They are known by one look for all of them, and only a few of them are answered at a time."""
    port = int(daemon.client.post("/v1/web", {"port": quiet_port()})["port"])
    words = [people.reachable_python(), "-I", "-S", "-c", CROWD, str(port), "1200"]
    who = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
    with subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **who) as crowd:  # type: ignore[call-overload]
        assert crowd.stdout is not None
        before = processor_s(daemon)
        assert crowd.stdout.readline() == "there\n"
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as asking:
            asking.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            assert asking.recv(65536).startswith(b"HTTP/1.1 200 ")
        # One look for each of them took several seconds; that the owner waited for.
        assert processor_s(daemon) - before < 1.5
        crowd.communicate()


def processor_s(bench: Bench) -> float:
    """Return the processor time that the daemon has used."""
    words = Path(f"/proc/{bench.pid()}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def test_the_owners_of_many_connections_are_found_by_one_read() -> None:
    with contextlib.ExitStack() as stack:
        (listening,) = tcp_ports.listen(("127.0.0.1",), 0, BACKLOG)
        stack.enter_context(listening)
        listening.setblocking(True)
        asking = [stack.enter_context(socket.create_connection(listening.getsockname())) for _ in range(50)]
        asked = [stack.enter_context(listening.accept()[0]) for _ in asking]
        asking[7].close()
        found = peers.of_all_tcp(asked)
    assert [peer.uid for peer in found] == [None if place == 7 else os.geteuid() for place in range(50)]
