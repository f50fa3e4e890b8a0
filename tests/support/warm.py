"""A program: one interpreter that has imported all of dibs, and forks a process for each request of `forking`.

Such a process has its own arguments, environment, folder, streams and session, runs the same function as the real
program, and exits with its own code; only the imports are shared. What Python itself reads at its start (`PYTHON...`,
an encoding) is that of this interpreter, so tests about those start a real one.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import io
import json
import os
import selectors
import signal
import socket
import struct
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from aiohttp.web import UrlDispatcher

from dibs.cli import fast_add
from dibs.cli import main as cli
from dibs.daemon import main as daemon
from dibs.http_api.routes import ROUTES
from dibs.store import database
from dibs_compat.gpupeasy import commands as gpupeasy
from dibs_compat.schedule import sch, schedule
from simple_gpu_scheduler import hypersearch, scheduler

#: Most descriptors with one request.
MOST_FDS = 16
#: The first answer to a request: the pid, with a pidfd; or 0, when there is no process.
BORN = struct.Struct("!i")
#: The second answer: the exit code, negative for a signal.
DIED = struct.Struct("!i")
#: Imported by functions when they are called.
LATER = (
    "dibs.http_api.server",
    "yaml",
    *(f"rich.{name}" for name in ("cells", "console", "progress", "table", "text")),
)


def dibs() -> int:
    """Run as `python -m dibs`."""
    fast_add.main()
    return cli.main()


#: Every program that can be requested.
PROGRAMS: dict[str, Callable[[], object]] = {
    "dibs": dibs,
    "daemon": daemon.main,
    "schedule": schedule.main,
    "sch": sch.main,
    "gpupeasy-server": gpupeasy.server,
    "gpupeasy-gui": gpupeasy.page,
    "simple_gpu_scheduler": scheduler.main,
    "simple_hypersearch": hypersearch.generate_commands,
}


def warm_up() -> None:
    """Import everything the programs may need."""
    for verb in cli.VERBS:
        cli.load(verb)
    for name in LATER:
        import_module(name)
    # What a process computes once: the schema of a new queue, and the patterns of addresses, which `re` keeps.
    database.final_schema()
    UrlDispatcher().add_routes(route.definition() for route in ROUTES)
    # Otherwise each child copies pages that it only reads.
    gc.freeze()


def serve(asking: socket.socket) -> None:
    """Fork for each request, and report the start and the end to its client, until there are no more clients."""
    #: The client to notify of the end of a child, by the child's pidfd.
    children: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as waiting:
        waiting.register(asking, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fd in children:
                    waiting.unregister(key.fd)
                    report_exit(key.fd, children.pop(key.fd))
                elif (request := receive(asking)) is None:
                    end(children)
                    return
                elif (pidfd := fork_child(*request)) is not None:
                    children[pidfd] = request[1]
                    waiting.register(pidfd, selectors.EVENT_READ)


def receive(asking: socket.socket) -> tuple[dict[str, Any], socket.socket, list[int]] | None:
    """Return a request, its client, and its descriptors; None when there are no more clients."""
    word, fds, _, _ = socket.recv_fds(asking, 1, MOST_FDS)
    if not word:
        return None
    text, asker, *ends = fds
    with open(text, "rb") as file:
        return json.loads(file.read()), socket.socket(fileno=asker), ends


def fork_child(request: dict[str, Any], asker: socket.socket, ends: Sequence[int]) -> int | None:
    """Fork the requested process; return its pidfd."""
    try:
        pid = os.fork() or become(request, ends)
    except OSError as error:
        tell(asker, BORN.pack(0) + str(error).encode(), ())
        asker.close()
        return None
    finally:
        for fd in ends:
            os.close(fd)
    # A child that has already exited stays until `report_exit`: this is it and no other process.
    pidfd = os.pidfd_open(pid)
    tell(asker, BORN.pack(pid), (pidfd,))
    return pidfd


def report_exit(pidfd: int, asker: socket.socket) -> None:
    """Report how a child ended. Until then it keeps its pid."""
    found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    assert found is not None
    tell(asker, DIED.pack(found.si_status if found.si_code == os.CLD_EXITED else -found.si_status), ())
    asker.close()
    os.close(pidfd)


def tell(asker: socket.socket, word: bytes, fds: Sequence[int]) -> None:
    """Answer a client that may have gone."""
    try:
        socket.send_fds(asker, [word], fds)
    except (BrokenPipeError, ConnectionResetError):
        pass


def end(children: dict[int, socket.socket]) -> None:
    """Leave nothing behind."""
    for pidfd, asker in children.items():
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        report_exit(pidfd, asker)


def become(request: dict[str, Any], ends: Sequence[int]) -> NoReturn:
    """Become the requested process, and exit with its code."""
    code = 1
    try:
        _take_place(request, ends)
        program = request["program"]
        if program is None:
            os.execvpe(request["words"][0], request["words"], os.environ)
        sys.argv = [str(Path(sys.executable).with_name(program)), *request["words"]]
        code = _exit_code(PROGRAMS[program]())
    except SystemExit as error:
        code = _exit_code(error.code)
    except KeyboardInterrupt:
        # As Python does, so that the parent sees the signal.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - whatever it is, it ends this process and not the loop above
        traceback.print_exc()
    finally:
        _leave(code)


def _take_place(request: dict[str, Any], ends: Sequence[int]) -> None:
    if request["has_session"]:
        os.setsid()
    # First out of the way of each other, then to their numbers; nothing else stays open.
    high = [fcntl.fcntl(end, fcntl.F_DUPFD, 3 + MOST_FDS) for end in ends]
    for number, end in enumerate(high):
        os.dup2(end, number)
    os.closerange(len(high), os.sysconf("SC_OPEN_MAX"))
    if request["terminal"] is not None:
        fcntl.ioctl(request["terminal"], termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    # In these two locales Python passes on bytes that are not UTF-8.
    lenient = "surrogateescape" if os.environ.get("LANG", "C") in ("C", "C.UTF-8") else "strict"
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), "utf-8", lenient)
    for number, name, errors in ((1, "stdout", lenient), (2, "stderr", "backslashreplace")):
        plain = io.BufferedWriter(io.FileIO(number, "w"))
        is_lines = number == 2 or os.isatty(number)
        setattr(sys, name, io.TextIOWrapper(plain, "utf-8", errors, line_buffering=is_lines))


def _exit_code(said: object) -> int:
    """Return what `sys.exit` makes of it."""
    if said is None or isinstance(said, int):
        return int(said or 0) & 0xFF
    print(said, file=sys.stderr)
    return 1


def _leave(code: int) -> NoReturn:
    """Exit like an interpreter, but without its teardown, which costs as much as many a command line."""
    try:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        # As Python does when it cannot report any more.
        code = 120
    finally:
        os._exit(code)


if __name__ == "__main__":
    warm_up()
    serve(socket.socket(fileno=int(sys.argv[1])))
