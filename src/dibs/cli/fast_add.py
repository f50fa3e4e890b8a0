"""The thin client of `dibs add`: sends its words to the daemon, which parses them, and prints the answer.

With any options, it costs little more than a bare interpreter: `json`, `socket` and `re` are not imported. If no daemon
listens, or the daemon refuses, the full command line runs instead; a refusal has changed nothing.

Lean.
"""

import os
import sys

# Without `from __future__ import annotations`, which is one more module to load.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket
    from collections.abc import Iterable, Mapping

VERBS = ("add", "submit")
MACHINE_ID = "/etc/machine-id"
#: Copies from `system.paths` and `client.connection`, which are too expensive to import.
SOCKET_BYTES = 100
ANSWER_FOR_S = 60
#: Seconds after which an answer is late.
LOOK_AFTER_S = 1


def main() -> None:
    """Handle this process and exit if it is an `add` that the daemon accepts; else return."""
    code = add(sys.argv, os.environ)
    if code is not None:
        # All output is flushed, and finalizing the interpreter would cost as much as the request.
        os._exit(code)


def add(argv: list[str], environ: "Mapping[str, str]") -> int | None:
    """Queue the command of `argv` and return the exit code; None if the full command line must do it."""
    if len(argv) < 3 or argv[1] not in VERBS or None in (sys.stdin, sys.stdout, sys.stderr):
        return None
    import _socket

    daemon = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    daemon.settimeout(ANSWER_FOR_S)
    try:
        body = request(argv[2:], environ)
        daemon.connect(socket_path(environ))
        if _is_stopped(daemon):
            # It would queue the job later, when it is continued. The full command line says what is wrong.
            raise ValueError
    except (OSError, ValueError):
        daemon.close()
        return None
    # From here on the job may have been accepted: without a clear refusal, do not try again.
    try:
        status, answer = _ask(daemon, body, environ)
        return None if 400 <= status < 500 else _print(status, answer)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001
        from dibs.cli.main import explain

        return explain(error)
    finally:
        daemon.close()


def _is_stopped(daemon: "Socket") -> bool:
    """Return whether the process that listens is stopped, as `daemon_process.require_running` would find."""
    import _socket

    creds = daemon.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    try:
        with open(f"/proc/{int.from_bytes(creds[:4], sys.byteorder)}/stat", "rb", buffering=0) as file:
            return file.read(1024).rpartition(b")")[2].split()[0] in (b"T", b"t")
    except FileNotFoundError:
        # It is in another pid namespace.
        return False


def request(words: list[str], environ: "Mapping[str, str]", **more: object) -> str:
    """Return words and the facts of this process as JSON; `more` fields are JSON already."""
    root = os.stat("/")
    # The umask can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    fields = {
        "argv": packed(words),
        "environ": packed(f"{name}={value}" for name, value in environ.items()),
        "cwd": packed([os.getcwd()]),
        "file_system": f'"{os.readlink("/proc/self/ns/mnt")} {root.st_dev} {root.st_ino}"',
        "umask": mask,
        "is_terminal": "true" if sys.stderr.isatty() else "false",
        **more,
    }
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


def packed(words: "Iterable[str]") -> str:
    """Return words of any bytes as a JSON string with one character for each byte; a NUL follows each word."""
    encoded = [os.fsencode(word) for word in words]
    if any(b"\0" in word for word in encoded):
        raise ValueError
    # Loading the C module that escapes takes longer than escaping.
    joined = b"".join(word + b"\0" for word in encoded).decode("latin-1")
    joined = joined.replace("\\", "\\\\").replace('"', '\\"').replace("\0", "\\u0000")
    if not joined.isprintable():
        for code in range(1, ord(" ")):
            joined = joined.replace(chr(code), f"\\u{code:04x}")
    return f'"{joined}"'


def socket_path(environ: "Mapping[str, str]") -> str:
    """Return the daemon's socket as `system.paths` would, except in rare cases.

    On a network file system `system.paths` chooses another directory, but then no daemon listens in this one.
    """
    home = environ.get("DIBS_HOME", "")
    if not home:
        given, own = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
        state = given if given.startswith("/") else os.path.join(own, ".local/state")
        with open(MACHINE_ID, encoding="utf-8") as file:
            machine = file.read().strip()
        # Without a valid id, other rules apply.
        home = f"{state}/dibs/{machine}" if len(machine) == 32 and machine.isalnum() else ""
    path = f"{os.path.normpath(home)}/dibs.sock"
    if not path.startswith("/") or len(os.fsencode(path)) > SOCKET_BYTES:
        raise ValueError
    return path


def _ask(daemon: "Socket", body: str, environ: "Mapping[str, str]") -> tuple[int, bytes]:
    lines = ["POST /v1/add HTTP/1.1", "Host: dibs", "Connection: close"]
    devices = environ.get("DIBS_DEVICES")
    if devices is not None and devices.isprintable():
        lines.append(f"Dibs-Devices: {devices}")
    content = body.encode()
    lines += ["Content-Type: application/json", f"Content-Length: {len(content)}", "", ""]
    try:
        daemon.sendall("\r\n".join(lines).encode() + content)
        _wait(daemon)
        return _read(daemon)
    except (TimeoutError, ConnectionError) as error:
        from dibs.client import connection

        raise connection.unanswered(error, ANSWER_FOR_S) from None


def _wait(daemon: "Socket") -> None:
    """Wait until the answer begins; after a second, look at what keeps the daemon."""
    import _socket

    daemon.settimeout(LOOK_AFTER_S)
    try:
        daemon.recv(1, _socket.MSG_PEEK)
    except TimeoutError:
        from dibs.client import daemon_process

        daemon_process.wait_for_answer(daemon, ANSWER_FOR_S)
    daemon.settimeout(ANSWER_FOR_S)


def _read(daemon: "Socket") -> tuple[int, bytes]:
    # Do not read to the end of the stream: a daemon that closes without reading the request resets the connection.
    data = b""
    while True:
        head, end, answer = data.partition(b"\r\n\r\n")
        if end and len(answer) >= int(head.lower().partition(b"content-length:")[2].split()[0]):
            return int(head.split()[1]), answer
        more = daemon.recv(65536)
        if not more:
            raise ConnectionResetError
        data += more


def _print(status: int, answer: bytes) -> int:
    """Print the lines of an answer; each is the number of a stream and a JSON string."""
    if status != 201:
        from dibs.client import connection

        raise connection.refusal(status, answer)
    for line in answer.decode("ascii").splitlines():
        text = line[2:-1]
        if "\\" in text:
            from _json import scanstring

            text, _ = scanstring(line, 2, True)
        if line[0] == "1":
            print(text, flush=True)
        else:
            if not text.isprintable():
                from dibs.client import safe_text

                text = safe_text.clean(text)
            print(text, file=sys.stderr, flush=True)
    return 0
