"""The port for browsers and other users of the machine: a stolen token is useless; an ssh tunnel works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import people
from bench import PATIENCE_S
from people import Person

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making two unix users needs root")

#: Sends requests with a token, on TCP and on the socket, in four ways each; prints the result of each.
THIEF = """
import http.client, json, socket, sys
port, path, token = int(sys.argv[1]), sys.argv[2], sys.stdin.read().strip()

def on_socket():
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    return sock

def ask(connect, method, target, headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        if connect is not None:
            connection.sock = connect()
        connection.request(method, target, headers={"Host": f"127.0.0.1:{port}", **headers})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except OSError as error:
        return type(error).__name__
    finally:
        connection.close()

key = {"Authorization": f"Bearer {token}"}
asked = [("GET", "/v1/jobs", key), ("GET", "/", {}), ("GET", "/static/app.js", {}), ("POST", "/v1/session", {})]
found = {"tcp": [ask(None, *each) for each in asked], "unix": [ask(on_socket, *each) for each in asked]}
# Ask and hang up at once: the kernel then names no owner of that end.
for _ in range(20):
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(f"POST /v1/queue HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nAuthorization: Bearer {token}\\r\\n"
                     "Content-Type: application/json\\r\\nContent-Length: 15\\r\\n\\r\\n{\\"paused\\": true}".encode())
print(json.dumps(found))
"""


@pytest.fixture
def pair() -> Iterator[tuple[Person, Person]]:
    """Two users, each with a separate queue."""
    with people.shared_machine() as machine:
        yield machine.pair("fake:1")


def steal(person: Person | None, told: dict[str, str], token: str, python: Path) -> dict[str, list[object]]:
    """Let another user, or root, send requests with a token."""
    who = {"user": person.uid, "group": person.gid, "extra_groups": []} if person else {}
    # On its stdin: everybody can read the arguments of a command.
    done = subprocess.run(
        [python, "-c", THIEF, str(told["port"]), told["socket"]],
        input=token, text=True, capture_output=True, timeout=PATIENCE_S, cwd="/", **who,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_another_user_with_a_stolen_token_gets_nothing(pair: tuple[Person, Person]) -> None:
    ann, ben = pair
    told = ann.json("web")
    token = json.loads((Path(ann.environ["DIBS_HOME"]) / "web.json").read_text())["token"]
    assert steal(ben, told, token, ann.python) == {"tcp": [403] * 4, "unix": ["PermissionError"] * 4}
    # No request sent while hanging up was executed either.
    assert ann.json("status")["queue"]["paused"] is False
    hers = steal(ann, told, token, ann.python)
    assert hers["tcp"] == hers["unix"] == [200, 200, 200, 400]


def test_root_is_admitted_with_the_token(pair: tuple[Person, Person]) -> None:
    ann, _ = pair
    told = ann.json("web")
    token = json.loads((Path(ann.environ["DIBS_HOME"]) / "web.json").read_text())["token"]
    assert steal(None, told, token, Path(sys.executable))["tcp"] == [200, 200, 200, 400]
    assert steal(None, told, "x" * 43, Path(sys.executable))["tcp"] == [401, 200, 200, 400]


def test_the_installed_package_has_all_files_of_the_page() -> None:
    source = people.ROOT / "src" / "dibs" / "web"
    (installed,) = people.shared_environment().glob("lib/python*/site-packages/dibs/web")
    wanted, found = ({path.relative_to(top) for path in top.rglob("*")} for top in (source, installed))
    assert Path("index.html") in wanted
    assert wanted - found == set()
