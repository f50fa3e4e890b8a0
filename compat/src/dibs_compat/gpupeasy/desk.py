"""The desk of one server: takes jobs in, keeps them held in dibs, and lets the next go when a GPU of its list is free.

One thread follows what happens to the jobs and deals; nobody polls. If this process ends, what runs goes on, and what
waits is held until it is started again. What went wrong with one job is written down and stops nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from dibs import client, commands, drafts, selection, templates
from dibs.errors import Conflict, DibsError, NoDaemon, NotFound
from dibs.options import Args
from dibs_compat.gpupeasy import entries, gpu_lists
from dibs_compat.gpupeasy.entries import Entry
from dibs_compat.gpupeasy.logbook import Logbook

#: Seconds of one long poll, and until the daemon is asked again that did not answer.
POLL_S, AGAIN_S = 30, 1.0
#: Seconds that the thread gets to end.
LEAVE_FOR_S = 2.0
#: What may be done to a job beside `hold`, `unhold` and `priority`: the verb of dibs, and what goes with it.
VERBS: dict[str, tuple[str, dict[str, Any]]] = {
    "cancel": ("cancel", {}),
    "pause": ("pause", {}),
    "resume": ("resume", {}),
    "rerun": ("retry", {"done": True}),
}


class Refused(Exception):
    """A job is not taken, or something cannot be done; the text is the answer."""


class Desk:
    """The jobs of the server at one port."""

    def __init__(self, queue: client.Client, port: int, texts: Sequence[str], log: Logbook) -> None:
        self._queue = queue
        self._port = port
        self._log = log
        self._defaults = drafts.common(Args(), [])
        #: For what is known; never held while dibs is asked, so that nobody waits for an answer who only looks.
        self._lock = threading.RLock()
        #: For who takes a job in: numbers are given one after the other.
        self._adding = threading.Lock()
        self._entries: dict[int, Entry] = {}
        self._texts = list(texts)
        self._free = list(texts)
        self._next = 1
        self._cursor = 0
        #: Texts that dibs refused to use; until the list is changed nothing is dealt to them.
        self._broken: set[str] = set()
        self._is_ending = False
        self._hear, self._say = socket.socketpair()
        self._hear.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="desk", daemon=True)

    def open(self) -> None:
        """Find the jobs of earlier times again, and begin."""
        self._load()
        self._thread.start()

    def close(self) -> None:
        """Deal nothing any more."""
        self._is_ending = True
        self._wake()
        if self._thread.is_alive():
            # It may wait for a daemon that hangs; it changes nothing any more, and ends with the process.
            self._thread.join(LEAVE_FOR_S)

    # -- what is known --

    @property
    def texts(self) -> list[str]:
        """Return the list of GPUs."""
        with self._lock:
            return list(self._texts)

    def jobs(self) -> list[Entry]:
        """Return all jobs, by number."""
        with self._lock:
            return sorted(self._entries.values(), key=lambda entry: entry.number)

    def waiting(self) -> list[Entry]:
        """Return the jobs that have not begun, the next one first."""
        return sorted((entry for entry in self.jobs() if entry.is_waiting), key=entries.order)

    def ended(self, *, well: bool) -> list[Entry]:
        """Return the jobs that succeeded, or those that did not, in the order in which they ended."""
        found = [entry for entry in self.jobs() if entry.status == ("Succeeded" if well else "Failed")]
        return sorted(found, key=lambda entry: entry.finished_at)

    def find(self, number: int) -> Entry | None:
        """Return a job by its number."""
        with self._lock:
            return self._entries.get(number)

    def is_output(self, path: str) -> bool:
        """Tell whether a file is the output of a job of ours: no other is ever read."""
        return any(entry.output == path for entry in self.jobs())

    def others(self) -> int:
        """Return how many jobs wait for servers at other ports."""
        jobs = self._ask(f"project:{entries.PROJECT}+held")
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
                raise Refused(f"Could not add new job: {name}. Check logs for details") from error
            self._next = number + 1
        self._wake()
        return number

    def _submit(self, number: int, name: str, path: str, argv: Sequence[str], *, is_text: bool) -> None:
        for text in (name, path, *argv):
            commands.check_text(text)
        tags = [entries.numbered(self._port, number), *([entries.LETTERS] if is_text else [])]
        job = {"argv": list(argv), "name": name, "output": templates.escape(path), "tags": tags}
        # What it would have without us; the desk says better when its turn has come.
        more = {"project": entries.PROJECT, "hold": True, "gpus": None if any(self._texts) else 0}
        # A key: if the answer is lost, the same may be said again and is one job.
        body = {"defaults": self._defaults | more, "jobs": [job], "key": os.urandom(16).hex()}
        try:
            answer = self._queue.post("/v1/jobs", body)
        except NoDaemon:
            answer = self._queue.post("/v1/jobs", body)
        self._read(answer["ids"])

    def change(self, texts: Sequence[str]) -> None:
        """Use another list of GPUs from now on; what runs on others goes on until it ends."""
        with self._lock:
            self._texts = list(texts)
            self._broken.clear()
            self._log.write("Info", f"GPUs are now: {' '.join(repr(text) for text in texts)}")
        self._wake()

    def act(self, number: int, verb: str, value: str = "") -> str:
        """Do something to a job; return what came of it."""
        entry = self.find(number)
        if entry is None:
            raise Refused(f"There is no job {number}")
        try:
            told = self._act(entry, verb, value)
        except DibsError as error:
            raise Refused(error.line()) from error
        finally:
            self._read([entry.id])
            self._wake()
        self._log.write("Info", f"{verb} <{number}, {entry.name}>: {told}")
        return told

    def _act(self, entry: Entry, verb: str, value: str) -> str:
        if verb == "priority":
            if not value.lstrip("-").isdecimal() or len(value) > 9:
                raise Refused(f"Expected a whole number as priority, got {value[:40]!r}")
            return self._edit(entry, {"priority": int(value)})
        if verb in ("hold", "unhold"):
            if entry.state != "held":
                raise Refused(f"Job {entry.number} is {entry.state}, it does not wait for a GPU of the list")
            rest = [tag for tag in entry.tags if tag != entries.KEPT]
            return self._edit(entry, {"tags": [*rest, entries.KEPT] if verb == "hold" else rest})
        if verb not in VERBS:
            raise Refused(f"There is no verb {verb[:40]!r}")
        if verb == "rerun" and entry.return_code is not None:
            _empty(entry.output)
        name, said = VERBS[verb]
        return _told(self._queue.post(f"/v1/jobs/{entry.id}/{name}", said))

    def _edit(self, entry: Entry, changes: dict[str, Any]) -> str:
        return _told(self._queue.post(f"/v1/jobs/{entry.id}/edit", {"changes": changes}))

    # -- following and dealing --

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._say.send(b"!")

    def _run(self) -> None:
        while not self._is_ending:
            try:
                self._deal()
                self._follow()
            except (DibsError, OSError) as error:
                self._pause(f"dibs does not answer: {error}")
            except Exception as error:  # noqa: BLE001 - whatever it is, the next jobs must still be dealt
                self._pause(f"this is a bug: {type(error).__name__}: {error}")

    def _pause(self, why: str) -> None:
        if not self._is_ending:
            self._log.write("Error", why)
            self._heard([], AGAIN_S)

    def _heard(self, others: list[client.Pending], for_s: float) -> bool:
        """Wait; tell whether somebody woke us."""
        ready, _, _ = select.select([self._hear.fileno(), *(other.fileno() for other in others)], [], [], for_s)
        is_woken = self._hear.fileno() in ready
        if is_woken:
            self._hear.recv(4096)
        return is_woken

    def _follow(self) -> None:
        """Wait until something happens to a job, or somebody wakes us."""
        query = [("since", str(self._cursor)), ("wait_s", str(POLL_S))]
        with contextlib.closing(self._queue.begin_get("/v1/jobs/changes", query)) as asked:
            if self._heard([asked], 2 * POLL_S):
                return
            answer = asked.finish()
        self._cursor = answer["cursor"]
        with self._lock:
            ours = {entry.id for entry in self._entries.values()}
        self._read(job["id"] for job in answer["jobs"] if job["id"] in ours)

    def _load(self) -> None:
        # First the number of the newest event: what happens while we read is told once more.
        self._cursor = self._queue.get("/v1/jobs/changes", [("select", "@")])["cursor"]
        self._keep(self._ask(f"tag:{entries.numbered(self._port, '*')}"))
        with self._lock:
            self._next = max(self._entries, default=0) + 1

    def _read(self, ids: Iterable[int]) -> None:
        """Look at jobs anew."""
        wanted = selection.ranges(ids)
        self._keep(self._ask(wanted) if wanted else [])

    def _ask(self, wanted: str) -> list[dict[str, Any]]:
        try:
            return list(self._queue.get("/v1/jobs", [("select", wanted)])["jobs"])
        except NotFound:
            return []

    def _keep(self, jobs: Iterable[dict[str, Any]]) -> None:
        with self._lock:
            for entry in filter(None, (entries.read(job, self._port) for job in jobs)):
                before = self._entries.get(entry.number)
                self._entries[entry.number] = entry
                if before is not None and before.return_code is None and entry.return_code is not None:
                    kind = "Success" if entry.state == entries.SUCCEEDED else "Warning"
                    what = f"Process <{entry.number}, {entry.name}> exited with return code: {entry.return_code}"
                    self._log.write(kind, what)

    def _deal(self) -> None:
        """Give every free GPU of the list to the job whose turn it is."""
        with self._lock:
            texts = list(self._texts)
            busy = [entry.gpu for entry in self._entries.values() if entry.is_busy and entry.gpu is not None]
            self._free = gpu_lists.freed(self._free, texts, busy)
            usable = [text for text in self._free if text not in self._broken]
            dealt = list(zip((entry for entry in self.waiting() if entry.is_next), usable, strict=False))
        if dealt:
            means = gpu_lists.read(texts, self._queue.get("/v1/gpus")["gpus"])
            for entry, text in dealt:
                self._start(entry, means[text])

    def _start(self, entry: Entry, gpu: gpu_lists.Gpu) -> None:
        self._log.write("Info", f"Scheduling <{entry.number}, {entry.name}> on gpu  {gpu.text}")
        _empty(entry.output)
        tags = [tag for tag in entry.tags if not tag.startswith(entries.ON)]
        argv = list(entry.argv)
        if gpu.is_written:
            argv = entries.wrapped(entry.argv, gpu.text, gpu.keys)
        changes = {
            "argv": argv,
            "gpus": len(gpu.gpu_ids),
            "gpu_ids": list(gpu.gpu_ids) or None,
            "vram": gpu.vram,
            "visible": gpu.visible,
            "tags": [*tags, entries.ON + gpu.text],
        }
        try:
            self._edit(entry, changes)
            self._queue.post(f"/v1/jobs/{entry.id}/unhold", {})
        except (NoDaemon, Conflict, NotFound) as error:
            # Somebody was faster, or it will be dealt again.
            self._log.write("Warning", f"Scheduling <{entry.number}, {entry.name}> is put off: {error}")
        except DibsError as error:
            self._log.write("Error", f"Scheduling failed for <{entry.number}, {entry.name}>: {error}")
            self._broken.add(gpu.text)
        finally:
            self._read([entry.id])


def _make(path: str, shown: str) -> None:
    """Make the output file of a job; refuse one that is there."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except FileExistsError:
        raise Refused(f"Output file already exists: {shown}") from None
    except (OSError, ValueError) as error:
        raise Refused(f"Could not open output file: {shown}") from error


def _empty(path: str) -> None:
    """Empty the output file of a job that is about to begin; who took it away meanwhile gets a new one."""
    with contextlib.suppress(OSError):
        os.truncate(path, 0)


def _told(answer: dict[str, Any]) -> str:
    """Return what a verb of dibs came to, in words."""
    return "; ".join([f"{left['why']}" for left in answer["unchanged"]] or ["done"])
