"""No-op jobs through dibs on real clusters, beside the same jobs given to the cluster by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from benchmarks import clusters, queues, sandboxes, stamps
from benchmarks.errors import Failed
from benchmarks.plans import Plan, tell
from benchmarks.sandboxes import Sandbox
from benchmarks.series import Book, Key
from benchmarks.stamps import Sheet

NAME = "engines"
TITLE = "No-op jobs on two nodes with four pretend GPUs each"

ARRAY, SWEEP = "Slurm, array by hand", "Slurm, one dibs sweep"
#: With `reuse = "0s"`, as the array by hand has it.
APART = "Slurm, one dibs sweep, one task per job"
REST, JOBS, BROKER = "Ray, REST by hand", "Ray, dibs, jobs of Ray", "Ray, dibs, broker"
#: Seconds until a run is given up: on a busy machine a job of Ray takes ten.
PATIENCE_S, PATIENCE_PER_JOB_S = 120.0, 15.0


def measure(plan: Plan, book: Book) -> None:
    """Measure each cluster, by hand and through dibs in turn."""
    for kind, one in (("slurm", _slurm_round), ("ray", _ray_round)):
        try:
            tell(f"starting {kind}")
            with clusters.opened(kind) as cluster:
                for number in range(plan.sizes.own_rounds):
                    tell(f"{kind}: round {number + 1} of {plan.sizes.own_rounds}")
                    one(plan, book, cluster)
        except Failed as failure:
            book.note(NAME, f"{kind}: {failure}")


def _slurm_round(plan: Plan, book: Book, cluster: Any) -> None:
    count = plan.sizes.slurm_jobs
    _one(plan, book, ARRAY, count, lambda box, sheet: _array(box, cluster, sheet, count))
    with sandboxes.opened(plan.work) as box:
        _start(box, cluster)
        _one(plan, book, SWEEP, count, lambda _, sheet: _sweep(box, sheet, count, gpus=0))
    with sandboxes.opened(plan.work) as box:
        _start(box, cluster, reuse="0s")
        _one(plan, book, APART, count, lambda _, sheet: _sweep(box, sheet, count, gpus=0))


def _ray_round(plan: Plan, book: Book, cluster: Any) -> None:
    jobs, tasks = plan.sizes.ray_jobs, plan.sizes.broker_jobs
    _one(plan, book, REST, jobs, lambda _, sheet: _rest(cluster, sheet, jobs))
    with sandboxes.opened(plan.work) as box:
        _start(box, cluster, broker="never")
        _one(plan, book, JOBS, jobs, lambda _, sheet: _sweep(box, sheet, jobs, gpus=1))
    with sandboxes.opened(plan.work) as box:
        _start(box, cluster, broker="always")
        _warm_broker(box)
        _one(plan, book, BROKER, tasks, lambda _, sheet: _sweep(box, sheet, tasks, gpus=1))


def _one(plan: Plan, book: Book, subject: str, count: int, submit: Callable[[Sandbox, Sheet], None]) -> None:
    """Time a run, from the submission to the end of the last job as the job itself noted it."""
    tell(f"{subject}: {count} jobs")
    with sandboxes.opened(plan.work) as box:
        sheet = stamps.sheet(plan.stamp, box.folder)
        began_ns = time.monotonic_ns()
        submit(box, sheet)
        submitted_ns = time.monotonic_ns()
        found = sheet.wait(count, PATIENCE_S + PATIENCE_PER_JOB_S * count)
    stamps.check(found, range(count), slots=count)
    took_s = (max(stamp.ended_ns for stamp in found) - began_ns) / 1e9
    book.add(Key(NAME, subject, "jobs/s"), "", count / took_s)
    book.add(Key(NAME, subject, "all"), "s", took_s)
    book.add(Key(NAME, subject, "submit of all"), "ms", (submitted_ns - began_ns) / 1e6)


def _array(box: Sandbox, cluster: Any, sheet: Sheet, count: int) -> None:
    script = f"#!/bin/sh\n{sheet.program} {sheet.file} 0 $SLURM_ARRAY_TASK_ID\n"
    words = ["sbatch", f"--array=0-{count - 1}", f"--chdir={box.folder}", f"--output={box.folder}/%a.out"]
    cluster.run(*words, stdin=script)


def _rest(cluster: Any, sheet: Sheet, count: int) -> None:
    for number in range(count):
        body = {"entrypoint": sheet.command(number), "entrypoint_num_gpus": 1, "entrypoint_num_cpus": 0}
        cluster.request("POST", "/api/jobs/", body)


def _start(box: Sandbox, cluster: Any, **more: str) -> None:
    """Start a daemon that knows the cluster."""
    shared = box.folder / "shared"
    shared.mkdir()
    keys = {**cluster.engine_settings(), "shared": str(shared), **more}
    config = box.folder / "config.toml"
    config.write_text("[engines.lab]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    box.environ["DIBS_CONFIG"] = str(config)
    queues.start(box, "fake:1")


def _sweep(box: Sandbox, sheet: Sheet, count: int, gpus: int) -> None:
    command = f"{sheet.program} {sheet.file} 0 {{n}}"
    where = ["-g", str(gpus), "--engine", "lab", "--name", sheet.file.parent.name]
    box.run(["dibs", "sweep", command, "-p", f"n=range(0,{count})", *where])


def _warm_broker(box: Sandbox) -> None:
    """Run jobs until one goes through a broker: it is started beside the first one."""

    def reference() -> str:
        job = box.run(["dibs", "add", "-g", "1", "--engine", "lab", "true"]).strip()
        box.run(["dibs", "wait", job], patience_s=PATIENCE_S)
        return str(json.loads(box.run(["dibs", "show", job, "--json"]))["engine_ref"])

    deadline = time.monotonic() + PATIENCE_S
    while ":" not in reference():
        if time.monotonic() > deadline:
            raise Failed("no broker came up")
