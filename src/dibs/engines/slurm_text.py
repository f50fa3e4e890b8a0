"""The texts of Slurm's programs: what they are called with, what they print, and its words in ours.

Pure. Formats are our own (`-O` with sizes and a mark after each column), because `--json` differs between releases. A
text that does not have the expected form raises ValueError: it says nothing about any job.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dibs.engines.protocol import Needs, Node, Seen

#: The mark after each column.
MARK = "|"
JOB_FORMAT = "JobArrayID:64|,State:24|,Reason:80|,exit_code:12|,NodeList:100|,Name:120|"
NODE_FORMAT = "NodeList:100|,StateLong:40|,CPUsState:40|,Memory:20|,Gres:300|,GresUsed:300|"

#: States in which a start waits, runs, or was lost by the cluster; in all others it has ended.
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
RUNNING = frozenset({"CONFIGURING", "RUNNING", "COMPLETING", "STOPPED", "SUSPENDED", "SIGNALING", "STAGE_OUT"}) | {
    "RESIZING",
}
LOST = frozenset({"NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REVOKED"})
#: States in words, where the word alone is not plain.
STATE_WORDS = {
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node could not boot",
    "PREEMPTED": "preempted by another job",
    "TIMEOUT": "Slurm's own time limit",
    "OUT_OF_MEMORY": "out of memory",
    "CANCELLED": "cancelled in Slurm",
    "DEADLINE": "its deadline passed",
}
#: Reasons for which a job waits, in words.
REASON_WORDS = {
    "None": "the next scheduling round",
    "Resources": "free resources",
    "Priority": "jobs with a higher priority",
    "Dependency": "another job",
    "BeginTime": "its begin time",
    "JobHeldUser": "its release: it is held by you (scontrol release)",
    "JobHeldAdmin": "its release: it is held by the administrator",
    "Licenses": "a licence",
    "Reservation": "its reservation",
    "ReqNodeNotAvail": "a node that is not available",
    "PartitionDown": "its partition, which is down",
    "PartitionInactive": "its partition, which is inactive",
    "QOSMaxJobsPerUserLimit": "your own jobs: the limit of jobs of its quality of service is reached",
    "QOSMaxGRESPerUser": "your own jobs: the limit of GPUs of its quality of service is reached",
    "AssocGrpGRES": "your group's GPUs",
    "AssocMaxJobsLimit": "your own jobs: the limit of jobs of your account is reached",
}
#: Reasons that never pass by themselves.
HOPELESS = {
    "PartitionConfig": "no node of the partition can satisfy it",
    "PartitionNodeLimit": "it asks for more nodes than the partition has",
    "PartitionTimeLimit": "its time limit, and five minutes for its end, is longer than the partition allows",
    "BadConstraints": "no node has what it asks for",
    "DependencyNeverSatisfied": "its dependency can never be satisfied",
    "AccountNotAllowed": "the account may not use the partition",
    "QOSNotAllowed": "the quality of service is not allowed there",
    "InvalidAccount": "there is no such account",
    "InvalidQOS": "there is no such quality of service",
}
#: What sbatch says about a request that it will never accept.
FINAL_REFUSALS = (
    "invalid partition", "invalid account", "invalid qos", "requested node configuration is not available",
    "unrecognized option", "unrecognised option", "invalid option", "invalid generic resource",
    "requested time limit is invalid", "more processors requested than permitted", "invalid feature",
    "memory required by task is not available", "node count specification invalid", "access/permission denied",
    "user's group not permitted", "invalid --", "invalid job array", "unable to open file",
    "requires an argument", "is ambiguous", "doesn't allow an argument",
)  # fmt: skip

#: Options of sbatch that dibs sets itself, or that would break it.
OURS = frozenset(
    ("--array", "-a", "--job-name", "-J", "--output", "-o", "--error", "-e", "--input", "-i", "--export",
     "--export-file", "--chdir", "-D", "--wrap", "--parsable", "--requeue", "--no-requeue", "--wait", "-W",
     "--test-only", "--dependency", "-d", "--hold", "-H", "--begin", "-b", "--open-mode", "--kill-on-invalid-dep",
     "--nodes", "-N", "--ntasks", "-n", "--ntasks-per-node", "--help", "-h", "--usage", "--version", "-V",
     "--time", "-t", "--get-user-env", "--quiet", "-Q", "--clusters", "-M", "--uid", "--gid")
)  # fmt: skip
#: Short options of sbatch without a value: others may follow in the same word.
FLAGS = frozenset("hHIkOQsuvVW")
INSTEAD = {
    "--dependency": "--after", "-d": "--after", "--begin": "--begin", "-b": "--begin", "--array": "--array",
    "-a": "--array", "--hold": "--hold", "-H": "--hold", "--time": "--time", "-t": "--time", "--output": "--output",
    "-o": "--output", "--job-name": "--name", "-J": "--name", "--chdir": "--chdir", "-D": "--chdir",
    "--clusters": "another engine", "-M": "another engine",
}  # fmt: skip


def options_problem(text: str) -> str | None:
    """Return why options for sbatch cannot be used; None if nothing is known to be wrong."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        return f"the options {shlex.quote(text)} cannot be read: {str(error).lower()}"
    may_be_value = False
    for word in words:
        if not word.startswith("-") or word == "-":
            if not may_be_value:
                return f'expected options such as -p gpu, got "{word}"'
            may_be_value = False
            continue
        names, may_be_value = _options_in(word)
        for name in names:
            # sbatch takes the beginning of a long name for the whole.
            own = next((own for own in sorted(OURS) if own == name or (name[1] == "-" and own.startswith(name))), None)
            if own is not None:
                instead = f"; use {INSTEAD[own]} of dibs" if own in INSTEAD else ""
                return f"{name} is set by dibs{instead}"
    return None


