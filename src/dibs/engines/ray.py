"""Ray as an engine, through the REST interface of its dashboard: no `import ray` in the daemon.

Ray's queue is in memory, has no priorities, and a job in it can be stopped only when its turn comes. So ours stays in
front of it: Ray gets what its free GPUs can run, and a few jobs more. Each start is a Ray job whose submission id is
the key of the start; many short ones go to a broker (`ray_brokers`) instead.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dibs import errors
from dibs.engines import ray_answers, ray_brokers, ray_requests, ray_rest
from dibs.engines.protocol import Caps, Needs, Node, Refused, Seen, Start, Unavailable
from dibs.engines.ray_brokers import Brokers
from dibs.system import paths
from dibs.system.configuration.engines import EngineSettings

#: Jobs that wait in Ray beyond the free GPUs, so that no GPU idles until our next look.
LOOK_AHEAD = 2
#: Seconds: longer than a guardian needs to end a command and record it after its supervisor died; in a network folder
#: until that is seen everywhere.
LOCAL_GRACE_S, NETWORK_GRACE_S = 12.0, 60.0
#: Seconds after which a job of ours that nobody asks about is removed from Ray's memory.
STALE_S = 600.0
#: Seconds after its end before a job is deleted, and after that before it counts as deleted: Ray's monitor looks at a
#: job again, and takes a job that it does not find for a failed one, which it writes down.
SETTLE_S = 4.0
#: Seconds between questions to Ray about brokers, whose events tell nearly everything; and between looks at the events.
ASK_EVERY_S, BROKER_POLL_S = 2.0, 0.05
NODES = "/api/v0/nodes?detail=1&limit=10000"
STATUS = "/api/cluster_status?format=0"


def make(settings: EngineSettings, environ: Mapping[str, str]) -> Ray:
    """Return the engine of complete settings."""
    assert settings.shared is not None
    token_file = None if settings.token_file is None else str(settings.token_file)
    return Ray(settings.name, settings.address, token_file, environ, settings.shared, settings.python, settings.broker)


class Ray:
    """One cluster."""

    kind = "ray"

    def __init__(
        self,
        name: str,
        address: str,
        token_file: str | None,
        environ: Mapping[str, str],
        shared: Path,
        python: str = "",
        broker: str = ray_brokers.AUTO,
    ) -> None:
        self.name = name
        self._address = ray_rest.parse_address(address)
        self._token_file = token_file
        self._environ = environ
        self._brokers = Brokers(shared / "ray", python or sys.executable, broker, self._launch, time.monotonic)
        network = paths.network_type(shared, paths.read_text("/proc/self/mountinfo"))
        self._grace_s = LOCAL_GRACE_S if network is None else NETWORK_GRACE_S
        self._token_problem = ""
        self._nodes: list[Node] = []
        self._node_names: dict[str, str] = {}
        #: Jobs that Ray should forget, and when to look at them next.
        self._unwanted: dict[str, float] = {}
        #: When to ask Ray although brokers have everything, by the monotonic clock.
        self._ask_at = 0.0

    @property
    def caps(self) -> Caps:
        """Return how it behaves at present."""
        ahead = self._brokers.look_ahead(LOOK_AHEAD)
        if self._brokers.is_open:
            return Caps(holds_queue=False, look_ahead=ahead, grace_s=self._grace_s, poll_s=BROKER_POLL_S)
        return Caps(holds_queue=False, look_ahead=ahead, grace_s=self._grace_s)

    @property
    def problem(self) -> str:
        """Return what people should know about it although it works; empty: nothing."""
        why = self._brokers.problem
        told = [self._token_problem, f"no broker for short jobs: {why}" if why else ""]
        return "; ".join(filter(None, told))

    @property
    def has_chores(self) -> bool:
        """Tell whether it must be polled although nothing is under way: to remove ended jobs."""
        return bool(self._unwanted)

    # -- the cluster --

    def nodes(self) -> list[Node]:
        """Return all nodes, and remember their names."""
        self._token_problem = ray_rest.token_problem(self._token_file, self._environ)
        listing = self._get(NODES)
        try:
            status = self._get(STATUS)
        except Unavailable:
            # Without it only the free GPUs are unknown.
            status = None
        self._nodes, self._node_names = ray_answers.nodes(listing, status)
        self._remove_unwanted(self._rows(set(self._unwanted)), keep=set())
        return self._nodes

    def refuse(self, needs: Needs, nodes: Sequence[Node]) -> str | None:
        """Return why no node can ever run this; raise an error if nobody may use this address."""
        try:
            ray_rest.check_access(self.name, self._address, self._token())
        except Unavailable as error:
            raise errors.NotAllowed(f"engine {self.name}: {error}.") from error
        return ray_requests.refuse(self.name, needs, nodes)

    # -- starts --

    def submit(self, starts: Sequence[Start]) -> dict[str, str | Refused]:
        """Submit starts; if Ray stops answering, return what it took until then."""
        sent: dict[str, str | Refused] = {}
        now = time.monotonic()
        try:
            for_broker = {start.key for start in self._brokers.wanted(starts)}
            for start in starts:
                if start.key not in for_broker:
                    sent[start.key] = self._submit_job(start)
                self._brokers.pace.note_sent(start, now)
            chosen = [
                (start, ray_requests.resources(start.needs, self._nodes)) for start in starts if start.key in for_broker
            ]
            if chosen:
                sent |= self._brokers.submit(chosen)
        except Unavailable:
            if not sent:
                raise
        return sent

    def _submit_job(self, start: Start) -> str | Refused:
        body = ray_requests.body(start, ray_requests.resources(start.needs, self._nodes))
        answer = self._ask("POST", "/api/jobs/", body)
        # The same start again: after a lost answer, or a crash of ours.
        if answer.status == 200 or _is_duplicate(answer):
            return start.key
        why = ray_answers.last_words(answer.text) or f"HTTP {answer.status}"
        if answer.status == 400 or "failed with status code 400" in answer.text:
            return Refused(f"Ray refused it: {why}", is_final=True)
        return Refused(f"Ray did not accept it: {why}")

    def _launch(self, name: str, command: str) -> None:
        """Run a broker as a Ray job: without resources, so on the head, with which everything is lost anyway."""
        answer = self._ask("POST", "/api/jobs/", {"submission_id": name, "entrypoint": command})
        if answer.status != 200 and not _is_duplicate(answer):
            raise Unavailable(f"Ray did not start a broker: {ray_answers.last_words(answer.text)}")

    def find(self, keys: Iterable[str]) -> dict[str, list[str]]:
        """Return the references of known keys."""
        wanted = set(keys)
        found = self._brokers.find(wanted)
        for key in self._rows(wanted):
            found.setdefault(key, []).append(key)
        return found

    def poll(self, refs: Sequence[str]) -> dict[str, Seen]:
        """Return what became of starts, and remove from Ray's memory what nobody asks about any more."""
        jobs = {ref for ref in refs if not ray_brokers.split(ref)[0]}
        brokered = [ref for ref in refs if ref not in jobs]
        if not jobs and time.monotonic() < self._ask_at:
            return self._note_pace(self._brokers.poll(brokered, None, self._node_names))
        self._ask_at = time.monotonic() + ASK_EVERY_S
        rows = self._rows(jobs | self._brokers.names_of(brokered) | set(self._unwanted), with_stale=bool(refs))
        if not self._node_names:
            self.nodes()
        seen = {ref: ray_answers.seen(rows[ref], self._node_names) for ref in jobs if ref in rows}
        seen |= self._brokers.poll(brokered, rows, self._node_names)
        gone = {ref: Seen("gone") for ref in refs if ref not in seen}
        self._note_pace(seen | gone)
        self._remove_unwanted(rows, keep=jobs)
        return seen

    def _note_pace(self, seen: dict[str, Seen]) -> dict[str, Seen]:
        now = time.monotonic()
        for ref, one in seen.items():
            self._brokers.pace.note_seen(ray_brokers.split(ref)[1], one, now)
        return seen

    def stop(self, refs: Sequence[str], *, now: bool) -> None:
        """Ask for the end of starts: a TERM for the guardian, whose orders say with how much grace."""
        self._brokers.stop(ref for ref in refs if ray_brokers.split(ref)[0])
        for ref in refs:
            if not ray_brokers.split(ref)[0]:
                # 404: Ray does not know it; a job that waits in Ray is stopped when its turn comes.
                self._ask("POST", f"/api/jobs/{ref}/stop")

    def poke(self, ref: str) -> None:
        """Do nothing: Ray has no signal but the one that stops."""

    def script(self, start: Start) -> str:
        """Return the command of Ray's own program that submits a start."""
        return ray_requests.script(str(self._address), start, ray_requests.resources(start.needs, self._nodes))

    def forget(self, refs: Sequence[str]) -> None:
        """Have ended jobs deleted, which Ray would keep in memory; one that waits ends only when its turn comes."""
        now = time.monotonic()
        for ref in refs:
            broker, key = ray_brokers.split(ref)
            # Their files may have told that before Ray did.
            self._brokers.pace.note_seen(key, Seen("ended"), now)
            if not broker:
                self._unwanted.setdefault(ref, now + SETTLE_S)

    def _remove_unwanted(self, rows: Mapping[str, object], keep: set[str]) -> None:
        """Delete what has ended meanwhile, and what an earlier daemon of ours left; `rows` has nothing of others."""
        now, before = time.monotonic(), time.time() - STALE_S
        for ref, row in rows.items():
            ended_at = ray_answers.ended_at(row)
            if ref not in keep and ended_at is not None and ended_at < before:
                self._unwanted.setdefault(ref, now)
        for ref in [ref for ref, look_at in self._unwanted.items() if look_at <= now]:
            if ref not in rows:
                del self._unwanted[ref]
            elif ray_answers.is_over(rows[ref]):
                self._ask("DELETE", f"/api/jobs/{ref}")
                self._unwanted[ref] = now + SETTLE_S

    # -- requests --

    def _rows(self, wanted: set[str], *, with_stale: bool = False) -> dict[str, object]:
        """Return what Ray says about jobs; those that it does not know are missing. `with_stale`: and all of ours."""
        if not wanted:
            return {}
        try:
            rows = ray_answers.rows_by_id(self._get("/api/jobs/"))
        except ray_rest.TooLarge:
            # Many others have jobs there: ask for ours one by one.
            return self._single_rows(wanted)
        prefixes = tuple({_owner(ref) for ref in wanted}) if with_stale else ()
        return {ref: row for ref, row in rows.items() if ref in wanted or (prefixes and ref.startswith(prefixes))}

    def _single_rows(self, wanted: set[str]) -> dict[str, object]:
        rows = {}
        for ref in wanted:
            answer = self._ask("GET", f"/api/jobs/{ref}")
            if answer.status == 200:
                rows[ref] = answer.decoded()
            elif answer.status != 404:
                raise Unavailable(f"{self._address}: HTTP {answer.status}")
        return rows

    def _get(self, path: str) -> object:
        answer = self._ask("GET", path)
        if answer.status != 200:
            raise Unavailable(f"{self._address}: HTTP {answer.status}")
        document: object = answer.decoded()
        return document

    def _ask(self, method: str, path: str, body: object = None) -> ray_rest.Answer:
        token = self._token()
        try:
            ray_rest.check_access(self.name, self._address, token)
        except errors.NotAllowed as error:
            raise Unavailable(error.message) from error
        return ray_rest.request(self._address, token, method, path, body)

    def _token(self) -> str | None:
        return ray_rest.find_token(self._token_file, self._environ)


def _is_duplicate(answer: ray_rest.Answer) -> bool:
    return "already exists" in answer.text


def _owner(ref: str) -> str:
    """Return the part of a key that all jobs of one queue have, and no other."""
    return "-".join(ref.split("-")[:2]) + "-"
