"""A throw-away Slurm on one machine: munge, one controller, two nodes with four pretend GPUs each.

Nothing in /etc is read or written. All of it is in the files of its folder, so any process can stop and start parts.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import background
from dibs.system import processes
from waits import wait_for

PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "scontrol")
NODES = ("n1", "n2")
GPUS = 4
CPUS = 16
#: Ports that one cluster needs: the controller and the nodes.
PORTS = 1 + len(NODES)
#: To have all nodes idle; usually it takes less than a second.
PATIENCE_S = 60.0


def missing() -> str | None:
    """Return why no Slurm can run here; None: it can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    return f"needs the Debian packages slurm-wlm and munge ({', '.join(absent)})" if absent else None


@dataclass(frozen=True)
class SlurmCluster:
    """One cluster; `up` and `down` are called once, the rest by tests."""

    folder: Path
    port: int
    #: Seconds for which the controller remembers a finished job.
    min_job_age_s: int = 300
    #: `cgroup` ends processes that left their session too, as real sites do.
    process_tracking: str = "linuxproc"

    kind = "slurm"
    nodes = NODES
    gpus_per_node = GPUS

    @property
    def conf(self) -> Path:
        """Return the configuration that all Slurm commands of this cluster need."""
        return self.folder / "slurm.conf"

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of Slurm's commands."""
        return {"PATH": PATH, "SLURM_CONF": str(self.conf), "LC_ALL": "C"}

    def engine_settings(self) -> dict[str, str]:
        """Return the keys of `[engines.NAME]` for this cluster, without the shared folder."""
        return {"kind": self.kind, "conf": str(self.conf)}

    def run(self, *words: str, check: bool = True, stdin: str = "") -> str:
        """Run one of Slurm's commands; return its output."""
        done = subprocess.run(
            words, env=self.environ, check=check, capture_output=True, text=True, timeout=PATIENCE_S, input=stdin
        )
        return done.stdout

    def up(self) -> None:
        """Start everything and wait until all nodes are idle."""
        for name in ("state", "log", "spool", "munge", "dev"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "munge").chmod(0o711)
        self._start_munge()
        devices = self._make_devices()
        (self.folder / "gres.conf").write_text(f"NodeName={','.join(NODES)} Name=gpu File={devices}\n")
        if self.process_tracking == "cgroup":
            text = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=yes\n"
            (self.folder / "cgroup.conf").write_text(text)
        self.conf.write_text(self._configuration())
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until every node can take jobs."""

        def states() -> list[str]:
            return self.run("sinfo", "-h", "-N", "-o", "%t", check=False).split()

        wait_for(states, lambda seen: seen == ["idle"] * len(NODES), PATIENCE_S)

    def restore(self) -> None:
        """End all jobs and start again what does not run."""
        if self._pid("slurmctld") is None:
            self.start_controller()
        for node in NODES:
            if self._pid(f"slurmd-{node}") is None:
                self.start_node(node)
        left = self.run("squeue", "-h", "-o", "%A", check=False).split()
        if left:
            self.run("scancel", *left, check=False)
        self.wait_until_idle()

    def down(self) -> None:
        """End exactly the processes that this cluster started, and those of its jobs."""
        for node in NODES:
            self.kill_node(node)
        for name in ("slurmctld", "munged"):
            background.end(self._pid(name), signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_controller(self) -> None:
        """Start the controller; it continues with the jobs that it knew."""
        cold = [] if any((self.folder / "state").iterdir()) else ["-c"]
        self.run("slurmctld", *cold, "-f", str(self.conf))

    def stop_controller(self) -> None:
        """End the controller in an orderly way, as for an upgrade."""
        background.end(self._pid("slurmctld"), signal.SIGTERM)

    def kill_controller(self) -> None:
        """Kill the controller: what it did not save yet is lost."""
        background.end(self._pid("slurmctld"), signal.SIGKILL)

    def start_node(self, node: str) -> None:
        """Start a node, or bring one back."""
        (self.folder / "spool" / node).mkdir(exist_ok=True)
        self.run("slurmd", "-N", node, "-f", str(self.conf), "-L", f"{self.folder}/log/slurmd-{node}.log")

    def kill_node(self, node: str) -> None:
        """Lose a machine: kill the node's daemon, its steps and all processes of its jobs.

        The daemon alone would not be enough, because the steps outlive it and report to the controller themselves.
        """
        mine = [f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self.conf}".encode()]
        jobs = list(processes.marked(mine))
        steps = [proc for job in jobs if (proc := processes.look(job.ppid)) and proc.comm == "slurmstepd"]
        below = [proc for job in jobs for proc in processes.descendants(job.pid)]
        background.end(self._pid(f"slurmd-{node}"), signal.SIGKILL)
        processes.send_all([*steps, *jobs, *below], signal.SIGKILL)

    def _pid(self, name: str) -> int | None:
        try:
            pid = int((self.folder / f"{name}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if background.is_running(pid) else None

    def _start_munge(self) -> None:
        """Start an authentication daemon with its own key and socket."""
        secret = self.folder / "munge" / "munge.key"
        secret.write_bytes(os.urandom(128))
        secret.chmod(0o600)
        self.run(
            *("munged", "--force", f"--key-file={secret}", f"--socket={self.folder}/munge/munge.socket"),
            *(f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/log/munged.log"),
            *(f"--seed-file={self.folder}/munge/seed", "--num-threads=2"),
        )

    def _make_devices(self) -> str:
        """Make one character device for each GPU, because Slurm hides only those; clones of /dev/null are enough.

        Without the right to make devices the first terminals of the machine serve.
        """
        try:
            for number in range(GPUS):
                os.mknod(self.folder / "dev" / f"gpu{number}", 0o020666, os.makedev(1, 3))
        except PermissionError:
            return f"/dev/tty[0-{GPUS - 1}]"
        return f"{self.folder}/dev/gpu[0-{GPUS - 1}]"

    def _configuration(self) -> str:
        host, user, folder = socket.gethostname().split(".")[0], getpass.getuser(), self.folder
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={self.port + 1 + number} CPUs={CPUS} "
            f"RealMemory=16000 Gres=gpu:{GPUS} State=UNKNOWN"
            for number, node in enumerate(NODES)
        )
        return f"""\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={self.port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.socket
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
ProctrackType=proctrack/{self.process_tracking}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MinJobAge={self.min_job_age_s}
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1,default_queue_depth=1000
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=3
MaxArraySize=10001
MaxJobCount=20000
JobRequeue=1
PropagateResourceLimits=NONE
# More processors and memory than the machine has.
SlurmdParameters=config_overrides
{nodes}
PartitionName=main Nodes={",".join(NODES)} Default=YES MaxTime=INFINITE DefMemPerCPU=100 State=UP
"""
