"""The output of `dibs status`: order, folded rows, reasons shown once; watching; hints."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bench import Bench, wait_for
from dibs.cli import repaint, status_view
from dibs.cli.screen import Screen
from dibs.cli.verbs import status
from dibs.version import __version__
from terminal import CTRL_C, Terminal

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
NARROW = Screen(is_terminal=True, is_coloured=False, width=80)
WIDE = Screen(is_terminal=True, is_coloured=False, width=200)


def job(job_id: int, state: str = "queued", **fields: Any) -> Any:
    """Return a job as the daemon shows it, with the fields that `status` reads."""
    at = (NOW - timedelta(seconds=1000 - job_id)).isoformat()
    is_over = state in ("done", "failed", "cancelled", "timeout", "lost")
    return {
        "id": job_id, "name": "train", "project": "default", "state": state, "priority": 0, "command": "train.py",
        "reason": "needs 1 GPU; none is free" if state == "queued" else None, "cause": None, "exit_code": None,
        "signal": None, "remark": None, "gpus": 1, "gpu_indices": [], "submitted_at": at, "sweep": None, "batch": None,
        "started_at": None if state in ("held", "queued") else at, "finished_at": at if is_over else None,
        "time_limit_s": None,
    } | fields  # fmt: skip


def answer(*jobs: Any, **machine: Any) -> Any:
    """Return the daemon's answer with these jobs."""
    counts: dict[str, int] = {}
    for each in jobs:
        counts[each["state"]] = counts.get(each["state"], 0) + 1
    told = {"gpus": 2, "free": 0, "restriction": None, "problem": None, "devices": []} | machine
    return {"jobs": list(jobs), "queue": {"paused": False}, "counts": counts, "machine": told}


def device(index: int, state: str = "free", job: int | None = None, user: str | None = None) -> Any:
    """Return a device as the scheduler sees it."""
    return {"index": index, "id": f"FAKE-{index}", "state": state, "job": job, "user": user}


def painted(view: Screen, told: Any) -> list[str]:
    """Return the lines of the output."""
    return status_view.paint(view, told, NOW).split("\n")


def test_the_first_two_lines_summarize_the_machine() -> None:
    devices = [
        device(0, "leased", 12), device(1, "leased", 12), device(2, "leased", user="bob"), device(3, "drained"),
        device(4, "unhealthy"), device(5),
    ]  # fmt: skip
    told = answer(job(12, "running", name="vit"), job(13), gpus=6, free=1, devices=devices)
    lines = painted(WIDE, told)
    assert lines[0] == "6 GPUs, 1 free, 1 drained, 1 unhealthy, 1 held by bob; 1 running, 1 queued"
    assert lines[1] == "GPU 0-1: job 12 vit · 2: bob · 3: drained · 4: unhealthy · 5: free"


def test_a_gpu_that_is_kept_for_a_bigger_job_is_not_free() -> None:
    told = answer(job(290), gpus=2, free=1, devices=[device(0), device(1) | {"reserved_for": 290}])
    lines = painted(WIDE, told)
    assert lines[0] == "2 GPUs, 1 free, 1 reserved; 1 queued"
    assert lines[1] == "GPU 0: free · 1: reserved for job 290"


def test_a_gpu_that_our_own_limit_leaves_to_others_is_free() -> None:
    told = answer(job(290), gpus=2, free=1, devices=[device(0, "leased", 12), device(1) | {"kept_by": "max_gpus"}])
    lines = painted(WIDE, told)
    assert lines[0] == "2 GPUs, 1 free; 1 queued"
    assert lines[1] == "GPU 0: job 12 · 1: free, left for others (max_gpus)"


def test_failures_are_counted_for_a_day() -> None:
    told = answer(job(1, "failed"), job(2, "failed"))
    told["failed_lately"] = {"failed": 1}
    assert painted(WIDE, told)[0] == "2 GPUs, 0 free; 1 failed in 24 h"


