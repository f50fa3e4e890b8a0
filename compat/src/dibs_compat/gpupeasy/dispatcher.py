"""The dispatcher of one server: accepts jobs, and assigns each a GPU of its list.

Where dibs itself can choose among the GPUs, jobs are queued there and need this process no more. Where it cannot
(groups and the like), they are held, and the next is released when a GPU of the list is free. One thread follows what
happens to the jobs and deals; nobody polls. What went wrong with one job is written down and stops nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from dibs.client import connection
from dibs.errors import Conflict, DibsError, NoDaemon, NotFound, UserError
from dibs.foreground import machine
from dibs.model import path_templates, selectors
from dibs.submission import drafts
from dibs.submission.options import Args
from dibs_compat.gpupeasy import entries, gpu_lists
from dibs_compat.gpupeasy.entries import Entry
from dibs_compat.gpupeasy.logbook import Logbook

#: Seconds of one long poll, until the daemon is asked again that did not answer, and until what has changed meanwhile.
POLL_S, AGAIN_S, SOON_S = 30, 1.0, 0.05
#: Seconds that the thread gets to end.
LEAVE_FOR_S = 2.0
#: What dibs does to a job just as it is asked; `hold`, `unhold`, `priority` and `rerun` take more.
VERBS = ("cancel", "pause", "resume")


class Refusal(Exception):
    """A job is not taken, or something cannot be done; the text is the answer."""


class Dispatcher:
    """The jobs of the server at one port."""

    def __init__(self, queue: connection.Client, port: int, texts: Sequence[str], log: Logbook) -> None:
        self._queue = queue
        self._port = port
        self._log = log
        self._defaults = drafts.common(Args(), [])
        #: For what is known; never held while dibs is asked, so that nobody waits for an answer who only looks.
        self._lock = threading.RLock()
        #: For who takes a job in: numbers are given one after the other.
        self._adding = threading.Lock()
        #: For who reads jobs: an answer that is late must not replace a newer one.
        self._reading = threading.Lock()
        self._entries: dict[int, Entry] = {}
        self._texts, self._free = list(texts), list(texts)
        #: What every job asks for; None: jobs are dealt one by one.
        self._common: gpu_lists.Gpu | None = None
        #: Whether jobs that wait may have to be changed, because the list was.
        self._is_stale = True
        self._next = 1
        self._cursor = 0
        #: How jobs stood when something was last written down about them.
        self._written: dict[int, str] = {}
        #: Texts that dibs refused to use; until the list is changed nothing is dealt to them.
        self._broken: set[str] = set()
        self._is_ending = False
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)

    def open(self) -> None:
        """Find the jobs of earlier times again, and begin."""
        self._load()
        # Before anybody adds a job, so that it goes to dibs as it shall stay there.
        self._arrange()
        self._thread.start()

    def close(self) -> None:
        """Deal nothing any more."""
        self._is_ending = True
        self._wake()
        if self._thread.is_alive():
            # It may wait for a daemon that hangs; it changes nothing any more, and ends with the process.
            self._thread.join(LEAVE_FOR_S)
        if not self._thread.is_alive():
            self._wake_reader.close()
            self._wake_writer.close()

    # -- what is known --

    @property
    def texts(self) -> list[str]:
        """Return the list of GPUs."""
        with self._lock:
            return list(self._texts)

    def jobs(self, status: str | None = None) -> list[Entry]:
        """Return all jobs, by number; those of one status by their turn, or in the order in which they ended."""
        with self._lock:
            found = [entry for entry in self._entries.values() if status in (None, entry.status)]
        return sorted(found, key=entries.order if status else lambda entry: (entry.number,))

    def find(self, number: int) -> Entry | None:
        """Return a job by its number."""
        with self._lock:
            return self._entries.get(number)

    def is_output(self, path: str) -> bool:
        """Tell whether a file is the output of a job of ours: no other is ever read."""
        return any(entry.output == path for entry in self.jobs())

    def others(self) -> int:
        """Return how many jobs wait for servers at other ports."""
        jobs = self._find_all(f"project:{entries.PROJECT}+held")
        return sum(entries.read(job, self._port) is None for job in jobs)

    # -- what is asked --

    def add(self, name: str, output: str, argv: Sequence[str], *, is_text: bool = False) -> int:
        """Take a job in; return its number. Its output file must be new, and is made now."""
        path = os.path.join(str(self._defaults["cwd"]), output)
        with self._adding:
            _make(path, output)
            number = self._next
            try:
                self._submit(number, name, path, argv, is_text=is_text)
            except (DibsError, ValueError) as error:
                self._log.write("Error", f"Could not add <{number}, {name}>: {error}")
                with contextlib.suppress(OSError):
                    os.unlink(path)
                raise Refusal(f"Could not add new job: {name}. Check logs for details") from error
            self._next = number + 1
        self._wake()
        return number

    def _submit(self, number: int, name: str, path: str, argv: Sequence[str], *, is_text: bool) -> None:
        machine.check_arguments((name, path, *argv))
        tags = [entries.numbered(self._port, number), *([entries.LETTERS] if is_text else [])]
        common = self._common
        if common is not None:
            more = {"hold": False, **common.request}
            tags += _marks(common)
        else:
            # What it would have without us; the dispatcher says better when its turn has come.
            more = {"hold": True, "gpus": None if any(self._texts) else 0}
            tags.append(entries.held(self._port))
        job = {"argv": list(argv), "name": name, "output": path_templates.escape(path), "tags": tags}
        more["project"] = entries.PROJECT
        # A key: if the answer is lost, the same may be said again and is one job.
        body = {"defaults": self._defaults | more, "jobs": [job], "key": os.urandom(16).hex()}
        try:
            answer = self._queue.post("/v1/jobs", body)
        except NoDaemon:
            answer = self._queue.post("/v1/jobs", body)
        self._read(answer["ids"])
        if self._common is not common:
            # The list was changed while we asked, by one who did not know of this job.
            self._is_stale = True

    def change(self, texts: Sequence[str]) -> None:
        """Use another list of GPUs from now on; running jobs keep theirs."""
        with self._lock:
            self._texts = list(texts)
            self._broken.clear()
            self._is_stale = True
            self._log.write("Info", f"GPUs are now: {' '.join(repr(text) for text in texts)}")
        self._wake()

    def act(self, number: int, verb: str, value: str = "") -> str:
        """Do something to a job; return what came of it."""
        entry = self.find(number)
        if entry is None:
            raise Refusal(f"There is no job {number}")
        try:
            told = self._act(entry, verb, value)
        except DibsError as error:
            raise Refusal(error.line()) from error
        finally:
            self._read([entry.id])
            self._wake()
        self._log.write("Info", f"{verb} {entry}: {told}")
        return told

    def _act(self, entry: Entry, verb: str, value: str) -> str:
        if verb == "priority":
            if not value.lstrip("-").isdecimal() or len(value) > 9:
                raise Refusal(f"Expected a whole number as priority, got {value[:40]!r}")
            return self._edit(entry, priority=int(value))
        if verb == "hold":
            return self._hold(entry)
        if verb == "unhold":
            return self._unhold(entry)
        if verb == "rerun":
            if entry.return_code is not None:
                # Who took it away meanwhile gets a new one.
                with contextlib.suppress(OSError):
                    os.truncate(entry.output, 0)
            return self._do("retry", [entry], done=True)
        if verb not in VERBS:
            raise Refusal(f"There is no verb {verb[:40]!r}")
        return self._do(verb, [entry])

    def _hold(self, entry: Entry) -> str:
        if not entry.is_waiting:
            raise Refusal(f"Job {entry.number} is {entry.state}, it is not waiting")
        told = self._edit(entry, tags=entry.plain_tags) if entry.is_ours else ""
        return told if entry.is_next else self._do("hold", [entry])

    def _unhold(self, entry: Entry) -> str:
        if entry.state != "held" or entry.is_ours:
            raise Refusal(f"Job {entry.number} is {entry.state}, it is not held")
        if self._common is None:
            return self._edit(entry, tags=[*entry.plain_tags, entries.held(self._port)])
        return self._do("unhold", [entry])

    def _do(self, verb: str, some: Sequence[Entry], **said: Any) -> str:
        """Do a verb of dibs to some jobs; return what came of it, in words."""
        wanted = selectors.ranges(entry.id for entry in some)
        answer = self._queue.post("/v1/jobs/actions", {"verb": verb, "select": [wanted], **said})
        return "; ".join([str(left["why"]) for left in answer["unchanged"]] or ["done"])

    def _edit(self, entry: Entry, **changes: Any) -> str:
        return self._do("edit", [entry], changes=changes)

    # -- following and dealing --

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"!")

    def _run(self) -> None:
        while not self._is_ending:
            try:
                if self._is_stale:
                    self._arrange()
                elif self._common is None:
                    self._deal()
                self._follow(0 if self._is_stale else POLL_S)
            except (DibsError, OSError) as error:
                self._pause(f"dibs does not answer: {error}")
            except Exception as error:  # noqa: BLE001 - whatever it is, the next jobs must still be dealt
                self._pause(f"this is a bug: {type(error).__name__}: {error}")

    def _pause(self, why: str) -> None:
        if not self._is_ending:
            self._log.write("Error", why)
            self._sleep([], AGAIN_S)

    def _sleep(self, others: list[connection.PendingResponse], for_s: float) -> bool:
        """Wait; return whether we were woken."""
        ready, _, _ = select.select([self._wake_reader.fileno(), *(other.fileno() for other in others)], [], [], for_s)
        is_woken = self._wake_reader.fileno() in ready
        if is_woken:
            self._wake_reader.recv(4096)
        return is_woken

    def _follow(self, wait_s: float) -> None:
        """Wait until a job changes, or until woken."""
        query = [("since", str(self._cursor)), ("wait_s", str(wait_s))]
        with contextlib.closing(self._queue.begin_get("/v1/jobs/changes", query)) as asked:
            if self._sleep([asked], 2 * POLL_S):
                return
            answer = asked.finish()
        self._cursor = answer["cursor"]
        # Who takes a job in right now will know it then.
        with self._adding, self._lock:
            ours = {entry.id for entry in self._entries.values()}
        changed = {job["id"] for job in answer["jobs"]} & ours
        self._read(changed)
        for entry in self.jobs():
            if entry.id in changed:
                self._write(entry)

    def _write(self, entry: Entry) -> None:
        """Write down that a job began, or ended."""
        before = self._written.get(entry.number, entries.SCHEDULED)
        self._written[entry.number] = entry.status
        if before == entries.SCHEDULED and not entry.is_waiting and entry.gpu and not entry.is_dealt:
            self._log.write("Info", f"Scheduling {entry} on gpu  {entry.gpu}")
        if before in (entries.SCHEDULED, entries.RUNNING) and entry.return_code is not None:
            kind = "Success" if entry.status == entries.SUCCEEDED else "Warning"
            self._log.write(kind, f"Process {entry} exited with return code: {entry.return_code}")

    def _arrange(self) -> None:
        """Make the jobs that wait ask for what the list says now."""
        with self._lock:
            texts, self._is_stale = list(self._texts), False
        try:
            common = gpu_lists.common(texts, self._queue.get("/v1/gpus")["gpus"])
            # Before we look who waits: who takes a job in sees it, or is seen.
            self._common = common
            waiting = self.jobs(entries.SCHEDULED)
            if common is None:
                self._take_back([entry for entry in waiting if entry.state == "queued" and not entry.is_dealt])
            else:
                self._let_go(waiting, common)
        except (Conflict, NotFound):
            # One of them began, or was cancelled, before we asked: look again.
            self._is_stale = True
            self._read([entry.id for entry in waiting])
            self._sleep([], SOON_S)
        except UserError as error:
            self._log.write("Error", f"Waiting jobs are unchanged: {error}")
        except BaseException:
            self._is_stale = True
            raise
        else:
            self._read([entry.id for entry in waiting])

    def _take_back(self, some: Sequence[Entry]) -> None:
        """Hold jobs until we let them go; the tag first: a job that is held without it would wait for a person."""
        for entry in some:
            self._edit(entry, tags=[*entry.plain_tags, entries.held(self._port)])
        if some:
            self._do("hold", some)

    def _let_go(self, waiting: Sequence[Entry], common: gpu_lists.Gpu) -> None:
        """Let dibs choose the GPU of jobs from now on; those that a person holds stay so."""
        marked = [entry for entry in waiting if entry.tags != (*entry.plain_tags, *_marks(common)) or entry.is_wrapped]
        for entry in marked:
            left = [tag for tag in entry.tags if tag.startswith(entries.HELD)]
            tags = [*entry.plain_tags, *_marks(common)]
            self._edit(entry, argv=list(entry.argv), tags=[*tags, *left], **common.request)
            if entry.is_next:
                self._do("unhold", [entry])
            if left:
                # Last: a job that is held without it would wait for a person. It may have begun.
                with contextlib.suppress(Conflict):
                    self._edit(entry, tags=tags)
        if rest := [entry for entry in waiting if entry not in marked]:
            self._do("edit", rest, changes=common.request)

    def _load(self) -> None:
        # Read the event number first: changes during the read are then reported again.
        self._cursor = self._queue.get("/v1/jobs/changes", [("select", "@")])["cursor"]
        self._keep(self._find_all(f"tag:{entries.numbered(self._port, '*')}"))
        with self._lock:
            self._next = max(self._entries, default=0) + 1
            self._written = {entry.number: entry.status for entry in self._entries.values()}

    def _read(self, ids: Iterable[int]) -> None:
        """Read jobs again."""
        if wanted := selectors.ranges(ids):
            with self._reading:
                self._keep(self._find_all(wanted))

    def _find_all(self, wanted: str) -> list[dict[str, Any]]:
        """Return the jobs of a selector; there may be none."""
        try:
            return list(self._queue.get("/v1/jobs", [("select", wanted)])["jobs"])
        except NotFound:
            return []

    def _keep(self, jobs: Iterable[dict[str, Any]]) -> None:
        with self._lock:
            for entry in filter(None, (entries.read(job, self._port) for job in jobs)):
                self._entries[entry.number] = entry

    def _deal(self) -> None:
        """Give every free GPU of the list to the job whose turn it is."""
        with self._lock:
            texts = list(self._texts)
            busy = [entry.gpu for entry in self._entries.values() if entry.is_busy and entry.gpu is not None]
            self._free = gpu_lists.freed(self._free, texts, busy)
            usable = [text for text in self._free if text not in self._broken]
            dealt = list(zip((entry for entry in self.jobs(entries.SCHEDULED) if entry.is_next), usable, strict=False))
        if dealt:
            means = gpu_lists.read(texts, self._queue.get("/v1/gpus")["gpus"])
            for entry, text in dealt:
                self._start(entry, means[text])

    def _start(self, entry: Entry, gpu: gpu_lists.Gpu) -> None:
        self._log.write("Info", f"Scheduling {entry} on gpu  {gpu.text}")
        argv = entries.wrapped(entry.argv, gpu.text, gpu.keys) if gpu.is_written else list(entry.argv)
        # Still ours: if we end before it is released, it is dealt again.
        tags = [*entry.plain_tags, entries.ON + gpu.text, entries.held(self._port)]
        try:
            self._edit(entry, argv=argv, tags=tags, **gpu.request)
            self._do("unhold", [entry])
        except (NoDaemon, Conflict, NotFound) as error:
            # The GPU was leased meanwhile; the job is assigned again later.
            self._log.write("Warning", f"Scheduling {entry} is postponed: {error}")
        except DibsError as error:
            self._log.write("Error", f"Scheduling failed for {entry}: {error}")
            self._broken.add(gpu.text)
        finally:
            self._read([entry.id])


def _make(path: str, shown: str) -> None:
    """Make the output file of a job; refuse one that is there."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except FileExistsError:
        raise Refusal(f"Output file already exists: {shown}") from None
    except (OSError, ValueError) as error:
        raise Refusal(f"Could not open output file: {shown}") from error


def _marks(gpu: gpu_lists.Gpu) -> list[str]:
    """Return the tags that a job has because of how its GPUs are named."""
    return [entries.BY_UUID] if gpu.visible == "uuid" else []
