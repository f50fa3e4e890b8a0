"""The fast path of `dibs add`: a simple command line to a daemon that listens, at the price of a bare interpreter.

It decides nothing by itself. What is not plainly simple is left to `dibs.cli`, which knows all the rules and says all
the errors; a test holds both to the same requests and the same outputs. Only modules that cost nothing are imported:
no `json`, no `socket`, no `re`.

Lean.
"""

from __future__ import annotations

import os
import sys

from dibs.model import environment_names
from dibs.system import commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket
    from collections.abc import Mapping

VERBS = ("add", "submit")
#: The options understood here, and the field of the request that each one fills.
OPTIONS = {
    "-g": "gpus", "--gpus": "gpus", "--priority": "priority", "-n": "name", "--name": "name", "-P": "project",
    "--project": "project", "-C": "cwd", "--chdir": "cwd", "--tag": "tags", "-e": "env", "--env": "env",
}  # fmt: skip
NUMBERS = ("gpus", "priority")
#: Variables of ours that may be set. Any other may hold a setting, and a wrong one is an error that is not said here.
KNOWN_VARIABLES = ("DIBS_HOME", "DIBS_DEVICES", "DIBS_LEASE_DIR", "DIBS_CPU_SLOTS")
SITE_CONFIG = "/etc/dibs/config.toml"
MACHINE_ID = "/etc/machine-id"
#: As in `places` and `client`, which cost too much to ask.
SOCKET_BYTES = 100
ANSWER_FOR_S = 60


class NotSimple(Exception):
    """The full command line must see to this one; nothing has been asked of the daemon."""


class Wish:
    """What was typed."""

    def __init__(self) -> None:
        self.plain: dict[str, int | str] = {}
        self.tags: list[str] = []
        self.env: dict[str, str] = {}
        self.words: list[str] = []


def main() -> None:
    """Do what this process was started for and end it, if that is simple; else return."""
    code = add(sys.argv, os.environ)
    if code is not None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                # Nobody reads it; the code says so already.
                pass
        # Nothing is left to be closed or joined, and taking down the interpreter costs as much as the request.
        os._exit(code)


def add(argv: list[str], environ: Mapping[str, str]) -> int | None:
    """Queue what `argv` says and return the exit code; None if that is left to the full command line."""
    if len(argv) < 3 or argv[1] not in VERBS or None in (sys.stdin, sys.stdout, sys.stderr):
        return None
    try:
        wish = parse(argv[2:])
        _check_settings(environ)
        body = request(wish, environ)
        path = socket_path(environ)
        _check_devices(os.path.dirname(path), environ)
        daemon = _connect(path)
    except (NotSimple, OSError, ValueError):
        return None
    # From here on the job may have been accepted: whatever happens is told, and nothing is tried again.
    try:
        return _tell(*_ask(daemon, body, environ))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001
        from dibs.cli import main as cli

        return cli.explain(error)
    finally:
        daemon.close()


def parse(words: list[str]) -> Wish:
    """Return what the options and the words of the command say."""
    wish = Wish()
    left = list(reversed(words))
    while left and left[-1].startswith("-"):
        word = left.pop()
        if word == "--":
            break
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if not equals and left:
            value = left.pop()
        if name not in OPTIONS or value.startswith("-") or not _is_text(value):
            raise NotSimple
        _fill(wish, OPTIONS[name], value)
    wish.words = left[::-1]
    # Variables before the command, stdin, and what looks like an option are for those who know more.
    if not left or not left[-1].strip() or "=" in left[-1] or left[-1].startswith("-"):
        raise NotSimple
    return wish


def _fill(wish: Wish, field: str, value: str) -> None:
    if field == "tags":
        wish.tags.append(value)
    elif field == "env":
        name, equals, given = value.partition("=")
        if not name or not equals or environment_names.is_own(name):
            raise NotSimple
        wish.env[name] = given
    elif field not in NUMBERS:
        wish.plain[field] = value
    elif _is_number(value):
        wish.plain[field] = int(value)
    else:
        raise NotSimple


def _is_text(text: str) -> bool:
    # What is not UTF-8 raises by itself.
    return bool(text.strip()) and len(text.encode()) <= commands.LONGEST_BYTES


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _check_settings(environ: Mapping[str, str]) -> None:
    """Leave every file of settings to those who can read it, and every variable that may be wrong."""
    unknown = [name for name in environ if name.startswith("DIBS_") and name not in KNOWN_VARIABLES]
    slots, folder = environ.get("DIBS_CPU_SLOTS", "1"), environ.get("DIBS_LEASE_DIR", "/")
    if unknown or not _is_number(slots) or int(slots) < 1 or not folder.startswith("/"):
        raise NotSimple
    for path in (SITE_CONFIG, f"{_base(environ, 'XDG_CONFIG_HOME', '.config')}/dibs/config.toml"):
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        raise NotSimple


def _base(environ: Mapping[str, str], name: str, default: str) -> str:
    """Return an XDG base folder, where the environment alone says which."""
    given, home = environ.get(name, ""), environ.get("HOME", "")
    if not given.startswith("/") and not home.startswith("/"):
        raise NotSimple
    return os.path.normpath(given if given.startswith("/") else f"{home}/{default}")


