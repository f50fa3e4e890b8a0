"""Requests to Ray: whatever the other side does, an answer or `Unavailable` before the deadline."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs import errors
from dibs.engines import ray_rest
from dibs.engines.protocol import Unavailable
from fake_ray import FakeRay


@pytest.fixture
def server() -> Iterator[FakeRay]:
    own = FakeRay(lambda method, path, body: (200, {}))
    yield own
    own.close()


def ask(server: FakeRay, token: str | None = None, deadline_s: float = 30.0) -> ray_rest.Answer:
    return ray_rest.request(ray_rest.parse_address(server.address), token, "GET", "/api/jobs/", deadline_s=deadline_s)


def test_a_request_carries_the_token_and_returns_the_answer(server: FakeRay) -> None:
    server.reply = lambda method, path, body: (200, [1])
    assert ask(server, "secret").decoded() == [1]
    assert server.headers[0]["authorization"] == "Bearer secret"


def test_a_server_that_hangs_is_unavailable_at_the_deadline(server: FakeRay) -> None:
    server.reply = lambda method, path, body: b"late" * server.closing.wait(60)
    with pytest.raises(Unavailable, match="no answer in time"):
        ask(server, deadline_s=0.2)


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n", b""])
def test_a_server_that_sends_a_byte_now_and_then_is_unavailable_at_the_deadline(head: bytes) -> None:
    """A timeout of the socket alone would never end: each byte starts it anew."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        over = threading.Event()

        def trickle() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(head)
                while not over.wait(0.02):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        threading.Thread(target=trickle, daemon=True).start()
        address = ray_rest.Address("127.0.0.1", listener.getsockname()[1], is_tls=False)
        with pytest.raises(Unavailable, match="no answer in time"):
            ray_rest.request(address, None, "GET", "/", deadline_s=0.3)
        over.set()


def test_an_answer_of_ten_megabytes_is_not_read(server: FakeRay) -> None:
    server.reply = lambda method, path, body: (200, "[" + "1," * (5 << 20) + "1]")
    with pytest.raises(ray_rest.TooLarge, match="longer than 4 MiB"):
        ask(server)


@pytest.mark.parametrize(
    "content",
    [
        *(
            b"garbage\xff\xfe\r\n\r\n",
            b"",
            b"HTTP/1.1 999999 no\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        ),
        *(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"\x00" * 70000, b"SSH-2.0-OpenSSH_9.2\r\n"),
    ],
)
def test_what_is_not_http_is_unavailable(server: FakeRay, content: bytes) -> None:
    server.reply = lambda method, path, body: content
    with pytest.raises(Unavailable):
        ask(server)


@pytest.mark.parametrize(
    "text", ["<html>", "", "[" * 100_000, "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")]
)
def test_what_is_not_json_is_unavailable(server: FakeRay, text: str) -> None:
    server.reply = lambda method, path, body: (200, text)
    with pytest.raises(Unavailable, match="not JSON"):
        ask(server).decoded()


@pytest.mark.parametrize(("status", "token", "words"), [(401, None, "requires a token"), (403, "x", "does not accept")])
def test_a_refused_token_is_said_in_words(server: FakeRay, status: int, token: str | None, words: str) -> None:
    server.reply = lambda method, path, body: (status, "no")
    with pytest.raises(Unavailable, match=words):
        ask(server, token)


def test_a_server_that_is_away_is_unavailable(server: FakeRay) -> None:
    address = ray_rest.parse_address(server.address)
    server.close()
    with pytest.raises(Unavailable, match="refused"):
        ray_rest.request(address, None, "GET", "/")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("http://127.0.0.1:6301", "127.0.0.1", 6301),
        ("head.lab:8265", "head.lab", 8265),
        ("https://head.lab/", "head.lab", 8265),
        ("http://[::1]:9", "::1", 9),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    found = ray_rest.parse_address(text)
    assert (found.host, found.port) == (host, port)


@pytest.mark.parametrize(
    "text", ["", "ray://head:10001", "http://", "http://head:port", "http://a/b", "http://u@head:1"]
)
def test_wrong_addresses_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(errors.UserError, match="expected an address such as"):
        ray_rest.parse_address(text)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("head", False),
    ],
)
def test_only_this_machine_may_have_no_token(host: str, is_loopback: bool) -> None:
    address = ray_rest.Address(host, 8265, is_tls=False)
    ray_rest.check_access("lab", address, "token")
    if is_loopback:
        ray_rest.check_access("lab", address, None)
    else:
        with pytest.raises(errors.NotAllowed, match="there is no token") as caught:
            ray_rest.check_access("lab", address, None)
        assert caught.value.exit_code == 4


def test_where_the_token_comes_from(tmp_path: Path) -> None:
    for name in ("setting", "variable", ".ray/auth_token"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{path.name}\n")
    environ = {"HOME": str(tmp_path)}
    assert ray_rest.find_token(None, environ) == "auth_token"
    environ["RAY_AUTH_TOKEN_PATH"] = str(tmp_path / "variable")
    assert ray_rest.find_token(None, environ) == "variable"
    environ["RAY_AUTH_TOKEN"] = "direct"
    assert ray_rest.find_token(None, environ) == "direct"
    assert ray_rest.find_token(str(tmp_path / "setting"), environ) == "setting"
    assert ray_rest.find_token(None, {"HOME": str(tmp_path / "nobody")}) is None


@pytest.mark.parametrize("text", ["", "two words", "line\r\nHost: evil", "\x00"])
def test_a_token_that_would_change_the_request_is_not_used(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(Unavailable, match="expected one word as the token"):
        ray_rest.find_token(str(tmp_path / "token"), {})


def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"cannot read the token file .*nowhere"):
        ray_rest.find_token(str(tmp_path / "nowhere"), {})


def test_a_token_that_others_can_read_is_reported(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o640)
    assert ray_rest.token_problem(str(token), {}) == f"others can read the token; type: chmod 600 {token}"
    assert ray_rest.token_problem(None, {"RAY_AUTH_TOKEN_PATH": str(token)})
    assert not ray_rest.token_problem(None, {"RAY_AUTH_TOKEN": "secret", "RAY_AUTH_TOKEN_PATH": str(token)})
    token.chmod(0o600)
    assert not ray_rest.token_problem(str(token), {})
    assert not ray_rest.token_problem(str(tmp_path / "none"), {})
