"""Child processes that talk to the driver; they have a deadline and are never waited for.

A child that does not answer in time is killed and abandoned: inside the driver it may ignore the signal for hours.
While it hangs, no child asks about that card again. `probe` interprets the answers.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dibs import errors

#: Seconds after which a card that hung is queried again, if the child that hung is gone.
RETRY_S = 60.0

#: Answers of one child, about a minute's worth. Only a new process notices a replaced driver library or additional
#: cards; this also limits what a library prints or leaks.
MOST_ANSWERS = 12

#: Maximum bytes of one answer.
LONGEST = 8 * 2**20

#: The position of a child before it queries the first card.
BEGINNING = ""


@dataclass
class Answer:
    """The answer of one child, up to its end or until it hung or died."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    #: What it queried last.
    at: str = BEGINNING
    #: Why the answer is incomplete; None if it is complete.
    trouble: str | None = None


@dataclass(frozen=True)
class _Stuck:
    """An abandoned child."""

    child: subprocess.Popen[bytes]
    since: float
    why: str


class DriverLink:
    """Asks child processes of one kind; starts a new one after abandoning the last. For one thread."""

    def __init__(self, command: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._command = tuple(command)
        self._clock = clock
        self._child: subprocess.Popen[bytes] | None = None
        self._complaints = -1
        self._answers = 0
        self._stuck: dict[str, _Stuck] = {}

    @property
    def avoided(self) -> dict[str, str]:
        """Return what is not queried now because a call about it hung or crashed, with the reason."""
        for at, stuck in list(self._stuck.items()):
            is_due = at == BEGINNING or self._clock() - stuck.since >= RETRY_S
            if stuck.child.poll() is not None and is_due:
                del self._stuck[at]
        return {at: stuck.why for at, stuck in self._stuck.items()}

    @property
    def stuck(self) -> int:
        """Return how many abandoned children still exist."""
        return sum(stuck.child.poll() is None for stuck in self._stuck.values())

    def ask(self, skip: Sequence[str], deadline_s: float, first_deadline_s: float) -> Answer:
        """Return the answer of a child; raise MachineError if none can be started.

        The deadline is per line, because a slow machine is not a hanging one: `deadline_s`, or `first_deadline_s` for
        the first line of a new child.
        """
        if self._child is None or self._child.poll() is not None or self._answers >= MOST_ANSWERS:
            self.close()
            self._child = self._begin()
        self._answers += 1
        answer = Answer()
        try:
            assert self._child.stdin is not None
            self._child.stdin.write(",".join(skip).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            answer.trouble = self._death()
        else:
            self._hear(answer, deadline_s, first_deadline_s if self._answers == 1 else deadline_s)
        if answer.trouble is not None:
            self._give_up(answer.at, answer.trouble)
        return answer

    def _begin(self) -> subprocess.Popen[bytes]:
        self._answers = 0
        # A file in memory: a pipe without a reader would fill up and block the child.
        self._complaints = os.memfd_create("complaints", os.MFD_CLOEXEC)
        try:
            # A session of its own, so that Ctrl-C at a terminal does not reach it. All other descriptors are closed, so
            # that a child stuck in the driver cannot hold a lease.
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                start_new_session=True,
            )
        except OSError as error:
            raise errors.MachineError(f"cannot read the GPUs: {error.strerror} ({self._command[0]}).") from error

    def _hear(self, answer: Answer, deadline_s: float, patience_s: float) -> None:
        """Read lines until the end of the answer; `patience_s` applies to the first."""
        assert self._child is not None
        assert self._child.stdout is not None
        fd, rest, size = self._child.stdout.fileno(), b"", 0
        while True:
            if not select.select([fd], [], [], patience_s)[0]:
                answer.trouble = f"did not answer for {patience_s:g} s"
                return
            chunk, patience_s = os.read(fd, 2**16), deadline_s
            size += len(chunk)
            if not chunk or size > LONGEST:
                answer.trouble = self._death() if not chunk else "sent an answer that is too long"
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if self._take(answer, line):
                    return

    def _take(self, answer: Answer, raw: bytes) -> bool:
        """Add one line to the answer; return whether it was the last."""
        try:
            line = json.loads(raw)
            if not isinstance(line, dict):
                raise ValueError(raw)
        except ValueError:
            start = raw[:60].decode("utf-8", "replace")
            answer.trouble = f"sent an unexpected answer: {start!r}"
            return True
        if "at" in line:
            answer.at = str(line["at"])
        answer.lines.append(line)
        return "end" in line

    def _death(self) -> str:
        """Describe how a child ended unexpectedly."""
        assert self._child is not None
        try:
            code = self._child.wait(1.0)
        except subprocess.TimeoutExpired:
            return "closed its output"
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        size = os.fstat(self._complaints).st_size
        last = os.pread(self._complaints, 4096, max(0, size - 4096)).decode("utf-8", "replace")
        last = last.strip().rpartition("\n")[2]
        return how + (f" ({last})" if last else "")

    def _give_up(self, at: str, why: str) -> None:
        """Kill a child without waiting: inside the driver it may ignore the signal for hours."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            _close(child)
            self._stuck[at] = _Stuck(child, self._clock(), why)
        self._forget_complaints()

    def close(self) -> None:
        """Close the child's pipes, which ends it. If it hangs, kill it."""
        child, self._child = self._child, None
        if child is not None:
            _close(child)
            try:
                child.wait(1.0)
            except subprocess.TimeoutExpired:
                child.kill()
                self._stuck[f"close {child.pid}"] = _Stuck(child, self._clock(), "did not end")
        self._forget_complaints()

    def _forget_complaints(self) -> None:
        if self._complaints >= 0:
            os.close(self._complaints)
            self._complaints = -1


def _close(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue
