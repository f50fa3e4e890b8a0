"""The browser token, the one-time codes that are exchanged for it, and the file that stores it.

The token is a 256-bit secret in a file that only its owner can read. A code yields it once; codes exist only in
memory. Nothing here depends on HTTP, and nothing is ever logged.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from pathlib import Path

from dibs.errors import MachineError

#: Seconds until a code expires: enough to open a tunnel from another computer and type a password there.
CODE_FOR_S = 600.0
#: The most unused codes; the oldest is dropped first.
MOST_CODES = 20
#: Failed attempts of one client before further failures are answered with a delay, and the delay in seconds.
PATIENT_UNTIL = 10
DELAY_S = 1.0
#: Seconds after which the failures of a client are forgotten, and the most clients to remember.
FORGET_AFTER_S = 60.0
MOST_SIDES = 1000


class Tokens:
    """The token and the codes of one daemon. `now` is a monotonic clock in seconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: The token, None before the first code is created; and the port that was last open, None if none was.
        self.token, self.port = _read(path)
        #: When each code expires, oldest first.
        self._codes: dict[str, float] = {}

    def remember(self, port: int | None) -> None:
        """Store the port, so that the next daemon opens it again."""
        self._keep(self.token, port)

    def rotate(self) -> None:
        """Replace the token; the old one and all codes become invalid."""
        self._codes.clear()
        self._keep(secrets.token_urlsafe(32), self.port)

    def new_code(self, now: float) -> str:
        """Return a new code that can be exchanged once."""
        if self.token is None:
            self.rotate()
        self._codes = {code: end for code, end in self._codes.items() if end > now}
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(24)
        self._codes[code] = now + CODE_FOR_S
        return code

    def exchange(self, said: str, now: float) -> str | None:
        """Return the token for a code and invalidate the code; None if the code is wrong or expired."""
        found = [code for code in self._codes if is_same(code, said)]
        ends = [self._codes.pop(code) for code in found]
        return self.token if ends and ends[0] > now else None

    def _keep(self, token: str | None, port: int | None) -> None:
        text = json.dumps({"token": token, "port": port}).encode()
        temporary = f"{self._path}.{os.getpid()}"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                os.fchmod(fd, 0o600)
                file.write(text)
                file.flush()
                os.fsync(fd)
            os.replace(temporary, self._path)
        except OSError as error:
            raise MachineError(f"cannot write {self._path}: {error.strerror}.") from error
        self.token, self.port = token, port


class Failures:
    """Counts failed attempts per client. Only failures are delayed: guesses by others never slow down a valid token."""

    def __init__(self) -> None:
        #: The number of failures and the time of the last one, by client.
        self._sides: dict[str, tuple[int, float]] = {}

    def delay_s(self, side: str, now: float) -> float:
        """Count a failure of a client; return by how many seconds to delay the answer."""
        count, at = self._sides.pop(side, (0, now))
        count = count + 1 if now - at < FORGET_AFTER_S else 1
        # Removed and inserted again, so that the first entry is the least recent one.
        self._sides[side] = count, now
        if len(self._sides) > MOST_SIDES:
            del self._sides[next(iter(self._sides))]
        return DELAY_S if count > PATIENT_UNTIL else 0.0


def is_same(secret: str, said: str) -> bool:
    """Compare a string with a secret in constant time."""
    return hmac.compare_digest(secret.encode(), said.encode("utf-8", "surrogatepass"))


def _read(path: Path) -> tuple[str | None, int | None]:
    """Return the stored token and port; a missing or broken file, or one that others can access, counts as empty."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                return None, None
            told = json.loads(file.read(4096))
        token, port = told["token"], told["port"]
    except (OSError, ValueError, KeyError, TypeError):
        return None, None
    if not isinstance(token, str) or len(token) < 43:
        return None, None
    return token, port if type(port) is int and 0 < port < 65536 else None
