"""The thin client of verbs that ask or tell and end: a process that has the command line loaded runs them.

It passes its words, folder, environment and standard streams to the command server (`cli.command_server`) and returns
the exit code. If none listens, or it does not accept, the full command line runs in this process instead.

Lean.
"""

import os
import sys

from dibs.cli import fast_add
from dibs.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Verbs that print an answer and end. Others follow a job, start a daemon or examine this very process.
VERBS = frozenset(
    (
        "add", "map", "sweep", "status", "show", "why", "gpus", "log", "cancel", "kill", "retry", "hold",
        "unhold", "pause", "resume", "move", "edit", "results", "config", "clean", "version", "help",
    )
)  # fmt: skip
#: Files that only this process can open, such as those of `<(...)`.
OWN_FILES = ("/dev/fd/", "/dev/std", "/dev/tty", "/proc/self/")
#: Words with which a verb of the list stays: it follows, opens an editor, or prints a traceback.
STAYS = frozenset(("-f", "--follow", "-w", "--watch", "--debug"))
#: As in `paths.commands_socket`, which is too expensive to import.
SOCKET = "commands.sock"
#: Seconds until the server has accepted; a busy machine is no reason to wait for long.
ACCEPT_FOR_S = 1.0
ACCEPTED = b"+"
#: Standard streams that are passed on.
STREAMS = (0, 1, 2)


def main() -> None:
    """Run the command line of this process in the command server and exit, if that is possible; else return."""
    code = run(sys.argv[1:], os.environ)
    if code is not None:
        os._exit(code)


def is_quick(words: list[str]) -> bool:
    """Tell whether a command line asks or tells, and ends."""
    verb, rest = (words[0], words[1:]) if words else ("status", [])
    if verb not in VERBS or STAYS & set(rest) or any(word[:2] in ("-f", "-w") for word in rest):
        return False
    if any(name in word for word in rest for name in OWN_FILES):
        return False
    # Without options `dibs edit` opens an editor, as `dibs config edit` does.
    return "edit" not in (verb, *rest[:1]) or (verb == "edit" and any(word[:1] == "-" for word in rest))


def run(words: list[str], environ: "Mapping[str, str]") -> int | None:
    """Run a command line in the command server; return its exit code, or None if the server did not accept it."""
    if not is_quick(words) or None in (sys.stdin, sys.stdout, sys.stderr):
        return None
    if "-" in words and sys.stdin.isatty():
        # Job control of the terminal must apply to who reads from it.
        return None
    import _socket

    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.settimeout(ACCEPT_FOR_S)
    try:
        path = os.path.join(os.path.dirname(fast_add.socket_path(environ)), SOCKET)
        server.connect(path)
        body = fast_add.request(words, environ, identity=fast_add.packed(identity())).encode()
        rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in STREAMS)
        header = len(body).to_bytes(8, "big")
        server.sendmsg([header], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        server.sendall(body)
        if server.recv(1) != ACCEPTED:
            raise ValueError
    except (OSError, ValueError):
        server.close()
        return None
    # From here on the command runs there: it must not run a second time.
    server.settimeout(None)
    code = server.recv(1)
    if not code:
        print("dibs: the command server ended before the command did; its outcome is unknown.", file=sys.stderr)
        return 125
    return code[0]


def identity() -> list[str]:
    """Return what must be the same in client and server: the release, its files, the interpreter, the encodings."""
    encodings = [f"{stream.encoding} {stream.errors}" for stream in (sys.stdin, sys.stdout, sys.stderr)]
    return [__version__, os.path.dirname(__file__), sys.executable, *encodings]
