"""A throw-away Ray on one machine: a head and a second node with four pretend GPUs each, token authentication.

Each node is one `ray start --block` of ours. `ray stop` is never used: it ends every Ray on the machine.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import background
from dibs.system import processes
from waits import wait_for

ROOT = Path(__file__).parents[2]
#: Made by `scripts/test`, because Ray's dependencies must not mix with ours.
VENV = ROOT / ".venv-ray"
NODES = ("n1", "n2")
GPUS = 4
CPUS = 8
#: Ports that one cluster needs: of the head, its dashboard and its client server, and two of each node's agent.
PORTS = 3 + 2 * len(NODES)
#: For one node to join: half a minute on a busy machine, and over three at a load of 40.
PATIENCE_S = 420.0
ADDRESS = "127.0.0.1"


def missing() -> str | None:
    """Return why no Ray can run here; None: it can."""
    # Written when everything is installed.
    return None if (VENV / "ray.lock").exists() else "needs Ray in .venv-ray (scripts/test installs it)"


@dataclass(frozen=True)
class RayCluster:
    """One cluster; `up` and `down` are called once, the rest by tests. Its folder needs a short path for sockets."""

    folder: Path
    port: int

    kind = "ray"
    nodes = NODES
    gpus_per_node = GPUS

    @property
    def address(self) -> str:
        """Return the address of the Jobs API."""
        return f"http://{ADDRESS}:{self.port + 1}"

    @property
    def token_file(self) -> Path:
        """Return the file with the token of this cluster."""
        return self.folder / "token"

    @property
    def python(self) -> Path:
        """Return the interpreter that has the Ray of this cluster."""
        return VENV / "bin" / "python"

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of programs that use this cluster."""
        return {
            "PATH": f"{VENV}/bin:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.folder),
            "RAY_ADDRESS": f"{ADDRESS}:{self.port}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file),
            "RAY_USAGE_STATS_ENABLED": "0",
            # Its default of 60 s is not enough for a raylet on a machine with a load of 40.
            "RAY_raylet_start_wait_time_s": "600",
            "RAY_DISABLE_IMPORT_WARNING": "1",
        }

    def engine_settings(self) -> dict[str, str]:
        """Return the keys of `[engines.NAME]` for this cluster, without the shared folder."""
        return {
            "kind": self.kind,
            "address": self.address,
            "token_file": str(self.token_file),
            "python": str(self.python),
        }

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Ask the dashboard, as its owner; return the decoded answer."""
        connection = http.client.HTTPConnection(ADDRESS, self.port + 1, timeout=30)
        headers = {"Authorization": f"Bearer {self.token_file.read_text()}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        assert answer.status == 200, f"{method} {path}: {answer.status} {text[:300]}"
        return json.loads(text)

    def up(self) -> None:
        """Start one node after the other: two at the same time on one machine disturb each other."""
        self.folder.mkdir(exist_ok=True)
        self.token_file.touch(0o600)
        self.token_file.write_text(secrets.token_hex(32))
        for node in NODES:
            self.start_node(node)

    def down(self) -> None:
        """End exactly the processes that this cluster started."""
        roots = [pid for node in reversed(NODES) if (pid := self.pid(node)) is not None]
        below = [proc for pid in roots for proc in processes.descendants(pid)]
        for pid in roots:
            background.end(pid, signal.SIGTERM)
        processes.send_all(below, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def restore(self) -> None:
        """End all jobs and start again what does not run; without the head nothing of a cluster is left."""
        if self.pid("n1") is None:
            self.kill_node("n2")
        for node in NODES:
            if self.pid(node) is None:
                self.start_node(node)
        for job in self.request("GET", "/api/jobs/"):
            if job["status"] in ("PENDING", "RUNNING"):
                self.request("POST", f"/api/jobs/{job['submission_id']}/stop")

    def living(self) -> list[str]:
        """Return the nodes that the head counts as alive."""
        try:
            found = self.request("GET", "/api/v0/nodes?detail=1")["data"]["result"]["result"]
        except (OSError, http.client.HTTPException, AssertionError):
            return []
        return sorted(row["labels"].get("node", "") for row in found if row["state"] == "ALIVE")

    def start_node(self, node: str) -> None:
        """Start a node, or bring one back, and wait until the head counts it. Ray gives up soon; we try again."""
        give_up_at = time.monotonic() + PATIENCE_S
        while not self._start(node):
            if time.monotonic() > give_up_at:
                raise AssertionError(f"{node} did not start: {(self.folder / f'{node}.log').read_text()[-2000:]}")

    def _start(self, node: str) -> bool:
        number = NODES.index(node)
        words = [
            *("--num-cpus", str(CPUS), "--num-gpus", str(GPUS), "--object-store-memory", "80000000"),
            *("--node-ip-address", ADDRESS, "--labels", f"node={node}", "--disable-usage-stats", "--block"),
            # Any free ports: the default range is shared by all clusters of the machine.
            *("--min-worker-port", "0", "--max-worker-port", "0"),
            *("--dashboard-agent-listen-port", str(self.port + 3 + 2 * number)),
            *("--dashboard-agent-grpc-port", str(self.port + 4 + 2 * number)),
        ]
        if number == 0:
            words += ["--head", "--port", str(self.port), "--temp-dir", str(self.folder / "t")]
            words += ["--dashboard-host", ADDRESS, "--dashboard-port", str(self.port + 1)]
            words += ["--ray-client-server-port", str(self.port + 2)]
        else:
            words += ["--address", f"{ADDRESS}:{self.port}"]
        log = self.folder / f"{node}.log"
        pid = background.start([str(VENV / "bin" / "ray"), "start", *words], self.environ, log)
        (self.folder / f"{node}.pid").write_text(str(pid))
        raylets: list[int] = []

        def state() -> str:
            if node in self.living():
                return "up"
            if not raylets:
                raylets.extend(proc.pid for proc in self.find(node, "raylet") if proc.comm == "raylet")
            # On a busy machine a raylet gives up after 15 s without its agents; `ray start` would wait for it in vain.
            is_dead = raylets and not any(background.is_running(raylet) for raylet in raylets)
            return "dead" if is_dead or not background.is_running(pid) else ""

        if wait_for(state, patience_s=PATIENCE_S) == "up":
            return True
        self.kill_node(node)
        return False

    def kill_node(self, node: str) -> None:
        """Lose a machine: kill everything that runs on the node."""
        pid = self.pid(node)
        if pid is None:
            return
        below = processes.descendants(pid)
        background.end(pid, signal.SIGKILL)
        processes.send_all(below, signal.SIGKILL)
        wait_for(self.living, lambda seen: node not in seen)

    def pid(self, node: str) -> int | None:
        """Return the process at the root of a node; None if it does not run."""
        try:
            pid = int((self.folder / f"{node}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if background.is_running(pid) else None

    def find(self, node: str, name: str) -> list[processes.Proc]:
        """Return the processes of a node whose command line or name contains a word: `raylet`, `JobSupervisor`."""
        pid = self.pid(node)
        below = processes.descendants(pid) if pid is not None else []
        return [proc for proc in below if name in proc.comm or name in " ".join(processes.words(proc.pid))[:200]]