def test_names_are_as_wide_as_the_terminal_allows() -> None:
    name = "vit-large-patch16-384-imagenet21k-run-7"
    assert f" {name} " in painted(NARROW, answer(job(1, "running", name=name)))[2]
    long = painted(NARROW, answer(job(1, name=name * 3, command="python " + "x" * 90)))
    assert all(len(line) <= 80 for line in long)


def test_a_paused_queue_a_restriction_and_a_full_disk_are_shown() -> None:
    told = answer(
        restriction="DIBS_DEVICES=0", disk="the disk of /x is nearly full (1M free); no job can start when it is full"
    )
    told["queue"]["paused"] = True
    lines = painted(WIDE, told)
    assert lines[0].endswith("; the queue is paused; dibs resume")
    assert lines[1:3] == ["restricted: DIBS_DEVICES=0", told["machine"]["disk"]]
    assert lines[3] == status_view.EMPTY


def test_running_jobs_come_first_then_the_next_then_the_latest() -> None:
    jobs = [job(1, "done"), job(2, "failed", cause="exit", exit_code=3), job(3), job(4, "held"), job(5, "running")]
    jobs.append(job(6, priority=10))
    rows = status_view.arrange(answer(*jobs), {})
    assert [[row.first["id"] for row in part] for part in rows] == [[5], [6, 3, 4], [2, 1]]
    lines = painted(NARROW, answer(*jobs))
    assert lines.count("") == 2
    assert any("exit 3" in line for line in lines)


def test_waiting_jobs_are_sorted_by_expected_start() -> None:
    def expected(soonest_s: int, latest_s: int) -> Any:
        return {
            name: (NOW + timedelta(seconds=seconds)).isoformat()
            for name, seconds in (("earliest", soonest_s), ("latest", latest_s))
        }

    starts = {1: expected(3600, 7200), 2: expected(300, 300), 3: expected(0, 60)}
    text = status_view.paint(NARROW, answer(*(job(n) for n in range(1, 5))), NOW, starts)
    rows = [line.split("  ") for line in text.split("\n")[2:] if line.strip()[:1].isdigit()]
    assert [row[0].strip() for row in rows] == ["3", "2", "1", "4"]
    assert ["in <1m00s" in text, "in 5m00s" in text, "in 1h00m-2h00m" in text] == [True] * 3


def test_many_jobs_of_one_submission_are_one_row() -> None:
    same = {"submitted_at": (NOW - timedelta(hours=1)).isoformat()}
    jobs = [job(n, "running" if n < 3 else "queued", **same) for n in range(1, 41)]
    lines = painted(WIDE, answer(*jobs, job(41, name="other")))
    assert lines[2].split()[0] == "1-40"
    assert "2 running, 38 queued; needs 1 GPU" in lines[2]
    assert len(lines) == 5


@pytest.mark.parametrize("key", [{"batch": 7}, {"sweep": "lr"}])
def test_batches_and_sweeps_are_folded_too(key: dict[str, Any]) -> None:
    rows = status_view.fold([job(n, **key) for n in range(1, 11)], [])
    assert [row.counts for row in rows] == [{"queued": 10}]
    few = status_view.fold([job(n, **key) for n in range(1, 4)], [])
    assert [row.counts for row in few] == [{}] * 3


def test_a_row_counts_all_jobs_of_its_group_also_those_that_are_not_listed() -> None:
    group = {"sweep": "lr", "project": "default", "batch": 3, "submitted_at": NOW.isoformat(), "first": 1, "last": 60}
    told = answer(*(job(n, "done", sweep="lr") for n in range(41, 61)))
    told["groups"] = [group | {"counts": {"done": 57, "failed": 3}}]
    assert painted(WIDE, told)[2].split()[:3] == ["1-60", "lr", "failed"]
    assert "57 done, 3 failed" in painted(WIDE, told)[2]
    told["groups"] = [group | {"last": 70, "counts": {"running": 1, "done": 59}}]
    told["jobs"].append(job(70, "running", sweep="lr", gpu_indices=[2]))
    lines = painted(WIDE, told)
    assert (lines[2].split()[:4], len(lines)) == (["1…70", "lr", "running", "2"], 3)
    assert "1 running, 59 done" in lines[2]