def _options_in(word: str) -> tuple[list[str], bool]:
    """Return the options in one word, and whether the next word may be the value of the last one."""
    if word.startswith("--"):
        name, mark, _ = word.partition("=")
        return [name], not mark
    names = []
    for place, letter in enumerate(word[1:], 2):
        names.append(f"-{letter}")
        if letter not in FLAGS:
            return names, place == len(word)
    return names, False


def request_words(needs: Needs, nice: int) -> list[str]:
    """Return the options of sbatch for what a job needs; those of the user come last, and win."""
    words = ["--nodes=1", "--ntasks=1"]
    if needs.gpus:
        kind = f"{needs.gpu_type}:" if needs.gpu_type and re.fullmatch(r"[\w.-]+", needs.gpu_type) else ""
        words.append(f"--gres=gpu:{kind}{needs.gpus}")
    if needs.cpus:
        words.append(f"--cpus-per-task={needs.cpus}")
    if needs.mem:
        words.append(f"--mem={math.ceil(needs.mem / 2**20)}M")
    if needs.time_limit_s is not None:
        # The runner keeps the limit to the second; this only ends what the runner cannot. Slurm counts minutes, and
        # looks every half minute.
        words.append(f"--time={math.ceil(needs.time_limit_s / 60) + 3}")
    if nice:
        words.append(f"--nice={nice}")
    return [*words, *shlex.split(needs.options)]


def script(argv: Sequence[str], index_from: str = "", more: Sequence[str] = ()) -> str:
    """Return the batch script that becomes the runner; `index_from` is the folder of an array's links."""
    words = shlex.join(argv)
    if index_from:
        words = f'{shlex.join(argv[:-1])} {shlex.quote(index_from)}/"$SLURM_ARRAY_TASK_ID"/{shlex.quote(argv[-1])}'
    words = " ".join((words, *map(shlex.quote, more)))
    # `exec`: signals and the end of the step must reach the runner, not a shell above it.
    return f"#!/bin/sh\nexec {words}\n"


class JobLine(NamedTuple):
    """One job in the answer of squeue."""

    ref: str
    name: str
    seen: Seen


def job_lines(text: str) -> Iterator[JobLine]:
    """Yield the jobs of an answer of squeue."""
    for ref, state, reason, status, nodes, name in _columns(text, 6):
        yield JobLine(ref, name, seen(state, reason, status, nodes))


def seen(state: str, reason: str, status: str, nodes: str) -> Seen:
    """Return a job's state in Slurm in the words of engines; `status` is a raw wait status."""
    if state in WAITING:
        return Seen("waiting", why_waiting(reason))
    if state in RUNNING:
        return Seen("running", "" if state in ("RUNNING", "COMPLETING") else state.lower(), node=nodes)
    if state in LOST:
        return Seen("gone", STATE_WORDS.get(state, state.lower()), node=nodes)
    number = int(status)
    code, signal = (None, number & 127) if number & 127 else (number >> 8, None)
    word = STATE_WORDS.get(state, state.lower().replace("_", " "))
    detail = "" if reason in ("None", "") else f": {reason}"
    return Seen("ended", f"{word}{detail}", code, signal, nodes)


