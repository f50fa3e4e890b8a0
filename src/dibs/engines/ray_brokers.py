"""The daemon's side of brokers (`ray_broker`): start one for many short jobs, give it starts, read what it reports.

A broker is a Ray job with a folder of its own below the shared folder; its name, the job's submission id, is part of
the reference of each start that it got. If a broker cannot run, for example because the nodes' Python has no Ray or
another version of it, starts become Ray jobs as before, and `problem` says why.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dibs.engines import ray_answers
from dibs.engines.protocol import Seen, Start, Unavailable
from dibs.engines.ray_requests import Resources
from dibs.system.configuration.engines import BROKER_MODES

PROGRAM = Path(__file__).with_name("ray_broker.py")
#: Seconds within which members of a batch must end for the others to count as short.
SHORT_S = 60.0
#: How many of them, so that one that fails at once proves nothing.
ENOUGH = 3
#: Starts that one broker gets: its files are read as a whole after a restart of the daemon.
STARTS_MAX = 20_000
#: Seconds until a broker that could not run is tried again.
RETRY_S = 3600.0
#: Seconds over which ended starts are counted, to have as many waiting as will end until the next look.
PACE_S = 2.0
#: The most that wait in Ray for their turn: they have left our queue, and its priorities.
LOOK_AHEAD_MAX = 200
#: Seconds for which the folder of a broker is kept after its last event.
KEEP_S = 86400.0
READ_MAX = 4 << 20

#: In the order of the setting `broker`.
AUTO, ALWAYS, NEVER = BROKER_MODES


@dataclass(slots=True)
class Broker:
    """One broker, as its files describe it."""

    name: str
    folder: Path
    is_ready: bool = False
    failure: str = ""
    is_over: bool = False
    sent: int = 0
    #: The last event of each key.
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    _read_to: int = 0

    @property
    def takes_starts(self) -> bool:
        """Tell whether it can be given another start."""
        return self.is_ready and not self.is_over and self.sent < STARTS_MAX

    def send(self, requests: Iterable[Mapping[str, object]]) -> None:
        """Append requests. Closed at once: only then other nodes are sure to see it."""
        content = "".join(json.dumps(request) + "\n" for request in requests).encode()
        try:
            with open(self.folder / "requests", "ab", buffering=0) as file:
                file.write(content)
        except OSError as error:
            raise Unavailable(f"cannot write to {self.folder}: {error.strerror}") from error

    def read(self) -> None:
        """Take note of the events since the last call."""
        while True:
            try:
                with open(self.folder / "events", "rb", buffering=0) as file:
                    file.seek(self._read_to)
                    lines = file.read(READ_MAX).rpartition(b"\n")[0]
            except FileNotFoundError:
                return
            except OSError as error:
                raise Unavailable(f"cannot read {self.folder}/events: {error.strerror}") from error
            if not lines:
                return
            self._read_to += len(lines) + 1
            for line in lines.split(b"\n"):
                self._note(line)

    def _note(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return
        match event:
            case {"key": str(key)}:
                self.events[key] = event
            case {"ready": _}:
                self.is_ready = True
            case {"failed": str(why)}:
                self.failure, self.is_over = why, True
            case {"bye": _}:
                self.is_over = True

    def seen(self, key: str, names: Mapping[str, str]) -> Seen:
        """Return what it says about a start; `names` has the name of each node id."""
        event = self.events.get(key)
        match event:
            case {"code": int(code)}:
                return Seen("ended", code=code) if code >= 0 else Seen("ended", signal=-code)
            case {"gone": "stopped"}:
                return Seen("ended", "stopped")
            case {"gone": str(why)}:
                return Seen("gone", why[: ray_answers.WORDS_MAX])
        if self.is_over:
            return Seen("gone", "the broker in Ray ended")
        match event:
            case {"node": str(node)}:
                return Seen("running", node=names.get(node, node[:12]))
        return Seen("waiting", "waits for resources in Ray")

    def asked(self) -> set[str]:
        """Return all keys that it was ever given."""
        try:
            lines = (self.folder / "requests").read_bytes().split(b"\n")
        except OSError:
            return set()
        found = set()
        for line in lines:
            with contextlib.suppress(ValueError):
                request = json.loads(line)
                if isinstance(request, dict) and isinstance(request.get("start"), str):
                    found.add(request["start"])
        return found


class Pace:
    """How quickly starts end: which batches have short members, and how many end in a while."""

    __slots__ = ("_batches", "_ended", "_long", "_short", "_since")

    def __init__(self) -> None:
        self._batches: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._short: dict[int, int] = {}
        self._long: set[int] = set()
        self._ended: deque[float] = deque()

    def note_sent(self, start: Start, now: float) -> None:
        """Take note of a start that is sent to Ray."""
        self._batches[start.key] = start.batch
        self._since[start.key] = now

    def note_seen(self, key: str, seen: Seen, now: float) -> None:
        """Take note of what Ray says about a start."""
        if key not in self._since:
            return
        batch = self._batches[key]
        if seen.phase == "waiting":
            self._since[key] = now
        elif now - self._since[key] > SHORT_S:
            self._long.add(batch)
        if seen.phase in ("ended", "gone"):
            del self._since[key], self._batches[key]
            self._ended.append(now)
            if seen.phase == "ended":
                self._short[batch] = self._short.get(batch, 0) + 1

    def is_short(self, batch: int) -> bool:
        """Tell whether the members of a batch are expected to end soon."""
        return batch != 0 and batch not in self._long and self._short.get(batch, 0) >= ENOUGH

    def ended_lately(self, now: float) -> int:
        """Return how many starts ended within the last seconds."""
        while self._ended and self._ended[0] < now - PACE_S:
            self._ended.popleft()
        return len(self._ended)


class Brokers:
    """All brokers of one engine: the one that gets new starts, and those that still have some."""

    def __init__(
        self, folder: Path, python: str, mode: str, launch: Callable[[str, str], None], clock: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._python = python
        self._mode = mode
        #: Makes a Ray job of a submission id and a command line.
        self._launch = launch
        self._clock = clock
        self._current: Broker | None = None
        self._known: dict[str, Broker] = {}
        self._barred_until = -RETRY_S
        #: Why there is no broker; empty: nothing is known to be wrong.
        self.problem = ""
        self.pace = Pace()

    @property
    def is_open(self) -> bool:
        """Tell whether there is a broker for new starts."""
        return self._current is not None and self._current.takes_starts

    def look_ahead(self, least: int) -> int:
        """Return how many starts may wait in Ray: as many as ended lately."""
        if not self.is_open:
            return least
        return max(least, min(LOOK_AHEAD_MAX, self.pace.ended_lately(self._clock())))

    def wanted(self, starts: Sequence[Start]) -> list[Start]:
        """Return the starts for a broker; start one if there is none, and have the starts run as jobs meanwhile."""
        if self._mode == NEVER:
            return []
        chosen = [start for start in starts if self._mode == ALWAYS or self.pace.is_short(start.batch)]
        if not chosen:
            return []
        broker = self._current
        if broker is not None:
            broker.read()
            if broker.is_over or broker.sent >= STARTS_MAX:
                self._retire(broker)
        if self._current is None and self._clock() >= self._barred_until:
            self._start(chosen[0].key)
        return chosen if self.is_open else []

    def submit(self, starts: Sequence[tuple[Start, Resources]]) -> dict[str, str]:
        """Give starts to the current broker; return their references."""
        broker = self._current
        assert broker is not None
        broker.send(_request(start, needs) for start, needs in starts)
        broker.sent += len(starts)
        return {start.key: f"{broker.name}:{start.key}" for start, _ in starts}

    def _start(self, key: str) -> None:
        prefix = key.rpartition("-")[0]
        name = f"{prefix}-broker-{os.urandom(4).hex()}"
        folder = self._folder / name
        self._remove_old(prefix)
        try:
            folder.mkdir(mode=0o700, parents=True)
            program = folder / "broker.py"
            program.write_bytes(PROGRAM.read_bytes())
        except OSError as error:
            raise Unavailable(f"cannot write to {folder}: {error.strerror}") from error
        words = shlex.join([self._python, str(program), str(folder)])
        self._launch(name, f"exec {words} >>{shlex.quote(str(folder / 'output'))} 2>&1")
        self._current = self._known[name] = Broker(name, folder)

    def _retire(self, broker: Broker) -> None:
        """Stop using a broker; it ends when its last start has ended."""
        self._current = None
        if broker.failure:
            self.problem = broker.failure
            self._barred_until = self._clock() + RETRY_S
        elif not broker.is_over:
            broker.send([{"retire": True}])

    def _remove_old(self, prefix: str) -> None:
        for folder in self._folder.glob(f"{prefix}-broker-*"):
            with contextlib.suppress(OSError):
                if folder.name not in self._known and time.time() - folder.stat().st_mtime > KEEP_S:
                    shutil.rmtree(folder)

    def names_of(self, refs: Iterable[str]) -> set[str]:
        """Return the submission ids of all brokers that the references name, and of the current one."""
        found = {broker for ref in refs if (broker := split(ref)[0])}
        return found | ({self._current.name} if self._current else set())

    def poll(self, refs: Sequence[str], rows: Mapping[str, object] | None, names: Mapping[str, str]) -> dict[str, Seen]:
        """Return what became of starts; `rows` has what Ray says about the brokers themselves, if it was asked."""
        for name in self.names_of(refs):
            broker = self._broker(name)
            is_over = rows is not None and (name not in rows or ray_answers.is_over(rows[name]))
            # After Ray was asked: the broker may have reported more before it ended.
            broker.read()
            if is_over and not broker.is_ready and not broker.failure:
                broker.failure = _last_line(broker.folder / "output") or "its job in Ray failed"
            broker.is_over = broker.is_over or is_over
            if broker is self._current and broker.is_over:
                self._retire(broker)
        return {ref: self._known[split(ref)[0]].seen(split(ref)[1], names) for ref in refs}

    def stop(self, refs: Iterable[str]) -> None:
        """Ask for the end of starts."""
        for ref in refs:
            name, key = split(ref)
            broker = self._broker(name)
            if broker.folder.exists():
                broker.send([{"stop": key}])

    def find(self, keys: set[str]) -> dict[str, list[str]]:
        """Return the references of starts that any of our brokers was given."""
        found: dict[str, list[str]] = {}
        for prefix in {key.rpartition("-")[0] for key in keys}:
            for folder in self._folder.glob(f"{prefix}-broker-*"):
                for key in self._broker(folder.name).asked() & keys:
                    found.setdefault(key, []).append(f"{folder.name}:{key}")
        return found

    def _broker(self, name: str) -> Broker:
        if name not in self._known:
            self._known[name] = Broker(name, self._folder / name)
        return self._known[name]


def split(ref: str) -> tuple[str, str]:
    """Return the broker and the key of a reference; the broker is empty for a Ray job."""
    broker, _, key = ref.rpartition(":")
    return broker, key


def _request(start: Start, needs: Resources) -> dict[str, object]:
    return {
        "start": start.key,
        "argv": start.argv,
        "output": start.engine_output,
        "gpus": needs.gpus,
        "cpus": needs.cpus,
        "memory": needs.memory,
        "resources": needs.custom,
        "label_selector": needs.labels,
    }


def _last_line(path: Path) -> str:
    try:
        return ray_answers.last_words(path.read_text(errors="replace"))
    except OSError:
        return ""
