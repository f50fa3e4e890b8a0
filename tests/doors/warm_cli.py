"""A program: one interpreter that has imported the whole command line, and forks for each line that `typist` types."""

from __future__ import annotations

import fcntl
import gc
import io
import json
import os
import socket
import struct
import sys
import termios
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from dibs import cli

#: Of the request that follows it; with it come stdin, stdout and stderr.
LENGTH = struct.Struct("!I")
#: The answer: the exit code, 128 + n for signal n.
CODE = struct.Struct("!i")
#: Exit code of a command line that raised what no command line should.
ESCAPED = 70


def exactly(sock: socket.socket, size: int) -> bytes:
    """Read so many bytes."""
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def serve(sock: socket.socket) -> None:
    """Fork for each command line, until nobody asks any more."""
    while True:
        head, ends, _, _ = socket.recv_fds(sock, LENGTH.size, 3)
        if not head:
            return
        request = json.loads(exactly(sock, LENGTH.unpack(head)[0]))
        pid = os.fork()
        if pid == 0:
            sock.close()
            become(request, ends)
        for end in ends:
            os.close(end)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        sock.sendall(CODE.pack(128 - code if code < 0 else code))


def become(request: dict[str, Any], ends: Sequence[int]) -> NoReturn:
    """Be the process of one command line, and end with its code."""
    code = ESCAPED
    try:
        os.setsid()
        for number, end in enumerate(ends):
            os.dup2(end, number)
        os.closerange(3, 64)
        if request["is_terminal"]:
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)
        os.chdir(str(request["folder"]))
        os.environ.clear()
        os.environ.update(request["environ"])
        sys.argv = ["dibs", *request["words"]]
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), "utf-8")
        for number, name in ((1, "stdout"), (2, "stderr")):
            plain = io.BufferedWriter(io.FileIO(number, "w"))
            setattr(sys, name, io.TextIOWrapper(plain, "utf-8", line_buffering=number == 2 or os.isatty(number)))
        code = cli.main()
    except BaseException:  # noqa: BLE001 - whatever it is, it ends this process and not the loop above
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def warm_up() -> None:
    """Import all that a command line may need."""
    for name in (*cli.VERBS.values(), "rich.console", "rich.table", "rich.text", "rich.cells", "rich.progress"):
        import_module(name)
    # Otherwise each child copies what it only looks at.
    gc.freeze()


if __name__ == "__main__":
    warm_up()
    serve(socket.socket(fileno=int(sys.argv[1])))
