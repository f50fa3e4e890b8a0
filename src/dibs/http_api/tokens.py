"""What lets a browser in: the one token, the codes that are exchanged for it, and the file that keeps it.

The token is a secret of 256 bits in a file that only its owner can read; whoever has a code gets it, once. Codes live
in memory alone. Nothing here knows HTTP, and nothing of it is ever logged.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from dibs.errors import MachineError

#: Seconds for which a code is good: enough to open a tunnel on another computer and to type a password there.
CODE_FOR_S = 600.0
#: Codes that wait for their use at once; the oldest goes first.
MOST_CODES = 20
#: Wrong tokens or codes from one side until its wrong ones are answered late, and by how many seconds.
PATIENT_UNTIL = 10
DELAY_S = 1.0
#: Seconds after which the wrong ones of a side are forgotten, and how many sides are remembered.
FORGET_AFTER_S = 60.0
MOST_SIDES = 1000


@dataclass(frozen=True, slots=True)
class Kept:
    """What the file says: the token, and the port on which a browser was last let in; None: none is open."""

    token: str
    port: int | None = None


class Tokens:
    """The token and the codes of one daemon. `now` is any clock that never goes back, in seconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = _read(path)
        #: When each code ends, oldest first.
        self._codes: dict[str, float] = {}

    @property
    def token(self) -> str | None:
        """Return the token; None before the first code is made."""
        return self._kept.token or None

    @property
    def port(self) -> int | None:
        """Return the port that was open; None: none was."""
        return self._kept.port

    def remember(self, port: int | None) -> None:
        """Keep the port, so that the next daemon opens it again."""
        self._keep(Kept(self._kept.token, port))

    def rotate(self) -> None:
        """Make a new token: the old one and all codes end now."""
        self._codes.clear()
        self._keep(Kept(secrets.token_urlsafe(32), self._kept.port))

    def new_code(self, now: float) -> str:
        """Return a code that can be exchanged once."""
        if not self._kept.token:
            self.rotate()
        self._codes = {code: end for code, end in self._codes.items() if end > now}
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(24)
        self._codes[code] = now + CODE_FOR_S
        return code

    def exchange(self, said: str, now: float) -> str | None:
        """Return the token for a code, which is used up by it; None if it is no code, or not any more."""
        found = [code for code in self._codes if is_same(code, said)]
        ends = [self._codes.pop(code) for code in found]
        return self._kept.token if ends and ends[0] > now else None

    def _keep(self, kept: Kept) -> None:
        text = json.dumps({"token": kept.token, "port": kept.port}).encode()
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
        self._kept = kept


class Failures:
    """How often each side has come with something wrong; the right token never waits, whoever else guesses."""

    def __init__(self) -> None:
        #: Number and time of the last one, by side.
        self._sides: dict[str, tuple[int, float]] = {}

    def delay_s(self, side: str, now: float) -> float:
        """Count one more failure of a side; return how long its answer is to be kept back."""
        count, at = self._sides.pop(side, (0, now))
        count = count + 1 if now - at < FORGET_AFTER_S else 1
        # Taken out and put in again: the first is the one that was quiet for longest.
        self._sides[side] = count, now
        if len(self._sides) > MOST_SIDES:
            del self._sides[next(iter(self._sides))]
        return DELAY_S if count > PATIENT_UNTIL else 0.0


def is_same(secret: str, said: str) -> bool:
    """Compare what somebody said with a secret, in a time that tells nothing about it."""
    return hmac.compare_digest(secret.encode(), said.encode("utf-8", "surrogatepass"))


def _read(path: Path) -> Kept:
    """Return what was kept; a file that is not there, not ours alone or broken counts as none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                return Kept("")
            told = json.loads(file.read(4096))
        token, port = told["token"], told["port"]
    except (OSError, ValueError, KeyError, TypeError):
        return Kept("")
    is_port = type(port) is int and 0 < port < 65536
    return Kept(token, port if is_port else None) if isinstance(token, str) and len(token) >= 43 else Kept("")