def test_a_batch_is_counted_in_full_on_a_terminal_in_a_pipe_and_in_json(bench: Bench) -> None:
    bench.add_many([{"command": "true"}] * 60, gpus=0)
    bench.wait_all()
    with Terminal(bench, NO_COLOR="1") as person:
        assert "60 done" in person.end()[1]
    rows = bench.cli("status").stdout.splitlines()
    assert (len(rows), rows[1].split()[0], "60 done" in rows[1]) == (2, "1-60", True)
    (group,) = json.loads(bench.cli("status", "--json").stdout)["groups"]
    assert (group["first"], group["last"], group["counts"]) == (1, 60, {"done": 60})
    assert len(bench.cli("status", "all").stdout.splitlines()) == 61


def test_a_finished_sweep_stays_until_newer_ones_push_it_out(bench: Bench) -> None:
    """Twenty newer jobs of one batch are one newer thing."""
    bench.cli("sweep", "-g0", "--name", "lr", "true {x}", "-p", "x", "1", "2", "3", "4", "5")
    bench.wait_all()
    bench.add_many([{"command": "true"}] * 30, gpus=0)
    bench.wait_all()
    rows = [line.split()[:3] for line in bench.cli("status").stdout.splitlines()[1:]]
    assert rows == [["6-35", "true", "done"], ["1-5", "lr", "done"]]


def test_the_same_reason_is_shown_once() -> None:
    text = "\n".join(painted(NARROW, answer(job(1), job(2), job(3))))
    assert text.count("needs 1 GPU") == 1
    assert text.count("as job 1") == 2


def test_a_long_reason_is_wrapped() -> None:
    reason = "needs 2 GPUs; 0 of 8 free, " + ", ".join(f"GPU {n}: job {n}" for n in range(8))
    lines = painted(NARROW, answer(job(1, reason=reason)))
    assert all(len(line) <= 80 for line in lines)
    assert "needs 2 GPUs; 0 of 8 free, GPU" in " ".join(lines)
    assert lines[2].endswith("  train.py")
    assert len(lines) <= 2 + status_view.REASON_LINES


def test_waiting_jobs_beyond_a_screen_are_counted() -> None:
    told = answer(*(job(n) for n in range(1, 21)))
    told["counts"]["queued"] = 5000
    assert painted(NARROW, told)[-1] == "4,992 more are waiting: dibs status unfinished"


def test_a_running_job_shows_its_reported_metrics() -> None:
    lines = painted(NARROW, answer(job(1, "running", report={"loss": 0.25, "step": 10})))
    assert lines[-1].endswith("loss=0.25 step=10  train.py")


def test_the_answer_of_an_old_daemon_is_accepted() -> None:
    told = answer({key: value for key, value in job(1, "running").items() if key != "batch"})
    del told["machine"]["devices"]
    assert painted(NARROW, told)[0] == "2 GPUs, 0 free; 1 running"


# -- through the daemon --


def test_leases_of_other_users_and_own_jobs_are_on_the_gpu_line(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=2, name="vit"), "started")
    with Terminal(bench, "status", NO_COLOR="1") as person:
        assert "GPU 0-1: job 1 vit · 2-3: free" in person.end()[1]
    devices = bench.client.get("/v1/jobs")["machine"]["devices"]
    assert [(each["state"], each["job"]) for each in devices] == [("leased", 1)] * 2 + [("free", None)] * 2


def test_the_next_job_is_shown_in_a_queue_of_a_thousand(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=4), "started")
    ids = bench.add_many([{"command": "true"}] * 1005)
    urgent = bench.add("true", name="urgent", priority=100)
    shown = [job["id"] for job in bench.client.get("/v1/jobs")["jobs"]]
    assert (urgent in shown, ids[-1] in shown, shown == sorted(set(shown))) == (True, False, True)
    with Terminal(bench, "status", NO_COLOR="1") as person:
        rows = person.end()[1].replace("\r", "").split("\n")
    assert rows[5].split()[:2] == [str(urgent), "urgent"]
    assert any("1,005 queued" in row for row in rows)