def socket_path(environ: Mapping[str, str]) -> str:
    """Return the daemon's socket as `places` would, in all but rare cases.

    On a network file system `places` chooses another folder, but then no daemon listens in this one.
    """
    home = environ.get("DIBS_HOME", "")
    if home and not home.startswith("/"):
        raise NotSimple
    if not home:
        home = f"{_base(environ, 'XDG_STATE_HOME', '.local/state')}/dibs/{_machine_id()}"
    path = f"{os.path.normpath(home)}/dibs.sock"
    if len(os.fsencode(path)) > SOCKET_BYTES:
        raise NotSimple
    return path


def _machine_id() -> str:
    fd = os.open(MACHINE_ID, os.O_RDONLY | os.O_CLOEXEC)
    try:
        word = os.read(fd, 64).decode("ascii").strip()
    finally:
        os.close(fd)
    if len(word) != 32 or not word.isalnum():
        raise NotSimple
    return word


def request(wish: Wish, environ: Mapping[str, str]) -> str:
    """Return the body that submits the command."""
    from binascii import b2a_base64

    words = wish.words
    chosen = wish.plain.get("cwd")
    cwd = os.path.realpath(str(chosen)) if chosen else os.getcwd()
    is_string = commands.is_string(words)
    path = wish.env.get("PATH") or environ.get("PATH", os.defpath)
    is_sound = all(len(word.encode()) <= commands.LONGEST_BYTES for word in (*words, cwd)) and os.path.isdir(cwd)
    if not is_sound or not (is_string or _is_plain(words, path, cwd)):
        raise NotSimple
    if commands.may_assign(words, cwd):
        raise NotSimple
    kept = {
        os.fsencode(name): os.fsencode(value) for name, value in environ.items() if not environment_names.is_own(name)
    }
    # It can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return _json(
        wish.plain
        | {"tags": wish.tags, "env": wish.env, "cwd": cwd, "umask": mask}
        | {"environ": b2a_base64(environment_names.pack(kept), newline=False).decode()}
        | ({"command": words[0]} if is_string else {"argv": words})
    )


def _is_plain(words: list[str], path: str, cwd: str) -> bool:
    """Tell whether words are a program and nothing that more must be said about: no script, builtin or shell."""
    first = words[0]
    if first in commands.BUILTINS or (len(words) == 1 and first in commands.INTERACTIVE):
        return False
    return commands.is_found(first, path, cwd) and not ("/" in first and _is_script(first))


def _is_script(path: str) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1) == b"#"
    finally:
        os.close(fd)


def _check_devices(home: str, environ: Mapping[str, str]) -> None:
    """Leave what the shell says about devices to those who say that jobs do not see it, unless they did."""
    chosen = os.fsencode(environment_names.chosen(environ))
    if not chosen:
        return
    fd = os.open(f"{home}/told.devices", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.read(fd, 65536) != chosen:
            raise NotSimple
    finally:
        os.close(fd)


def _json(value: object) -> str:
    from _json import encode_basestring_ascii as quoted

    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(name)}:{_json(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_json(each) for each in value) + "]"
    return quoted(value) if isinstance(value, str) else str(value)


def _connect(path: str) -> Socket:
    import _socket

    daemon = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    daemon.settimeout(ANSWER_FOR_S)
    try:
        daemon.connect(path)
    except OSError:
        daemon.close()
        raise
    return daemon


def _ask(daemon: Socket, body: str, environ: Mapping[str, str]) -> tuple[int, dict[str, list[str]], bytes]:
    """Send the request; return status, headers and body of the answer."""
    lines = ["POST /v1/jobs HTTP/1.1", "Host: dibs", "Connection: close", "Accept: text/plain"]
    devices = environ.get("DIBS_DEVICES")
    if devices is not None and devices.isprintable():
        lines.append(f"Dibs-Devices: {devices}")
    if sys.stderr.isatty():
        lines.append("Dibs-Receipt: wanted")
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", body]
    try:
        daemon.sendall("\r\n".join(lines).encode())
        return _read(daemon)
    except (TimeoutError, ConnectionError) as error:
        from dibs.client import connection

        raise connection.unanswered(error, ANSWER_FOR_S) from None


def _read(daemon: Socket) -> tuple[int, dict[str, list[str]], bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(daemon)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    headers: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers.setdefault(name.lower(), []).append(value.strip())
    while len(body) < int(headers["content-length"][0]):
        body += _more(daemon)
    return int(first.split()[1]), headers, body


def _more(daemon: Socket) -> bytes:
    data = daemon.recv(65536)
    if not data:
        raise ConnectionResetError
    return data


def _tell(status: int, headers: dict[str, list[str]], body: bytes) -> int:
    """Print the answer as `dibs.cli.add` does; return the exit code."""
    if status != 201:
        from dibs.client import connection

        raise connection.refusal(status, body)
    for note in headers.get("dibs-note", ()):
        print(f"dibs: {_shown(note)}", file=sys.stderr, flush=True)
    text = body.decode("ascii")
    print(text, end="", flush=True)
    for receipt in headers.get("dibs-receipt", ()):
        print(f"{_shown(receipt)}; dibs follow {text.strip()}", file=sys.stderr, flush=True)
    return 0


def _shown(quoted: str) -> str:
    """Return the text of a JSON string, fit for a terminal."""
    from _json import scanstring

    text, _ = scanstring(quoted, 1, True)
    if text.isprintable():
        return text
    from dibs.client import safe_text

    return safe_text.clean(text)
