"""The metrics of jobs, read from their files: reported values, and what expressions of `--metric` find in the log.

Files may be large and on a slow network: call this in a thread that may block; only the end of a log is read. An
expression may run forever and blocks all other threads of its process, so expressions run in a child process with a
deadline: it returns the last values first, then summaries of all values if time permits.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dibs.logs import reports, tails
from dibs.logs.reports import Numbers, Summary
from dibs.system import processes

#: Bytes at the end of a log in which numbers are searched.
LOG_BYTES = 4 * 1024 * 1024
#: Characters of a line that are searched: an expression may need quadratic time, or worse.
LONGEST_LINE = 4096
#: Bytes of memory: an expression may need more than the machine has.
MOST_MEMORY = 1024**3

#: Seconds for the last values of all logs, and then for the summaries.
DEADLINE_S = 60.0
SUMMARIES_FOR_S = 10.0
#: Seconds for the further lines of logs that are being written.
FOLLOW_FOR_S = 20.0

#: What expressions find in a log: the last values, and the summaries.
Printed = tuple[Numbers, dict[str, Summary]]

log = logging.getLogger("dibs.logs.numbers_child")


def search(
    logs: Sequence[str],
    metrics: Mapping[str, str],
    deadline_s: float = DEADLINE_S,
    summaries_for_s: float = SUMMARIES_FOR_S,
) -> list[Printed]:
    """Return what expressions find in each log; if they take too long, log an error and return less."""
    asked = {"logs": list(logs), "metrics": dict(metrics)}
    lines = _run(asked, len(logs), deadline_s + summaries_for_s, summaries_for_s)
    nothing: list[dict[str, Any]] = [{} for _ in logs]
    last, all_told, *_ = [*lines, nothing, nothing]
    return [
        (numbers, {name: tuple(one) for name, one in summaries.items()})
        for numbers, summaries in zip(last, all_told, strict=True)
    ]


def follow(
    logs: Mapping[str, int], metrics: Mapping[str, str], deadline_s: float = FOLLOW_FOR_S
) -> dict[str, tuple[int, list[Numbers]]]:
    """Return what expressions find in logs after a position: where to continue, and the numbers of each line.

    If they take too long, log an error and return less.
    """
    asked = {"follow": dict(logs), "metrics": dict(metrics)}
    return {path: (position, numbers) for path, position, numbers in _run(asked, len(logs), deadline_s)}


def _run(asked: Mapping[str, object], count: int, timeout_s: float, summaries_for_s: float = 0) -> list[Any]:
    """Run the child and return the lines that it completed in time."""
    about = [str(summaries_for_s), str(timeout_s), str(os.getpid())]
    words = [sys.executable, "-P", "-m", "dibs.logs.numbers_child", *about]
    given = json.dumps(asked).encode()
    try:
        told = subprocess.run(words, input=given, stdout=subprocess.PIPE, timeout=timeout_s, check=True).stdout
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        log.error("metrics of %s log(s) were not read: %s", count, error)
        told = error.stdout or b""
    return [json.loads(line) for line in told.splitlines(keepends=True) if line.endswith(b"\n")]


def main() -> None:
    """Act as the child: read JSON with `logs` and `metrics`, print a line of last values, then a line of summaries.

    With `follow` print for each log a line with its path, where to continue, and the numbers of its further lines.
    """
    limit(float(sys.argv[2]), int(sys.argv[3]))
    asked = json.load(sys.stdin)
    for path, position in asked.get("follow", {}).items():
        print(json.dumps([path, *following(path, position, asked["metrics"])]), flush=True)
    if "follow" in asked:
        return
    logs, metrics = asked["logs"], asked["metrics"]
    print(json.dumps([printed(tail(path), metrics) for path in logs]), flush=True)
    # The alarm ends this process; what it has already printed stays valid.
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
    print(json.dumps([summaries(tail(path), metrics) for path in logs]), flush=True)


def limit(timeout_s: float, parent: int) -> None:
    """Bound what an expression can take, and end with the daemon, which may be killed before its deadline."""
    processes.die_with(parent, signal.SIGKILL)
    cpu_s = math.ceil(timeout_s)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def printed(text: str, metrics: Mapping[str, str]) -> Numbers:
    """Return the last number that each expression finds in the lines of a text."""
    waiting = {name: re.compile(pattern) for name, pattern in metrics.items()}
    found: Numbers = {}
    # From the end: usually the last lines contain all of them.
    for line in reversed(text.splitlines()):
        for name, pattern in list(waiting.items()):
            number = _last(pattern, line[:LONGEST_LINE])
            if number is not None:
                found[name] = number if abs(number) <= reports.MOST else None
                del waiting[name]
        if not waiting:
            break
    return found


def summaries(text: str, metrics: Mapping[str, str]) -> dict[str, Summary]:
    """Return the summary of the numbers that each expression finds, at most one per line: the last."""
    patterns = {name: re.compile(pattern) for name, pattern in metrics.items()}
    found: dict[str, Summary] = {}
    for line in text.splitlines():
        for name, pattern in patterns.items():
            number = _last(pattern, line[:LONGEST_LINE])
            if number is not None and abs(number) <= reports.MOST:
                found[name] = reports.summed(found.get(name), number)
    return found


def following(path: str, position: int, metrics: Mapping[str, str]) -> tuple[int, list[Numbers]]:
    """Return where the last whole line of a log ends, and the numbers of each line after a position that has any."""
    patterns = {name: re.compile(pattern) for name, pattern in metrics.items()}
    try:
        with open(path, "rb") as log:
            log.seek(position)
            part = log.read(LOG_BYTES)
    except OSError:
        return position, []
    whole = part[: part.rfind(b"\n") + 1]
    if not whole and len(part) == LOG_BYTES:
        # One endless line: skip it.
        whole = part
    found = []
    for line in whole.decode(errors="replace").splitlines():
        each = {name: _last(pattern, line[:LONGEST_LINE]) for name, pattern in patterns.items()}
        numbers = {
            name: number if abs(number) <= reports.MOST else None for name, number in each.items() if number is not None
        }
        if numbers:
            found.append(numbers)
    return position + len(whole), found


def _last(pattern: re.Pattern[str], line: str) -> float | None:
    """Return the last number in a line; an expression may match text that is not a number."""
    last = None
    for match in pattern.finditer(line):
        try:
            last = float(match[1])
        except (TypeError, ValueError):
            continue
    return last


def tail(path: str) -> str:
    """Return the end of a log; empty if there is none."""
    return tails.read(path, LOG_BYTES).decode(errors="replace")


if __name__ == "__main__":
    main()
