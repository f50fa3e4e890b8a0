"""The read-only status socket: it serves its owner and allows no change."""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import Bench, wait_for
from browsers import converse
from dibs.http_api import admission, server
from dibs.http_api.admission import Endpoint, RequestSummary
from dibs.http_api.routes import ROUTES
from dibs.system import paths
from forking import PATIENCE_S
from matrix import BODIES, FETCHES, METHODS, OWN, STRANGER, TOKEN

DOOR = Endpoint(False, OWN, is_status=True)
#: What it serves; everything else that exists, or will exist, is refused.
TOLD = {
    *("/v1/jobs", "/v1/jobs/index", "/v1/jobs/wait", "/v1/jobs/changes", "/v1/jobs/{id}", "/v1/jobs/{id}/why"),
    *("/v1/jobs/{id}/events", "/v1/queue", "/v1/queue/starts", "/v1/queue/line", "/v1/sweeps", "/v1/words"),
    *("/v1/sweeps/{id}/results", "/v1/gpus", "/v1/gpus/history", "/v1/events", "/v1/timeline", "/v1/daemon"),
    *("/v1/openapi.json", "/metrics"),
}


def refused(path: str, method: str = "GET", uid: int = OWN) -> int | None:
    """Return the status with which a program is refused; None if it is not."""
    refusal = admission.refuse(RequestSummary(uid, method, path, ("dibs",)), DOOR, TOKEN)
    return None if refusal is None else refusal.status


def test_exactly_the_listed_routes_are_served() -> None:
    paths = {route.path: re.sub(r"\{\w+\}", "1", route.path) for route in ROUTES}
    assert paths.keys() >= TOLD
    assert {path for path, asked in paths.items() if refused(asked) is None} == TOLD
    for asked in paths.values():
        assert {refused(asked, method) for method in METHODS if method not in ("GET", "HEAD")} == {403, 405}
        assert refused(asked, uid=STRANGER) == 403


@pytest.mark.parametrize("path", ["/v1/jobs/", "/v1/jobs/1/log", "/v1/jobs/1/log/search", "/v1/jobs/../daemon/stop"])
def test_similar_paths_are_refused(path: str) -> None:
    assert refused(path) == 403


def test_a_browser_cannot_write_with_the_token_nor_read_without_it() -> None:
    for fetch in FETCHES[1:]:
        assert fetch is not None
        site, mode, dest = ((word,) for word in fetch)
        for body in BODIES[:2]:
            asked = RequestSummary(
                OWN, "POST", "/v1/queue", ("localhost:1",), (), site, mode, dest, True, (f"Bearer {TOKEN}",)
            )
            assert admission.refuse(asked, DOOR, TOKEN) is not None, body
        asked = RequestSummary(OWN, "GET", "/v1/jobs", ("localhost:1",), (), site, mode, dest, True)
        assert admission.refuse(asked, DOOR, TOKEN) is not None


def asked_at(path: Path, method: str, target: str, body: object = None) -> tuple[int, bytes]:
    """Send a request on a socket; return the status and the body."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(str(path))
        said = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {target} HTTP/1.1\r\nHost: dibs\r\nConnection: close\r\nContent-Length: {len(said)}\r\n"
        head += "Content-Type: application/json\r\n\r\n" if said else "\r\n"
        told = converse(sock, head.encode() + said)
    head_told, _, rest = told.partition(b"\r\n\r\n")
    return int(head_told.split()[1]), rest


@pytest.fixture
def path() -> Iterator[Path]:
    """Return a path for the socket: it must not be long."""
    with tempfile.TemporaryDirectory(prefix="dibs-s-") as folder:
        yield Path(folder) / "status.sock"


def test_a_container_with_the_socket_sees_jobs_and_changes_nothing(tmp_path: Path, path: Path) -> None:
    bench = Bench(tmp_path, DIBS_STATUS_SOCKET=str(path))
    try:
        bench.start()
        assert path.stat().st_mode & 0o777 == 0o600
        job = bench.add("true", hold=True)
        status, told = asked_at(path, "GET", f"/v1/jobs/{job}")
        assert (status, json.loads(told)["state"]) == (200, "held")
        assert asked_at(path, "GET", "/metrics")[0] == 200
        assert asked_at(path, "POST", f"/v1/jobs/{job}/unhold", {})[0] == 403
        assert asked_at(path, "POST", "/v1/jobs", {"command": "touch x", "cwd": str(tmp_path)})[0] == 403
        assert asked_at(path, "PATCH", f"/v1/jobs/{job}", {"name": "x"})[0] == 403
        assert asked_at(path, "GET", f"/v1/jobs/{job}/log")[0] == 403
        assert asked_at(path, "POST", "/v1/session/codes")[0] == 403
        assert asked_at(path, "POST", "/v1/daemon/stop", {})[0] == 403
        assert asked_at(path, "GET", "/")[0] == 403
        assert (bench.job(job)["state"], len(bench.jobs())) == ("held", 1)
        # A killed daemon leaves it behind, and the next one opens it again.
        bench.kill()
        assert path.is_socket()
        bench.start()
        assert asked_at(path, "GET", "/v1/daemon")[0] == 200
        bench.stop()
        wait_for(lambda: not path.exists())
    finally:
        bench.close()


def test_an_existing_file_at_its_path_is_kept_and_does_not_stop_the_daemon(tmp_path: Path, path: Path) -> None:
    path.write_text("mine")
    bench = Bench(tmp_path, DIBS_STATUS_SOCKET=str(path))
    try:
        bench.start()
        assert bench.client.get("/v1/daemon")["running"]
        assert f"status_socket {path} cannot be opened" in paths.daemon_log(bench.home).read_text()
    finally:
        bench.close()
    assert path.read_text() == "mine"


def test_only_our_own_dead_socket_is_removed(path: Path) -> None:
    server.remove_dead(path)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    with pytest.raises(FileExistsError, match="another daemon"):
        server.remove_dead(path)
    listening.close()
    server.remove_dead(path)
    assert not os.path.lexists(path)
    path.symlink_to("elsewhere")
    with pytest.raises(FileExistsError, match="another file is in its place"):
        server.remove_dead(path)
