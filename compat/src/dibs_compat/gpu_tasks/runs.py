"""One run of a scheduler: which instance is next, where it goes, and what became of it.

Decides and tells; places and processes are the foreman's. An instance that is done needs no GPU to be skipped. If the
foreman dies, its running tasks count as failed, and another one runs the rest.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dibs import errors
from dibs.foreground import machine
from dibs.foreground.signals import Signals
from dibs_compat import ids
from dibs_compat.gpu_tasks import gpu_visibility, messages
from dibs_compat.gpu_tasks.journals import Journal, TaskEvent
from dibs_compat.gpu_tasks.messages import Order
from dibs_compat.gpu_tasks.result_folders import Claim, Marks

#: Seconds for which a task that got Ctrl-C is waited for before it is asked to end in another way.
INTERRUPTED_S = 10.0

#: Names that a summary has room for.
SHOWN = 5

#: An instance, as a ConfigManager describes it.
Instance = dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """A task that did not succeed."""

    name: str
    work_dir: str
    why: str


@dataclass
class Report:
    """What became of the instances of a run; those that nobody got to are in none of the numbers."""

    finished: int = 0
    skipped: int = 0
    failed: list[Failure] = field(default_factory=list)

    def summary(self) -> str:
        """Return the failures in one line."""
        names = [failure.name or failure.work_dir for failure in self.failed]
        shown = " ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        tried = self.finished + len(names)
        return f"{len(names)} of {tried} tasks failed and will run again next time: {shown}"


@dataclass(frozen=True)
class _StartedTask:
    name: str
    work_dir: str
    log: str | None = None
    #: Kept until its end is written down: nobody else may think meanwhile that it was left unfinished.
    claim: Claim | None = None


@dataclass(eq=False)
class Run:
    """One call of `start`. `_config` is the scheduler's; `_next` returns the next instance, with None at the end."""

    _next: Callable[[], dict[str, Any]]
    _order: Order
    _marks: Marks
    _config: Mapping[str, Any]
    _journal: Journal
    report: Report = field(default_factory=Report)
    #: What runs, by its place.
    _running: dict[int, _StartedTask] = field(default_factory=dict)
    #: The next instance that has something to do, while it waits for a place.
    _head: Instance | None = None
    _is_exhausted: bool = False
    #: The first stop signal, and when to escalate.
    stop_signal: int | None = None
    _urge_at: float | None = None

    def __post_init__(self) -> None:
        self._is_forced = bool(self._config["force_rerun"])
        #: Places where nothing runs, in their order.
        self._idle = list(range(len(self._order.places)))

    # -- the loop

    def run(self) -> None:
        """Do it all. Signals are recorded when they come and answered between two steps."""
        with _signals() as coming:
            self._look_ahead()
            while not self._is_exhausted:
                crew = Crew(self._order)
                try:
                    self._work(crew, coming)
                except BaseException:
                    crew.send("tell", "stop", 0)
                    raise
                finally:
                    crew.close()
                if self.stop_signal is not None:
                    return
                if not self._is_exhausted and not crew.was_useful:
                    raise errors.MachineError(
                        f"the process that starts tasks ended with {crew.code} before it could start one.",
                        "Its output is above.",
                    )

    def _work(self, crew: Crew, coming: Signals | None) -> None:
        """Work with one foreman until everything is done, or it is gone."""
        crew.send("want")
        while self._running or not (self._is_exhausted or self.stop_signal):
            is_ready = crew.wait(coming, self._urge_at)
            for number in coming.new() if coming is not None else ():
                self._answer(crew, number)
            if self._urge_at is not None and time.monotonic() >= self._urge_at:
                self._urge_at = None
                crew.send("tell", "stop", self._order.grace_s)
            if not is_ready:
                continue
            got = messages.receive(crew.line)
            if got is None:
                self._lose_all()
                return
            verb, *words = got[0]
            match verb:
                case "place":
                    self._fill(crew, int(str(words[0])))
                case "ended":
                    self._ended(*words)  # type: ignore[arg-type]
                case "limit":
                    self._journal.warn(str(words[0]))
                case "waits":
                    self._journal.warn(ids.waiting_for(words[0]))  # type: ignore[arg-type]
            if self._look_ahead():
                crew.send("want")
            elif self._is_exhausted:
                crew.send("over")

    def _answer(self, crew: Crew, number: int) -> None:
        """Let a signal end the tasks: Ctrl-C as a terminal would do it; the second one without mercy."""
        is_second = self.stop_signal is not None
        self.stop_signal = self.stop_signal or number
        crew.send("over")
        if is_second:
            self._urge_at = None
            crew.send("tell", "stop", 0)
        elif number == signal.SIGINT:
            self._urge_at = time.monotonic() + INTERRUPTED_S
            crew.send("tell", "signal", int(signal.SIGINT))
        else:
            crew.send("tell", "stop", self._order.grace_s)

    # -- instances

    def _draw(self) -> Iterator[Instance]:
        """Hand out the instances that are left."""
        while not self._is_exhausted:
            one, self._head = self._head or self._next(), None
            if one["config"] is None:
                self._is_exhausted = True
            else:
                yield one

    def _look_ahead(self) -> bool:
        """Skip what is done, which needs no GPU, up to the next that is not; tell whether that wants a place now."""
        if self.stop_signal is not None or not self._idle or self._head is not None:
            return False
        for one in self._draw():
            if self._is_forced or not self._marks.is_done(self._folder(one)):
                self._head = one
                return True
            self._say(self._idle[0], TaskEvent.RECEIVES, _name(one))
            self._skip(self._idle[0], one)
        for place in self._idle:
            self._say(place, TaskEvent.FINISHED)
        self._idle.clear()
        return False

    def _fill(self, crew: Crew, place: int) -> None:
        """Run the next instance in a place that the foreman has for us."""
        for one in self._draw() if self.stop_signal is None else ():
            self._say(place, TaskEvent.RECEIVES, _name(one))
            try:
                claim = self._marks.claim(self._folder(one), self._is_forced)
            except OSError as error:
                self._fail(place, _StartedTask(_name(one), str(one["work_dir"])), f"its folder: {error}")
                continue
            if claim is None:
                self._skip(place, one)
            elif self._start(crew, place, one, claim):
                return
        crew.send("pass")

    def _start(self, crew: Crew, place: int, one: Mapping[str, Any], claim: Claim) -> bool:
        """Give an instance to the foreman; False if that cannot be done."""
        started = _StartedTask(_name(one), str(one["work_dir"]), claim=claim)
        try:
            config = messages.file(pickle.dumps(one["config"]))
        except Exception as error:  # noqa: BLE001 - whatever the user's own values raise
            self._fail(place, started, f"its configuration cannot be pickled: {error}")
            return False
        name: str | None = self._config["log_file"]
        log = None if name is None else os.path.join(claim.folder, name)
        crew.send("run", started.work_dir, log, fds=[config] if claim.fd is None else [config, claim.fd])
        os.close(config)
        self._idle.remove(place)
        self._running[place] = replace(started, log=log)
        return True

    def _ended(self, place: int, code: int | None, signum: int, leftovers: str, note: str, is_late: bool) -> None:
        started = self._running.pop(place)
        if code == 0 and not signum:
            if started.claim is not None:
                self._marks.succeeded(started.claim.folder)
                started.claim.close()
            self.report.finished += 1
            self._say(place, TaskEvent.FINISHES, started.name)
        else:
            self._fail(place, started, ids.limit_reached(self._order.limit_s) if is_late else _why(code, signum))
        if leftovers and self.stop_signal is None:
            self._journal.warn(f"{started.name or 'the task'} left processes running, now stopped: {leftovers}")
        if note:
            self._journal.warn(note)
        self._idle = sorted([*self._idle, place])

    def _lose_all(self) -> None:
        """Note what ran when the foreman died: its tasks are being ended, and nobody will tell how."""
        for place, started in sorted(self._running.items()):
            self._fail(place, started, "the process that started it was killed")
        self._idle = sorted([*self._idle, *self._running])
        self._running.clear()

    def _fail(self, place: int, started: _StartedTask, why: str) -> None:
        """Note a task that did not succeed; who was stopped with us has not failed, but is not done either."""
        if started.claim is not None:
            self._marks.failed(started.claim.folder, why)
            started.claim.close()
        self.report.failed.append(Failure(started.name, started.work_dir, why))
        if self.stop_signal is None:
            self._say(place, TaskEvent.FAILS, started.name, why + (f", see {started.log}" if started.log else ""))

    def _skip(self, place: int, one: Mapping[str, Any]) -> None:
        self.report.skipped += 1
        self._say(place, TaskEvent.SKIPS, _name(one))

    def _say(self, place: int, said: TaskEvent, *about: str) -> None:
        self._journal.tell(self._order.places[place].name, said, *about)

    def _folder(self, one: Mapping[str, Any]) -> str:
        return os.path.join(self._order.cwd, one["work_dir"])


