"""The child of `probe` that talks to the driver: `python -m dibs.devices.driver_child read|listen [LIBRARY]`.

No other process calls the driver, because a call may hang forever or crash its process. `read` answers each line on
stdin (indices to skip) with lines of JSON: what it asks next, what it found, `end`. `listen` prints a line for each
fault that the driver reports. Both end when their parent is gone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, TextIO

from dibs.devices import amd, nvidia

#: Seconds after which an answer is abandoned, in case the parent is gone and the driver hangs.
LIFE_S = 60
#: Milliseconds of one wait for faults, after which we check whether the parent still lives.
WAIT_MS = 5000
#: Queried after all cards; the name used by `begin` and `skip`.
TOPOLOGY = "topology"
#: NVML's error code for a timeout without an event.
TIMED_OUT = 10

Say = Callable[[dict[str, object]], None]


def main(arguments: Sequence[str]) -> None:
    """Read or listen until the parent is gone."""
    # Libraries may print on stdout at any time, so we write to a copy that they do not know.
    with open(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        kind, *rest = arguments
        library = rest[0] if rest else None
        if kind == "listen":
            listen(library, _sayer(output), os.getppid())
        else:
            _serve(library, _sayer(output))


def _sayer(output: TextIO) -> Say:
    def say(line: dict[str, object]) -> None:
        output.write(json.dumps(line) + "\n")
        output.flush()

    return say


def _serve(library: str | None, say: Say) -> None:
    import signal

    import pynvml as nvml

    known: set[str] = set()
    is_held = False
    for line in sys.stdin:
        signal.alarm(LIFE_S)
        # Keep NVML open as long as we live, besides each answer's own open: without persistence mode, cards power down
        # when no process has them open and take seconds to wake.
        is_held = is_held or _is_opened(nvml, library)
        known = answer(library, frozenset(line.strip().split(",")), known, say)
        signal.alarm(0)


def answer(library: str | None, skip: Collection[str], known: set[str], say: Say) -> set[str]:
    """Report all devices once; return the ids of the cards whose closeness was reported."""
    import pynvml as nvml

    def begin(index: str) -> None:
        say({"at": index})

    try:
        _init(nvml, library)
        count = nvml.nvmlDeviceGetCount()
    except OSError as error:
        say({"end": f"cannot load the NVIDIA library {library}: {error}"})
        return known
    except nvml.NVMLError as error:
        problem = nvidia.init_problem(error)
        for record in amd.read(begin) if problem is None else ():
            _told(record, say)
        say({"end": problem, "why": str(error)})
        return known
    say({"count": count})
    records = [_told(record, say) for record in nvidia.read(nvml, skip, begin)]
    ids = {str(record["id"]) for record in records if record.get("id")}
    if ids != known and TOPOLOGY not in skip:
        say({"at": TOPOLOGY})
        say({"close": nvidia.closeness(nvml, records)})
    nvml.nvmlShutdown()
    say({"end": None})
    return ids


def _told(record: dict[str, object], say: Say) -> dict[str, object]:
    say({"card": record})
    return record


def _is_opened(nvml: Any, library: str | None) -> bool:
    try:
        _init(nvml, library)
    except (OSError, nvml.NVMLError):
        # The answer reports the reason.
        return False
    return True


def _init(nvml: Any, library: str | None) -> None:
    """Open NVML, from `library` if one is named."""
    if library is not None:
        import ctypes

        # Its soname is libnvidia-ml.so.1, so the binding finds this library instead of the system's.
        ctypes.CDLL(library)
    nvml.nvmlInit()


def listen(library: str | None, say: Say, parent: int) -> None:
    """Report each Xid from the driver, until the parent or the driver is gone."""
    import pynvml as nvml

    try:
        _init(nvml, library)
        events = nvml.nvmlEventSetCreate()
    except (OSError, nvml.NVMLError) as error:
        say({"deaf": str(error)})
        return
    heard = [index for index in range(nvml.nvmlDeviceGetCount()) if _register(nvml, index, events)]
    say({"listens": heard})
    while heard and os.getppid() == parent:
        try:
            event = nvml.nvmlEventSetWait_v2(events, WAIT_MS)
            uuid = nvml.nvmlDeviceGetUUID(event.device)
        except nvml.NVMLError as error:
            if getattr(error, "value", 0) != TIMED_OUT:
                # The event's card, or every card, is gone: the next reading shows which.
                say({"deaf": str(error)})
                return
            continue
        if event.eventType == nvml.nvmlEventTypeXidCriticalError:
            say({"xid": int(event.eventData), "id": uuid})


def _register(nvml: Any, index: int, events: Any) -> bool:
    """Register for the faults of one card; return False if it reports none or is unhealthy."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
    except nvml.NVMLError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
