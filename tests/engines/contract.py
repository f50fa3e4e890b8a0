"""What holds for a job on every engine: one suite, run against this machine, a real Slurm and a real Ray.

No test asks which engine it has. A job on a cluster costs seconds, so tests run several jobs side by side.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from dibs.errors import NoDaemon
from dibs.runner import attempts
from sites import PATIENCE_S, Site, living, packed

#: A process that ignores TERM, with a child that left its session and its parent twice.
STUBBORN = """
trap '' TERM
(setsid setsid sleep 600 &)
setsid sh -c "trap '' TERM; echo up >up; while :; do sleep 0.1; done" &
while :; do sleep 0.1; done
"""
#: Where the daemon dies: before and after the spec is written, after the engine took it, and when that is recorded.
CRASHES = ("remote:placed", "remote:written", "remote:submitted", "remote:recorded")
#: How often at each point. `DIBS_PROVE=1` takes five minutes on Slurm and up to half an hour on Ray, for which it needs
#: `-o faulthandler_timeout=0`.
ROUNDS = 50 if os.environ.get("DIBS_PROVE") else 1


class TestContract:
    """The facts."""

    def test_how_a_job_ends(self, site: Site) -> None:
        gone = site.bench.folder / "gone"
        exits = site.add("exit 7", gpus=1)
        killed = site.add("kill -9 $$", gpus=0)
        late = site.add(["sleep", "600"], gpus=0, time_limit_s=2)
        nowhere = site.add(["true"], gpus=0, cwd=str(gone))
        unknown = site.add(["./no-such-program"], gpus=0)
        job = site.until(exits, "failed")
        assert (job["exit_code"], job["signal"], job["cause"]) == (7, None, "exit")
        job = site.until(killed, "failed")
        assert (job["exit_code"], job["signal"], job["cause"]) == (None, 9, "signal")
        job = site.until(late, "timeout")
        assert 2 <= seconds(job) < 10
        for job_id, code in ((nowhere, 126), (unknown, 127)):
            job = site.until(job_id, "failed")
            assert job["cause"] == "start"
            assert site.bench.cli("follow", str(job_id)).returncode == code

    def test_what_a_job_sees(self, site: Site) -> None:
        """Its environment byte for byte, its devices, and nothing of the engine's own."""
        text = b"q\"'$ \nz\xff\\"
        given = {b"PATH": os.environb[b"PATH"], b"HOME": b"/", b"ODD": text, b"EMPTY": b""}
        jobs = {
            gpus: site.bench.add(
                "env -0 >env.$GPUS; umask >mask", gpus=gpus, engine=site.engine, umask=0o027,
                environ=packed(given | {b"GPUS": b"%d" % gpus}),
            )
            for gpus in (0, 1, 2)
        }  # fmt: skip
        for gpus, job_id in jobs.items():
            site.until(job_id, "done")
            env = read_env(site.bench.folder / f"env.{gpus}")
            assert (env["ODD"], env["EMPTY"], env["HOME"]) == (os.fsdecode(text), "", "/")
            visible = [word for word in env["CUDA_VISIBLE_DEVICES"].split(",") if word]
            indices = [word for word in env["DIBS_GPU_INDICES"].split(",") if word]
            assert len(set(visible)) == len(set(indices)) == gpus
            assert env["DIBS_JOB_ID"] == str(job_id)
            assert int(env["DIBS_PORT"]) > 0
            assert ("MASTER_PORT" in env) == (gpus > 0)
            assert not {name for name in env if name.startswith(("SLURM", "RAY_", "MUNGE"))}
        assert (site.bench.folder / "mask").read_text() == "0027\n"

    def test_cancel(self, site: Site) -> None:
        """A tree with processes that ignore TERM and that left it, a job that waits on a full engine; both twice."""
        tree = site.add(STUBBORN, gpus=site.gpus)
        others = [site.add(["sleep", "1000"], gpus=site.gpus) for _ in range(site.nodes - 1)]
        mark = f"DIBS_JOB_DIR={Path(site.until(tree, 'running')['log']).parents[1]}"
        for job_id in others:
            site.until(job_id, "running")
        site.wait((site.bench.folder / "up").exists)
        site.wait(lambda: len(living(mark)) >= 3)
        waiting = site.add("touch never", gpus=site.gpus)
        last = site.add("touch last", gpus=site.gpus)
        site.wait(lambda: site.bench.reason(waiting))
        site.bench.cancel(waiting)
        assert site.bench.job(waiting)["state"] == "cancelled"
        site.bench.cancel(waiting)
        site.bench.cancel(tree, *others, grace_s=1)
        site.bench.cancel(tree, *others, grace_s=1)
        assert site.until(tree, "cancelled")["cause"] is None
        site.wait(lambda: living(mark), lambda left: not left)
        for job_id in others:
            site.until(job_id, "cancelled")
        site.until(last, "done")
        assert not (site.bench.folder / "never").exists()

    def test_a_job_that_waits_for_a_full_engine_is_held_and_changed(self, site: Site) -> None:
        """Wherever it waits, nothing runs while it is held; afterwards it runs as it was changed."""
        others = site.fill()
        job_id = site.add("echo $DIBS_JOB_NAME >>ran", gpus=site.gpus, name="before")
        site.wait(lambda: site.bench.reason(job_id))
        # It is queued or starting, and the selection no longer matches once it is taken back.
        assert site.bench.cli("hold", f"{job_id}+{site.bench.job(job_id)['state']}").returncode == 0
        assert site.bench.job(job_id)["state"] == "held"
        site.bench.cancel(*others, grace_s=1)
        site.until(site.add("true", gpus=site.gpus), "done")
        assert site.bench.cli("edit", str(job_id), "--name", "after").returncode == 0
        assert site.bench.job(job_id)["state"] == "held"
        assert not (site.bench.folder / "ran").exists()
        site.release(job_id)
        assert site.until(job_id, "done")["attempt"] == 1
        assert (site.bench.folder / "ran").read_text() == "after\n"

    def test_the_daemon_dies_around_the_submission(self, site: Site) -> None:
        """At each point, with a job that nobody has sent yet and those that the last daemon was sending."""
        everything: list[int] = []
        for _ in range(ROUNDS):
            jobs = [site.add("echo $DIBS_JOB_ID >>ran; sleep 0.2", gpus=1, hold=True) for _ in CRASHES]
            for point, job_id in zip(CRASHES, jobs, strict=True):
                site.bench.kill()
                # It may die at once, by what the last one left.
                with contextlib.suppress(NoDaemon):
                    site.bench.start(DIBS_CRASH=point)
                site.release(job_id)
                # On an engine that does not pass this point, the job ends; on the others the daemon.
                site.wait(lambda job_id=job_id: site.is_done_or_down(job_id))
            site.bench.kill()
            site.bench.start()
            site.release(*jobs)
            for job_id in jobs:
                assert site.until(job_id, "done")["attempt"] == 1
            everything += jobs
            assert sorted(map(int, (site.bench.folder / "ran").read_text().split())) == everything

    def test_a_killed_runner_leaves_nothing_and_is_retried(self, site: Site) -> None:
        """Two attempts never run at the same time: here the command outlives its runner, elsewhere it is ended too."""
        script = """
        echo $DIBS_ATTEMPT >>attempts; test $DIBS_ATTEMPT = 2 && exit 3
        (setsid sh -c 'until test -e end; do sleep 0.1; done' &)
        until test -e end; do sleep 0.1; done
        """
        job_id = site.add(script, gpus=1, retries=1, retry_on=["lost"])
        mark = f"DIBS_JOB_DIR={Path(site.until(job_id, 'running')['log']).parents[1]}"
        site.wait(lambda: len(living(mark)) >= 2)
        started = attempts.read_started(str(attempt_folder(site, job_id)), 1)
        assert isinstance(started, attempts.Shim)
        os.kill(started.pid, signal.SIGKILL)
        (site.bench.folder / "end").touch()
        assert site.until(job_id, "failed")["exit_code"] == 3
        assert (site.bench.folder / "attempts").read_text().split() == ["1", "2"]
        assert site.bench.job(job_id)["attempts"][0]["outcome"] == "lost"
        assert not living(mark)

    def test_a_job_is_followed_and_explained(self, site: Site) -> None:
        job_id = site.add("echo one; until test -e go; do sleep 0.05; done; echo two >&2; exit 4", gpus=1, name="talk")
        after = site.add("true", gpus=0, after=[{"select": str(job_id), "when": "end"}])
        site.until(job_id, "running")
        site.wait(lambda: site.bench.cli("log", str(job_id)).stdout, lambda seen: seen == "one\n")
        # The files say that it runs; its node may be known only when the engine is asked next.
        shown = site.wait(
            lambda: json.loads(site.bench.cli("show", str(job_id), "--json").stdout),
            lambda seen: (seen["engine_ref"] is not None, seen["node"] is not None) == (site.has_names, site.has_names),
        )
        assert shown["engine"] == site.engine
        assert "talk" in site.bench.cli("status").stdout
        assert site.bench.cli("why", str(after)).stdout
        assert site.bench.cli("why", str(job_id)).returncode == 0
        (site.bench.folder / "go").touch()
        followed = site.bench.cli("log", "-f", str(job_id))
        assert (followed.stdout, followed.returncode) == ("one\ntwo\n", 4)
        site.until(after, "done")
        attempt = json.loads(site.bench.cli("show", str(job_id), "--json").stdout)
        assert (attempt["engine"], attempt["node"]) == (site.engine, shown["node"])

    def test_dependencies_across_engines(self, site: Site) -> None:
        here = site.bench.add("echo here >>order", gpus=0, engine="local")
        there = site.add("echo there >>order", gpus=0, after=[{"select": str(here), "when": "done"}])
        back = site.bench.add(
            "echo back >>order", gpus=0, engine="local", after=[{"select": str(there), "when": "done"}]
        )
        fails = site.add("false", gpus=0)
        dropped = site.bench.add("true", gpus=0, engine="local", after=[{"select": str(fails), "when": "done"}])
        assert site.until(back, "done")
        assert (site.bench.folder / "order").read_text().split() == ["here", "there", "back"]
        assert site.until(dropped, "cancelled")["cause"] == "dependency"

    def test_a_sweep_has_one_table(self, site: Site) -> None:
        command = """echo "{\\"loss\\": {x}}" >>$DIBS_REPORT; test {x} != 2"""
        done = site.bench.cli(
            "sweep", command, "-p", "x", "1", "2", "3", "--name", "s", "--engine", site.engine, "-g", "0",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        # Without a selector, `wait` waits for unfinished jobs only, and these may have finished by now.
        assert site.bench.cli("wait", "sweep:s", "--timeout", f"{PATIENCE_S:.0f}s").returncode == 1
        runs = json.loads(site.bench.cli("results", "s", "--json").stdout)["runs"]
        found = sorted((run["params"]["x"], run["state"], run["numbers"]["loss"]) for run in runs)
        assert found == [(1, "done", 1), (2, "failed", 2), (3, "done", 3)]

    def test_a_python_call(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        import dibs

        site.bench.start()
        for name, value in site.bench.environ.items():
            monkeypatch.setenv(name, value)
        with dibs.Executor(gpus=0, engine=site.engine) as pool:
            good, bad = pool.submit(divmod, 17, 5), pool.submit(divmod, 1, 0)
            assert good.result(PATIENCE_S) == (3, 2)
            assert isinstance(bad.exception(PATIENCE_S), ZeroDivisionError)
        assert site.bench.job(good.job.id)["engine"] == site.engine


def seconds(job: dict[str, Any]) -> float:
    """Return how long a job ran."""
    from datetime import datetime

    times = [datetime.fromisoformat(job[name]) for name in ("started_at", "finished_at")]
    return (times[1] - times[0]).total_seconds()


def read_env(path: Path) -> dict[str, str]:
    """Return an environment as `env -0` writes it."""
    entries = [os.fsdecode(entry).partition("=") for entry in path.read_bytes().split(b"\0") if entry]
    return {name: value for name, _, value in entries}


def attempt_folder(site: Site, job_id: int) -> Path:
    """Return the folder of the first attempt, wherever the engine keeps it."""
    (found,) = site.bench.folder.rglob(f"jobs/{job_id}/1/started.1")
    return found.parent