def test_the_next_jobs_have_an_expected_start(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=4, time_limit_s=7200), "started")
    bench.add("true", time_limit_s=60)
    with Terminal(bench, "status", NO_COLOR="1") as person:
        rows = person.end()[1].replace("\r", "").split("\n")
    assert rows[3].split()[:4] == ["1", "sleep", "running", "0-3"]
    assert rows[5].split()[:5] == ["2", "true", "queued", "x1", "in"]
    assert rows[5].split()[5].startswith(("<1h", "<2h00m"))


def test_piped_status_of_selected_jobs_is_one_row_per_job_without_escapes(bench: Bench) -> None:
    bench.add_many([{"command": "true"}] * 9, gpus=4)
    bench.wait_all()
    shown = bench.cli("status", "-w", "all").stdout
    assert len(shown.splitlines()) == 10
    assert "\x1b" not in shown
    assert bench.cli("status", "--watch=1", "-q").stdout.split() == [str(n) for n in range(1, 10)]


def test_watching_repaints_until_ctrl_c_and_leaves_the_last_output(bench: Bench) -> None:
    with Terminal(bench, "status", "-w0.1", NO_COLOR="1") as person:
        person.until("No jobs yet")
        bench.add(["sleep", "1000"], name="later")
        person.until("job 1 later")
        person.type(CTRL_C)
        code, shown = person.end()
    assert code == 0
    assert shown.index(repaint.ENTER) < shown.index(repaint.HOME, len(repaint.ENTER))
    assert "later" in shown.split(repaint.LEAVE)[1]


def test_watching_waits_for_a_daemon_that_was_stopped(bench: Bench) -> None:
    bench.start()
    with Terminal(bench, "status", "-w0.1", NO_COLOR="1") as person:
        person.until("No jobs yet")
        bench.stop()
        person.until("the daemon is not running any more")
        assert bench.pid() is None
        bench.add("true", name="again")
        person.until("again")
        person.type(CTRL_C)
        assert person.end()[0] == 0


def test_a_terminated_watch_restores_the_screen(bench: Bench) -> None:
    import signal

    with Terminal(bench, "status", "-w") as person:
        person.until("No jobs yet")
        person.signal(signal.SIGTERM)
        code, shown = person.end()
    assert code == 128 + signal.SIGTERM
    assert repaint.LEAVE in shown


def test_output_that_is_too_high_is_truncated_and_marked() -> None:
    shown = repaint.frame("\n".join(f"line {n}" for n in range(100)), 24)
    assert shown.count("\r\n") == 23
    assert "... 78 more lines" in shown


@pytest.mark.parametrize("word", ["-w0", "--watch=soon", "--watch=-1"])
def test_an_invalid_interval_is_refused(bench: Bench, word: str) -> None:
    done = bench.cli("status", word)
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected seconds such as 2 or 0.5" in done.stderr


# -- hints --


def test_an_old_daemon_is_reported_with_what_to_do() -> None:
    told = answer()
    assert "an older version" in status.on_skew(told)[0]
    told["daemon"] = {"version": "0.0.1", "pid": 1}
    expected = f"the daemon is 0.0.1, this is dibs {__version__}: `dibs daemon restart`; running jobs continue."
    assert status.on_skew(told) == [expected]
    told["daemon"]["version"] = __version__
    assert status.on_skew(told) == []


def test_a_hint_is_shown_once_a_day(tmp_path: Path) -> None:
    assert status.on_logout(None, tmp_path) == []
    assert status.on_logout("all ends at logout", tmp_path) == [
        "all ends at logout. `dibs daemon install` keeps them running."
    ]
    assert status.on_logout("all ends at logout", tmp_path) == []
    stamp = tmp_path / "told-logout"
    os.utime(stamp, (time.time() - status.DAY_S - 1,) * 2)
    assert len(status.on_logout("all ends at logout", tmp_path)) == 1
    assert status.on_logout("all ends at logout", tmp_path / "missing") == []


