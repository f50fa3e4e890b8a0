"""The numbers of jobs, read from their files: what they reported, and what expressions of `--metric` find in the log.

Files may be on a slow network and as long as they like: who calls this does so in a thread that may wait, and of a log
only the end is read. An expression may take for ever, and no other thread gets a turn while it does: so expressions
are tried in a child process with a deadline.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from dibs import reports, tails
from dibs.reports import Numbers

#: Bytes at the end of a log in which numbers are looked for.
LOG_BYTES = 4 * 1024 * 1024
#: Characters of a line in which they are looked for: an expression may need the square of it, or worse.
LONGEST_LINE = 4096


#: Seconds that the logs of some runs may take.
DEADLINE_S = 60.0

log = logging.getLogger("dibs.numbers")


def search(logs: Sequence[str], metrics: Mapping[str, str], deadline_s: float = DEADLINE_S) -> list[Numbers]:
    """Return what expressions find in each of some logs; nothing, and a line in our log, if they take too long."""
    asked = json.dumps({"logs": list(logs), "metrics": dict(metrics)}).encode()
    words = [sys.executable, "-P", "-m", "dibs.numbers"]
    try:
        told = subprocess.run(words, input=asked, stdout=subprocess.PIPE, timeout=deadline_s, check=True).stdout
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        log.error("%s log(s) were given up: %s", len(logs), error)
        return [{} for _ in logs]
    found: list[Numbers] = json.loads(told)
    return found


def main() -> None:
    """Be the child: JSON with `logs` and `metrics` on stdin, a list of numbers on stdout."""
    asked = json.load(sys.stdin)
    json.dump([printed(tail(path), asked["metrics"]) for path in asked["logs"]], sys.stdout)


def printed(text: str, metrics: Mapping[str, str]) -> Numbers:
    """Return the last number that each expression finds in the lines of a text."""
    waiting = {name: re.compile(pattern) for name, pattern in metrics.items()}
    found: Numbers = {}
    # From the end: mostly the last lines have them all.
    for line in reversed(text.splitlines()):
        for name, pattern in list(waiting.items()):
            number = _last(pattern, line[:LONGEST_LINE])
            if number is not None:
                found[name] = number if abs(number) <= reports.MOST else None
                del waiting[name]
        if not waiting:
            break
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