def _name(one: Mapping[str, Any]) -> str:
    return str(one["test_config_string"])


def _why(code: int | None, signum: int) -> str:
    if signum:
        return f"ended by {machine.signal_name(signum)}"
    return "its supervising process was killed" if code is None else f"exit code {code}"


class Crew:
    """A foreman, and the line to it."""

    def __init__(self, order: Order) -> None:
        self.line, its = messages.pair()
        environ = dict(os.environ)
        gpu_visibility.show(environ)
        with its:
            words, fd = messages.fresh("foreman", pickle.dumps((order, its.fileno(), os.getpid())))
            try:
                self._process = subprocess.Popen(
                    words, env=environ, cwd=order.cwd, pass_fds=[fd, its.fileno()], start_new_session=True
                )
            finally:
                os.close(fd)
        #: Whether it could start a task.
        self.was_useful = False
        #: What it ended with.
        self.code: int | None = None

    def wait(self, coming: Signals | None, until: float | None) -> bool:
        """Wait briefly for a packet or a signal; return whether it is a packet."""
        poll = select.poll()
        for fd in (self.line, *(() if coming is None else (coming,))):
            poll.register(fd, select.POLLIN)
        left_ms = None if until is None else max(0.0, until - time.monotonic()) * 1000 + 0.5
        return self.line.fileno() in {fd for fd, _ in poll.poll(left_ms)}

    def send(self, *words: object, fds: list[int] | None = None) -> None:
        """Say something; if nobody is there any more, the next packet will tell."""
        self.was_useful = self.was_useful or words[0] == "run"
        messages.send(self.line, *words, fds=fds or ())

    def close(self) -> None:
        """Release it: it ends what runs, and then itself, and we wait for that."""
        self.line.close()
        self.code = self._process.wait()


@contextlib.contextmanager
def _signals() -> Iterator[Signals | None]:
    """Record the signals that end us, as far as they are ours to answer."""
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    usual = (signal.SIG_DFL, signal.default_int_handler)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with Signals(*(number for number in numbers if signal.getsignal(number) in usual)) as coming:
        yield coming