def test_show_mentions_each_fact_once(bench: Bench) -> None:
    job_id = bench.add(["sleep", "1000"])
    bench.until(job_id, "started")
    runner = Path(f"/proc/{bench.job(job_id)['pid']}/stat").read_text().rpartition(")")[2].split()[1]
    bench.kill()
    os.kill(int(runner), 9)
    os.kill(int(bench_pid(bench, job_id)), 9)
    wait_for(lambda: bench.job(job_id)["state"], lambda state: state == "lost")
    remark = bench.job(job_id)["remark"]
    shown = bench.cli("show", str(job_id)).stdout.partition("\nevents\n")[0]
    assert remark
    assert shown.count(remark) == 1
    assert shown.splitlines()[0] == f"job {job_id}  lost: {remark}"


def bench_pid(bench: Bench, job_id: int) -> int:
    """Return the pid of a job's command without a daemon, from its record."""
    from dibs.runner import records

    running = records.read_running(f"{bench.home}/jobs/{job_id}/1", 1)
    assert running is not None
    return running.pid


def test_show_lists_script_warning_metric_and_notify_command(bench: Bench) -> None:
    (bench.folder / "job.sh").write_text("#!/bin/sh\necho hi\n")
    done = bench.cli(
        *("add", "-g0", "--hold", "--array", "7", "-t", "1h", "--signal", "USR1@2m", "--wait-tree"),
        *("--notify", "curl https://chat/token", "--script", "job.sh"),
    )
    assert done.returncode == 0, done.stderr
    shown = bench.cli("show", "1").stdout
    facts = [re.split("  +", line) for line in shown.splitlines()]
    assert ["script", "job.sh, as it was at submission"] in facts
    assert ["warning", "USR1 2m00s before the time limit"] in facts
    assert ["lasts", "until all of its processes have ended"] in facts
    assert ["index", "7"] in facts
    assert ["notify", "runs a command when it finishes"] in facts
    # Users put tokens into that command.
    assert "token" not in shown
    assert bench.job(1)["notifies"] is True
    bench.add("true", gpus=0)
    assert not {"script", "warning", "lasts", "index", "notify"} & {
        line.split("  ")[0] for line in bench.cli("show", "2").stdout.splitlines()
    }


def test_show_lists_every_attempt_with_its_log(bench: Bench) -> None:
    job_id = bench.add("echo attempt $DIBS_ATTEMPT; exit 3", retries=1)
    wait_for(lambda: bench.job(job_id), lambda job: job["state"] == "failed" and job["attempt"] == 2)
    shown = bench.cli("show", str(job_id)).stdout
    table = shown.partition("\nattempts\n")[2].partition("\n\n")[0].splitlines()
    assert table[0].split() == ["ATTEMPT", "STATE", "CODE", "GPU", "STARTED", "FINISHED", "LOG"]
    assert [row.split()[:4] for row in table[1:]] == [["1", "failed", "3", "0"], ["2", "failed", "3", "0"]]
    assert [row.split()[-1] for row in table[1:]] == [f"{bench.home}/jobs/{job_id}/{n}/log" for n in (1, 2)]
    assert "attempt 2" in shown
    assert shown.splitlines()[0] == f"job {job_id}  failed: exit 3"


def test_the_overview_asks_for_a_few_waiting_jobs_of_each_group(bench: Bench) -> None:
    """A thousand rows that share one line of the screen are not sent."""
    bench.add_many([{"command": "true"}] * 30, hold=True)
    bench.add("true", hold=True, name="alone")
    few = bench.client.get("/v1/jobs", [("per_group", "4")])
    assert [job["id"] for job in few["jobs"]] == [1, 2, 3, 4, 31]
    assert [group["counts"] for group in few["groups"]] == [{"held": 30}]
    assert len(bench.client.get("/v1/jobs")["jobs"]) == 31
    rows = [line.split()[:3] for line in bench.cli("status").stdout.splitlines()[1:]]
    assert rows == [["1-30", "true", "held"], ["31", "alone", "held"]]
    assert len(bench.cli("status", "-q").stdout.split()) == 31
