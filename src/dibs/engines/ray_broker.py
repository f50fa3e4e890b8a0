"""The broker: a program that runs inside a Ray cluster, as a Ray job of its own, and starts guardians as Ray tasks.

A Ray job costs a new worker process, a second or more; a task reuses one. The daemon never imports Ray: it writes to
one file and reads another, both in a folder that it shares with the broker. Each has one writer, who closes it after
each line, and a reader who opens it again for each look, so that they work on NFS too.

    requests   the daemon's: {"start": KEY, "argv": […], "output": PATH, "gpus": 1, …}, {"stop": KEY}, {"retire": true}
    events     the broker's: {"ready": RAY_VERSION}, {"key": KEY, "node": ID, "pid": 12}, {"key": KEY, "code": 0},
               {"key": KEY, "gone": WHY}, {"bye": OFFSET}, {"failed": WHY}

This file is copied to the shared folder and run there by a Python that has Ray, so it imports nothing of dibs.

Python 3.9.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

#: Seconds without a job or a request after which the broker ends; the daemon starts another when it needs one.
IDLE_S = 600.0
#: Seconds between two looks at the requests while jobs run, and while nothing happens.
BUSY_PAUSE_S, IDLE_PAUSE_S = 0.02, 0.2
#: Seconds until a task notices that it is to stop.
SIGNAL_PAUSE_S = 0.5
#: Bytes of requests that are read at once.
READ_MAX = 1 << 20


def main() -> None:
    """Serve the folder that the first argument names until nobody needs it."""
    folder = sys.argv[1]
    try:
        import ray

        # Ray runs workers at a low priority unless told otherwise; jobs are not background work.
        ray.init(
            address="auto",
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={"env_vars": {"RAY_worker_niceness": "0"}},
        )
    except BaseException as error:
        _append(folder, [{"failed": f"{type(error).__name__}: {error}"[:500]}])
        raise
    Broker(ray, folder).run()


class Broker:
    """The tasks of one folder."""

    def __init__(self, ray: Any, folder: str) -> None:
        self._ray = ray
        self._folder = folder
        self._read_to = 0
        self._is_retired = False
        #: The stream of results of each key: first where it runs, then its exit code.
        self._streams: dict[str, Any] = {}
        # By default a worker that had a GPU ends after one task, so that nothing of it stays on the GPU. Here the
        # worker itself never uses a GPU: the command does, and it is gone.
        self._task = ray.remote(max_retries=0, max_calls=0, num_returns="streaming")(carry_out)

    def run(self) -> None:
        """Start and follow tasks; return when there is nothing to do for a long time."""
        _append(self._folder, [{"ready": self._ray.__version__}])
        busy_at = time.monotonic()
        while True:
            requests = self._new_requests()
            events = [event for request in requests for event in self._obey(request)]
            events += self._look()
            if events:
                _append(self._folder, events)
            if requests or self._streams:
                busy_at = time.monotonic()
            if not self._streams and (self._is_retired or time.monotonic() - busy_at > IDLE_S):
                break
            if not self._streams:
                time.sleep(IDLE_PAUSE_S)
        # What was written after our last look is beyond this offset: the daemon sends it to another broker.
        _append(self._folder, [{"bye": self._read_to}])

    def _new_requests(self) -> list[Any]:
        try:
            with open(os.path.join(self._folder, "requests"), "rb") as file:
                file.seek(self._read_to)
                lines = file.read(READ_MAX).rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        if lines:
            self._read_to += len(lines) + 1
        return [json.loads(line) for line in lines.split(b"\n") if line]

    def _obey(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        if "start" in request:
            return self._start(request)
        if "stop" in request:
            stream = self._streams.get(request["stop"])
            if stream is not None:
                # A task that waits is dropped; one that runs gets SIGINT, which it answers itself.
                self._ray.cancel(stream)
        elif "retire" in request:
            self._is_retired = True
        return []

    def _start(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        key = request["start"]
        if key in self._streams:
            return []
        options: dict[str, Any] = {"num_gpus": request["gpus"], "num_cpus": request["cpus"], "name": key}
        for name in ("memory", "resources", "label_selector"):
            if request.get(name):
                options[name] = request[name]
        try:
            self._streams[key] = self._task.options(**options).remote(request["argv"], request["output"])
        except (ValueError, TypeError) as error:
            return [{"key": key, "gone": str(error)[:300]}]
        return []

    def _look(self) -> list[dict[str, Any]]:
        """Return what happened to the tasks since the last look; wait a little if nothing did."""
        if not self._streams:
            return []
        keys = {stream: key for key, stream in self._streams.items()}
        streams = list(keys)
        if not self._ray.wait(streams, num_returns=1, timeout=BUSY_PAUSE_S, fetch_local=False)[0]:
            return []
        ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0, fetch_local=False)
        return [event for stream in ready for event in self._follow(keys[stream], stream)]

    def _follow(self, key: str, stream: Any) -> list[dict[str, Any]]:
        try:
            event = {"key": key, **self._ray.get(next(stream))}
        except StopIteration:
            event = {"key": key, "gone": "its task ended without a result"}
        except self._ray.exceptions.TaskCancelledError:
            event = {"key": key, "gone": "stopped"}
        except Exception as error:  # noqa: BLE001 - whatever Ray reports: the start is over, and its files say how
            event = {"key": key, "gone": f"{type(error).__name__}: {_first_line(error)}"}
        if "node" not in event:
            del self._streams[key]
        return [event]


def carry_out(argv: list[str], output: str) -> Iterator[dict[str, Any]]:
    """Run a guardian: the task. Runs in a worker, in whose environment Ray has named the devices."""
    import ray

    child: Any = None
    is_asked = False

    def stop(*_: object) -> None:
        nonlocal is_asked
        is_asked = True
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGTERM)

    # Ray cancels by SIGINT, which may be ignored where `ray start` ran in the background of a shell.
    before = signal.signal(signal.SIGINT, stop)
    try:
        with open(output, "ab") as file:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, restore_signals=True
            )
        if is_asked:
            stop()
        yield {"node": ray.get_runtime_context().get_node_id(), "pid": child.pid}
        _wait(child)
        yield {"code": child.returncode}
    finally:
        signal.signal(signal.SIGINT, before)


def _wait(child: Any) -> None:
    """Wait for a child. Ray's SIGINT is no real signal and ends no wait, so this one ends by itself again and again."""
    pidfd = os.pidfd_open(child.pid)
    try:
        while child.poll() is None:
            select.select([pidfd], [], [], SIGNAL_PAUSE_S)
    finally:
        os.close(pidfd)


def _append(folder: str, events: list[dict[str, Any]]) -> None:
    content = "".join(json.dumps(event) + "\n" for event in events).encode()
    fd = os.open(os.path.join(folder, "events"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:300]


if __name__ == "__main__":
    main()