def why_waiting(reason: str) -> str:
    """Return why a job waits, in words."""
    # With details behind it: "ReqNodeNotAvail, UnavailableNodes:n1".
    word = reason.split(",")[0].strip("()")
    if word in HOPELESS:
        return f"it can never start: {HOPELESS[word]} ({word})"
    if word in REASON_WORDS:
        return f"waits for {REASON_WORDS[word]} ({word})" if word != "None" else f"waits for {REASON_WORDS[word]}"
    return f"waits ({reason})"


def is_final(refusal: str) -> bool:
    """Tell whether what sbatch said means that it will never accept the job."""
    lowered = refusal.lower()
    return any(words in lowered for words in FINAL_REFUSALS)


def node_lines(text: str) -> list[Node]:
    """Return the nodes of an answer of sinfo; one that is in several partitions is there once."""
    found: dict[str, Node] = {}
    for name, state, cpus, memory, gres, used in _columns(text, 6):
        total, kind = _gpus(gres)
        is_up = not any(
            word in state for word in ("down", "drain", "fail", "inval", "unknown", "power", "not_resp", "*")
        )
        counts = cpus.split("/")
        if len(counts) != 4:
            raise ValueError(f"expected CPUs as A/I/O/T, got {cpus[:40]!r}")
        free = max(0, total - _gpus(used)[0]) if is_up else 0
        found[name] = Node(name, is_up, total, free, kind, int(counts[3]), int(memory) * 2**20)
    return list(found.values())


def _gpus(gres: str) -> tuple[int, str]:
    """Return the number of GPUs in a list of generic resources such as `gpu:a100:4(S:0-1),shard:8`, and their type."""
    total, kinds = 0, []
    for name, kind, count in re.findall(r"(?:^|,)(\w+):(?:([^:,()]+):)?(\d+)", gres):
        if name == "gpu":
            total += int(count)
            kinds += [kind] if kind else []
    return total, ", ".join(dict.fromkeys(kinds))


def _columns(text: str, count: int) -> Iterator[list[str]]:
    """Yield the columns of each line; the last one may contain the mark."""
    # One by one: an answer may be large.
    for found in re.finditer(r"[^\n]+", text):
        line = found.group()
        if not line.strip():
            continue
        columns = [column.strip() for column in line.rstrip().removesuffix(MARK).split(MARK, count - 1)]
        if len(columns) != count:
            raise ValueError(f"expected {count} columns, got {line[:80]!r}")
        yield columns


def job_id(stdout: str) -> str | None:
    """Return the id in what sbatch printed; None: there is none."""
    # Sites put programs of their own in front of sbatch, which print more. With several clusters a name follows the id.
    found = re.findall(r"^(\d+)(?:;.*)?$", stdout, re.MULTILINE)
    return found[-1] if found else None


def refusal_words(stderr: str) -> str:
    """Return what sbatch said, in one line."""
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ").strip() for line in stderr.splitlines()]
    told = [
        line.removeprefix("Batch job submission failed: ") for line in lines if line and not line.startswith("Try ")
    ]
    return "; ".join(dict.fromkeys(told))[:500] or "sbatch gave no reason"


#: What Slurm's programs say if they find no slurm.conf, neither a file nor a server that has it.
UNCONFIGURED = ("establish a configuration source", "unable to open slurm.conf", "/slurm.conf: no such file")


def trouble_words(stderr: str, engine: str) -> str:
    """Return why a program of Slurm gave no answer, in one line."""
    if any(words in stderr.lower() for words in UNCONFIGURED):
        return (
            f"Slurm's programs find no slurm.conf; name it with `dibs config set engines.{engine}.conf PATH` "
            "(the variable SLURM_CONF of your shell does not reach the daemon)"
        )
    lines = [re.sub(r"^(\w+: )?(error: |fatal: )?", "", line.strip()) for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))[:300]


def base_ids(refs: Iterable[str]) -> list[str]:
    """Return the ids of jobs and whole arrays that contain these references."""
    return list(dict.fromkeys(ref.partition("_")[0] for ref in refs))
