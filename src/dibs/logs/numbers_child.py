"""The numbers of jobs, read from their files: what they reported, and what expressions of `--metric` find in the log.

Files may be on a slow network and as long as they like: who calls this does so in a thread that may wait, and of a log
only the end is read. An expression may take for ever, and no other thread gets a turn while it does: so expressions
are tried in a child process with a deadline: the last numbers come first, what all of them come to if there is time.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dibs.logs import reports, tails
from dibs.logs.reports import Numbers, Summary

#: Bytes at the end of a log in which numbers are searched.
LOG_BYTES = 4 * 1024 * 1024
#: Characters of a line that are searched: an expression may need quadratic time, or worse.
LONGEST_LINE = 4096


#: Seconds that the last numbers of some logs may take, and after them all the others.
DEADLINE_S = 60.0
SUMMARIES_FOR_S = 10.0

#: What expressions find in a log: the last numbers, and the summaries of all.
Printed = tuple[Numbers, dict[str, Summary]]

log = logging.getLogger("dibs.logs.numbers_child")


def search(
    logs: Sequence[str],
    metrics: Mapping[str, str],
    deadline_s: float = DEADLINE_S,
    summaries_for_s: float = SUMMARIES_FOR_S,
) -> list[Printed]:
    """Return what expressions find in each of some logs; less, and a line in our log, if they take too long."""
    asked = json.dumps({"logs": list(logs), "metrics": dict(metrics)}).encode()
    words = [sys.executable, "-P", "-m", "dibs.logs.numbers_child", str(summaries_for_s)]
    timeout_s = deadline_s + summaries_for_s
    try:
        told = subprocess.run(words, input=asked, stdout=subprocess.PIPE, timeout=timeout_s, check=True).stdout
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        log.error("%s log(s) were given up: %s", len(logs), error)
        told = error.stdout or b""
    lines = [json.loads(line) for line in told.splitlines(keepends=True) if line.endswith(b"\n")]
    nothing: list[dict[str, Any]] = [{} for _ in logs]
    last, all_told, *_ = [*lines, nothing, nothing]
    return [
        (numbers, {name: tuple(one) for name, one in summaries.items()})
        for numbers, summaries in zip(last, all_told, strict=True)
    ]


def main() -> None:
    """Be the child: JSON with `logs` and `metrics` on stdin; on stdout a line of the last numbers, one of summaries."""
    asked = json.load(sys.stdin)
    logs, metrics = asked["logs"], asked["metrics"]
    print(json.dumps([printed(tail(path), metrics) for path in logs]), flush=True)
    # It ends this process; what is printed already stays valid.
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
    print(json.dumps([summaries(tail(path), metrics) for path in logs]), flush=True)


def printed(text: str, metrics: Mapping[str, str]) -> Numbers:
    """Return the last number that each expression finds in the lines of a text."""
    waiting = {name: re.compile(pattern) for name, pattern in metrics.items()}
    found: Numbers = {}
    # From the end: usually the last lines have them all.
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
    """Return the summary of the numbers that each expression finds, one per line: the last."""
    patterns = {name: re.compile(pattern) for name, pattern in metrics.items()}
    found: dict[str, Summary] = {}
    for line in text.splitlines():
        for name, pattern in patterns.items():
            number = _last(pattern, line[:LONGEST_LINE])
            if number is not None and abs(number) <= reports.MOST:
                found[name] = reports.summed(found.get(name), number)
    return found


def _last(pattern: re.Pattern[str], line: str) -> float | None:
    """Return the last number in a line; what an expression finds may be none."""
    last = None
    for match in pattern.finditer(line):
        try:
            last = float(match[1])
        except (TypeError, ValueError):
            continue
    return last


def tail(path: str) -> str:
    """Return the end of a log; nothing if there is none."""
    return tails.read(path, LOG_BYTES).decode(errors="replace")


if __name__ == "__main__":
    main()
