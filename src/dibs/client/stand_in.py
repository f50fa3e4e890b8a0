"""A client that reads the database itself while the daemon is stopped or hangs, and says so.

The work is done by a process of its own (`daemon.stand_in`), which answers the same requests as the daemon: so every
verb that only reads works as usual.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dibs.client.connection import ANSWER_FOR_S, Client, Query
from dibs.client.daemon_process import Unresponsive
from dibs.errors import MachineError
from dibs.system import paths


class StandIn(Client):
    """The client of a process that reads the database; the process ends with ours."""

    def __init__(self, home: Path, environ: Mapping[str, str], pid: int) -> None:
        super().__init__(home, environ)
        self.may_start = False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening, open(os.devnull, "r+b") as nothing:
            # An abstract name that the kernel chooses. The process refuses other users.
            listening.bind("")
            listening.listen()
            self._address = listening.getsockname()
            words = [sys.executable, "-P", "-m", "dibs.daemon.stand_in", str(pid), str(os.getpid())]
            sources = [nothing.fileno()] * 3 + [listening.fileno()]
            actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(sources)]
            os.posix_spawn(words[0], words, environ, file_actions=actions)

    def connect(self, patience_s: float | None = ANSWER_FOR_S) -> socket.socket | None:
        """Return a connection to the process; None if it has ended."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(patience_s)
        try:
            sock.connect(self._address)
        except ConnectionRefusedError:
            sock.close()
            return None
        return sock


class ReadingClient(Client):
    """A client for verbs that only read: it turns to the database if the daemon cannot answer."""

    _stand_in: StandIn | None = None

    def get(self, path: str, query: Query = (), *, patience_s: float = ANSWER_FOR_S, is_poll: bool = False) -> Any:
        """Return the answer of the daemon, or of the database."""
        if self._stand_in is None:
            try:
                return super().get(path, query, patience_s=patience_s, is_poll=is_poll)
            except Unresponsive as error:
                return self._begin(error, path, query)
        return self._stand_in.get(path, query, is_poll=True)

    def _begin(self, error: Unresponsive, path: str, query: Query) -> Any:
        """Ask the database, and tell the user once that it is not the daemon that answers."""
        stand_in = StandIn(self.home, self.environ, error.pid)
        try:
            answer = stand_in.get(path, query, is_poll=True)
        except MachineError:
            # The database cannot be read either, or has another version: the daemon is the matter to care for.
            raise error from None
        self._stand_in = stand_in
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(_changed_at(self.home)))
        print(f"dibs: the daemon (pid {error.pid}) {error.what}; showing the database as of {at}.", file=sys.stderr)
        return answer


def _changed_at(home: Path) -> float:
    """Return when the database last changed."""
    database = paths.database(home)
    files = (database, database.with_name(f"{database.name}-wal"))
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def connect(environ: Mapping[str, str]) -> ReadingClient:
    """Return a client of this user's daemon for a verb that only reads."""
    home = paths.home(environ)
    return ReadingClient(home.path, environ, home.note)
