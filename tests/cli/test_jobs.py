"""Every verb that takes jobs, through the real daemon, as a user or a script would use it."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bench import Bench, wait_for
from terminal import Terminal

pytestmark = pytest.mark.usefixtures("started")

LONG = ["sleep", "1000"]


def add(bench: Bench, *words: str, **kwargs: Any) -> int:
    """Submit a command from the command line; return its id."""
    done = bench.cli("add", *words, **kwargs)
    assert (done.returncode, done.stderr) == (0, "")
    return int(done.stdout)


def read_json(bench: Bench, *words: str, code: int = 0) -> Any:
    """Return the one JSON document that a verb prints."""
    done = bench.cli(*words, "--json")
    assert (done.returncode, done.stderr) == (code, "")
    return json.loads(done.stdout)


# -- add --


def test_add_prints_only_the_id(bench: Bench) -> None:
    done = bench.cli("add", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert bench.until(1)["state"] == "done"
    assert bench.cli("submit", "true").stdout == "2\n"


def test_on_a_terminal_add_prints_a_receipt(bench: Bench) -> None:
    with Terminal(bench, "add", "true") as person:
        code, shown = person.end()
    assert code == 0
    assert shown.replace("\r", "") == "1\n1 queued: 1 GPU, starts now; dibs follow 1\n"


def test_all_options_reach_the_job(bench: Bench) -> None:
    (bench.folder / "sub").mkdir()
    words = [
        *("-g2", "--prefer", "3", "--gpu-type", "pretend*", "--visible", "index", "-n", "vit", "-P", "proj"),
        *("--priority", "high", "-t", "2h", "-e", "A=1", "-e", "B=2", "-C", "sub", "-o", "out-{id}.txt"),
        *("--tag", "x", "--tag", "y"),
    ]
    job = bench.job(add(bench, *words, "C=3", "sh", "-c", "echo $A$B$C $CUDA_VISIBLE_DEVICES; pwd"))
    assert (job["gpus"], job["name"], job["project"], job["priority"]) == (2, "vit", "proj", 10)
    assert (job["time_limit_s"], job["tags"], job["request"]["gpu_type"]) == (7200, ["x", "y"], "pretend*")
    assert job["cwd"] == str(bench.folder / "sub")
    bench.until(1)
    output = bench.folder / "sub" / "out-1.txt"
    assert output.read_text() == f"123 3,0\n{bench.folder}/sub\n"
    assert bench.cli("log", "1").stdout == output.read_text()


def test_a_job_gets_the_environment_and_umask_of_the_submitter(bench: Bench) -> None:
    mask = os.umask(0o027)
    try:
        job_id = add(bench, "touch made; echo $MINE", environ={"MINE": "yes"})
    finally:
        os.umask(mask)
    bench.until(job_id)
    assert bench.log(job_id) == "yes\n"
    assert stat.S_IMODE((bench.folder / "made").stat().st_mode) == 0o640


def test_several_words_are_passed_to_the_program_unchanged(bench: Bench) -> None:
    job_id = add(bench, "printf", "%s|", "a b", "$HOME", "*", "")
    bench.until(job_id)
    assert bench.log(job_id) == "a b|$HOME|*||"


def test_a_job_gets_exactly_the_named_gpus(bench: Bench) -> None:
    job = bench.until(add(bench, "--gpu-ids", "3,1", "true"))
    assert sorted(job["gpu_indices"]) == [1, 3]


def test_add_reads_one_job_per_line_from_stdin_or_a_file(bench: Bench) -> None:
    lines = "echo one\n\n# a comment\necho two | cat\n"
    done = bench.cli("add", "-g", "0", "-n", "batch", "-", input=lines)
    assert (done.returncode, done.stdout) == (0, "1\n2\n")
    (bench.folder / "jobs.txt").write_text(lines)
    assert json.loads(bench.cli("add", "--file", "jobs.txt", "--json").stdout) == {"ids": [3, 4]}
    assert [bench.until(job_id)["state"] for job_id in (1, 2, 3, 4)] == ["done"] * 4
    assert bench.log(2) == "two\n"
    assert bench.job(1)["name"] == "batch"


def test_an_invalid_line_queues_nothing(bench: Bench) -> None:
    bench.start()
    done = bench.cli("add", "-", input="true\n" + "x" * 200_000 + "\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "stdin, line 2" in done.stderr
    assert bench.cli("status", "-q").stdout == ""


def test_an_impossible_request_is_refused(bench: Bench) -> None:
    done = bench.cli("add", "-g", "5", "true")
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr == "dibs: the job asks for 5 GPUs; this machine has 4. Use -g 4 or less.\n"
    assert bench.cli("add", "--gpu-ids", "9", "true").returncode == 2
    assert bench.cli("add", "--priority", "99999999999", "true").returncode == 2
    assert bench.cli("status", "-q").stdout == ""


def test_on_a_machine_without_gpus_add_says_that_the_job_gets_none(tmp_path_factory: pytest.TempPathFactory) -> None:
    bench = Bench(tmp_path_factory.mktemp("own"), devices="none")
    try:
        done = bench.cli("add", "true")
        assert (done.returncode, done.stdout) == (0, "1\n")
        assert done.stderr.startswith("dibs: this machine has no GPU")
        assert bench.cli("add", "-g", "1", "true").returncode == 69
        assert "No GPUs" in bench.cli("gpus").stderr
    finally:
        bench.close()


def test_a_devices_setting_different_from_the_daemons_is_an_error(bench: Bench) -> None:
    bench.start()
    done = bench.cli("add", "true", environ={"DIBS_DEVICES": "fake:2"})
    assert done.returncode == 2
    assert "dibs daemon restart" in done.stderr


# -- status, show, why --


def test_status_is_a_plain_table_when_piped(bench: Bench) -> None:
    bench.until(bench.add("exit 3", name="bad\x1b[2Jname"))
    bench.until(bench.add(["sleep", "1000"], gpus=4), "started")
    add(bench, "-n", "later", "true")
    done = bench.cli("status")
    assert (done.returncode, done.stderr) == (0, "")
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["ID", "NAME", "STATE", "GPU", "SINCE", "REASON", "COMMAND"]
    assert rows[2].split()[:3] == ["1", "bad\\e[2Jname", "failed"]
    assert "exit 3" in rows[2]
    assert rows[0].split()[1:4] == ["sleep", "running", "0-3"]
    assert rows[1].split()[1:4] == ["later", "queued", "x1"]
    assert "needs 1 GPU; 0 of 4 free" in rows[1]
    assert "\x1b" not in done.stdout
    assert datetime.fromisoformat(rows[0].split()[4]).utcoffset() == datetime.now().astimezone().utcoffset()


def test_status_prints_ids_and_json_for_selectors(bench: Bench) -> None:
    bench.add_many([{"command": "true", "name": f"n{k}", "gpus": 0} for k in range(4)])
    bench.wait_all()
    assert bench.cli("status", "-q", "1,3-4").stdout == "1\n3\n4\n"
    assert bench.cli("status", "name:n1", "@", "-q").stdout == "2\n4\n"
    document = read_json(bench, "status", "name:n2")
    assert [job["name"] for job in document["jobs"]] == ["n2"]
    assert document["queue"] == {"paused": False}
    assert bench.cli("status", "99").returncode == 3
    assert bench.cli("status", "99").stderr == "dibs: there is no job 99 (the newest is 4).\n"
    assert "\x1b[" in bench.cli("--color", "always", "status").stdout


def test_show_prints_all_details(bench: Bench) -> None:
    job_id = add(bench, "-e", "WANDB_API_KEY=hidden", "-t", "1h", "echo line; exit 2")
    bench.until(job_id)
    bench.retry(job_id)
    wait_for(lambda: bench.job(job_id), lambda job: job["attempt"] == 2 and job["state"] == "failed")
    shown = bench.cli("show", str(job_id)).stdout
    for text in (
        "job 1  failed",
        "echo line; exit 2",
        "exit 2",
        "WANDB_API_KEY=***",
        "1h00m",
        "log, last 10 lines\nline",
    ):
        assert text in shown
    assert "ATTEMPT" in shown
    assert "  submitted" in shown
    assert "  retry requested" in shown
    assert read_json(bench, "show", "1")["exit_code"] == 2
    add(bench, "true")
    assert [job["id"] for job in read_json(bench, "show", "1", "2")] == [1, 2]
    assert read_json(bench, "show", "@")["id"] == 2
    assert bench.cli("show", "99").returncode == 3


def test_why_answers_for_every_state(bench: Bench) -> None:
    bench.until(bench.add(LONG, gpus=4), "started")
    bench.add("true")
    assert bench.cli("why", "2").stdout.startswith(
        "job 2: needs 1 GPU; 0 of 4 free, GPU 0-3: job 1. It starts when job 1 finishes;"
    )
    assert bench.cli("why", "1").stdout.startswith("job 1: it is running on FAKE-0")
    told = read_json(bench, "why", "2")
    assert (told["id"], told["state"]) == (2, "queued")
    assert bench.cli("why", "1", "2").stdout.count("\n") == 2


def test_why_and_show_say_when_and_where_a_job_is_expected_to_start(bench: Bench) -> None:
    running = bench.until(bench.add(LONG, gpus=4, time_limit_s=3600), "started")
    bench.add("true", time_limit_s=60)
    must_have_ended = datetime.fromisoformat(running["started_at"]) + timedelta(hours=1)
    expected = read_json(bench, "show", "2")["expected_start"]
    assert datetime.fromisoformat(expected["latest"]) == must_have_ended
    assert datetime.fromisoformat(expected["earliest"]) < must_have_ended
    assert read_json(bench, "show", "1")["expected_start"] is None
    told = bench.cli("why", "2").stdout
    assert re.search(r" Expected to start (by .* \(within (59m\d\ds|1h00m)\), on GPU 0)\.\n", told), told
    assert re.search(r"\nstarts +by .* \(within (59m\d\ds|1h00m)\), on GPU 0\n", bench.cli("show", "2").stdout)
    assert (expected["gpu_ids"], expected["gpu_indices"]) == (["FAKE-0"], [0])
    assert read_json(bench, "why", "2")["expected_start"]["gpu_ids"] == ["FAKE-0"]
    starts = bench.client.get("/v1/queue/starts")["starts"]
    assert [(start["id"], start["expected_start"]["latest"]) for start in starts] == [(2, expected["latest"])]


def test_why_says_what_would_make_a_forecast_possible(bench: Bench) -> None:
    bench.until(bench.add(LONG, gpus=4), "started")
    bench.add("true")
    unknown = "Its start time is unknown: job 1 has no time limit and no similar job has finished yet."
    assert f"{unknown} A time limit (-t) would help.\n" in bench.cli("why", "2").stdout
    assert "\nstarts     unknown: job 1 has no time limit" in bench.cli("show", "2").stdout
    told = read_json(bench, "why", "2")
    assert (told["expected_start"], told["unknown"]["hint"]) == (None, "A time limit (-t) would help.")
    bench.cli("hold", "2")
    assert bench.cli("why", "2").stdout == "job 2: held by you. `dibs unhold 2` releases it.\n"


def test_successful_jobs_give_the_duration_of_similar_ones(bench: Bench) -> None:
    for job_id in bench.add_many([{"command": f"true {n}"} for n in range(3)], gpus=4):
        bench.until(job_id)
    bench.until(bench.add(LONG, gpus=4, time_limit_s=3600), "started")
    bench.add_many([{"command": command} for command in ("true 7", "true 8", "false", "true")], gpus=4)
    # A command that never ran is expected to take as long as other jobs of its user.
    assert [bench.job(job_id)["expected_start"] is None for job_id in (5, 6, 7, 8)] == [False] * 4


def test_a_paused_queue_has_no_next_starts(bench: Bench) -> None:
    bench.start()
    bench.client.post("/v1/queue", {"paused": True})
    bench.add("true")
    assert bench.client.get("/v1/queue/starts") == {"starts": []}
    assert bench.cli("why", "1").stdout == "job 1: the queue is paused. `dibs resume` resumes it.\n"


# -- log --


def test_log_prints_bytes_unchanged_when_piped(bench: Bench) -> None:
    job_id = bench.add(r"printf 'a\r\033[2J\377\000b'")
    bench.until(job_id)
    done = subprocess.run(
        [sys.executable, "-m", "dibs", "log", str(job_id)], env=bench.environ, capture_output=True, check=True
    )
    assert done.stdout == b"a\r\x1b[2J\xff\0b"


def test_log_on_a_terminal_keeps_only_colours(bench: Bench) -> None:
    job_id = bench.add(r"printf '\033[31mred\033[0m \033[2J\n'")
    bench.until(job_id)
    with Terminal(bench, "log", str(job_id)) as person:
        code, shown = person.end()
    assert (code, shown) == (0, "\x1b[31mred\x1b[0m \\e[2J\r\n\x1b[0m")


def test_log_shows_the_last_lines_and_earlier_attempts(bench: Bench) -> None:
    job_id = bench.add("seq 5; echo attempt $DIBS_ATTEMPT; exit 1")
    bench.until(job_id)
    assert bench.cli("log", "-n", "2", "1").stdout == "5\nattempt 1\n"
    assert bench.cli("log", "-n0", "1").stdout == ""
    bench.retry(job_id)
    wait_for(lambda: bench.job(job_id), lambda job: job["attempt"] == 2 and job["state"] == "failed")
    assert bench.cli("log", "-n1", "1").stdout == "attempt 2\n"
    assert bench.cli("log", "-n1", "--attempt", "1", "@").stdout == "attempt 1\n"
    followed = bench.cli("log", "-f", "-n1", "--attempt", "1", "1")
    assert (followed.returncode, followed.stdout) == (1, "attempt 1\n")
    missing = bench.cli("log", "--attempt", "3", "1")
    assert (missing.returncode, missing.stderr) == (3, "dibs: job 1 has no attempt 3; its newest is 2.\n")


def test_the_last_lines_of_a_log_with_a_huge_one_are_bounded(bench: Bench) -> None:
    job_id = bench.add("head -c 10000000 /dev/zero | tr '\\0' x; echo; echo end")
    bench.until(job_id)
    done = bench.cli("log", "-n", "2", str(job_id))
    assert len(done.stdout) == 2 * 64 * 1024
    assert done.stdout.endswith("xx\nend\n")
    assert "9.4M before this are omitted" in done.stderr
    assert bench.cli("log", "-n", "1", str(job_id)).stdout == "end\n"
    assert len(bench.cli("log", str(job_id)).stdout) == 10_000_005


def test_log_of_a_job_without_output_says_so(bench: Bench) -> None:
    bench.until(bench.add(LONG, gpus=4), "started")
    bench.add("true")
    done = bench.cli("log", "2")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("dibs: job 2 has no output yet: it is queued (needs 1 GPU")


def test_log_expects_one_job(bench: Bench) -> None:
    bench.add_many([{"command": "true", "gpus": 0}] * 3)
    done = bench.cli("log", "all")
    assert (done.returncode, done.stderr) == (2, "dibs: log expected one job, got 3: 1, 2, 3.\n")
    assert bench.cli("log", "name:nothing").returncode == 3


@pytest.mark.parametrize("words", [("log", "-f"), ("follow",)])
def test_follow_runs_to_the_end_and_returns_the_exit_code(bench: Bench, words: tuple[str, ...]) -> None:
    job_id = bench.add("echo first; while [ ! -e go ]; do sleep 0.01; done; echo last; exit 7")
    with Terminal(bench, *words, str(job_id)) as person:
        person.until("first")
        (bench.folder / "go").touch()
        code, shown = person.end()
    assert (code, shown) == (7, "first\r\nlast\r\n")


def test_follow_waits_for_a_job_that_has_not_started(bench: Bench) -> None:
    bench.until(bench.add(LONG, gpus=4), "started")
    bench.add("echo begun")
    with Terminal(bench, "follow", "2") as person:
        person.until("dibs: job 2 waiting: ")
        bench.cancel(1)
        code, shown = person.end()
    assert (code, shown.endswith("\r\nbegun\r\n")) == (0, True)


# -- wait --


def test_wait_returns_whether_all_jobs_succeeded(bench: Bench) -> None:
    assert bench.cli("wait").returncode == 0
    bench.add("true", gpus=0)
    assert bench.cli("wait", "1").returncode == 0
    bench.add("while [ ! -e go ]; do sleep 0.01; done; false", gpus=0)
    (bench.folder / "go").touch()
    assert bench.cli("wait", "1", "2").returncode == 1
    assert bench.cli("wait").returncode == 0, "an old failure is nobody's fault now"
    assert bench.cli("wait", "name:nothing").returncode == 3
    assert read_json(bench, "wait", "all", code=1) == {
        "total": 2, "finished": 2, "bad": 1, "over": True, "held": []
    }  # fmt: skip


def test_wait_ends_at_its_timeout(bench: Bench) -> None:
    bench.add(LONG)
    done = bench.cli("wait", "--timeout", "0.2s")
    assert (done.returncode, done.stdout) == (124, "")
    assert done.stderr == "dibs: 1 of 1 jobs are not finished yet.\n"


def test_wait_without_a_selector_covers_the_unfinished_jobs(bench: Bench) -> None:
    bench.until(bench.add("false", gpus=0))
    bench.add("while [ ! -e go ]; do sleep 0.01; done", gpus=0)
    with Terminal(bench, "wait") as person:
        person.until("0 of 1 finished")
        (bench.folder / "go").touch()
        code, _ = person.end()
    assert code == 0


def test_wait_survives_a_restart_of_the_daemon(bench: Bench) -> None:
    bench.add("while [ ! -e go ]; do sleep 0.01; done; exit 1", gpus=0)
    with Terminal(bench, "wait") as person:
        person.until("0 of 1 finished")
        bench.kill()
        (bench.folder / "go").touch()
        code, _ = person.end()
    assert code == 1


def test_a_waiting_client_does_not_restart_a_stopped_daemon_at_once(bench: Bench) -> None:
    """`dibs daemon stop` returns though a client waits for jobs, and the wait continues at the next daemon."""
    bench.add("while [ ! -e go ]; do sleep 0.01; done", gpus=0)
    with Terminal(bench, "wait") as person:
        person.until("0 of 1 finished")
        assert bench.cli("daemon", "stop").returncode == 0
        assert bench.pid() is None
        (bench.folder / "go").touch()
        assert bench.cli("daemon", "start").returncode == 0
        code, _ = person.end()
    assert code == 0


# -- cancel, retry --


def test_cancel_reports_what_it_did(bench: Bench) -> None:
    bench.until(bench.add("true"))
    bench.until(bench.add(LONG, gpus=4), "started")
    bench.add("true")
    done = bench.cli("cancel", "all", "--grace", "5s")
    assert (done.returncode, done.stdout) == (0, "2 stopping: TERM now, KILL in 5s\n3 cancelled\n")
    assert done.stderr == "1 already done\n"
    assert bench.until(2)["state"] == "cancelled"
    assert bench.cli("cancel", "3").returncode == 0
    missing = bench.cli("cancel", "99")
    assert (missing.returncode, missing.stdout) == (3, "")


def test_jobs_that_did_not_change_for_one_reason_share_a_line(bench: Bench) -> None:
    for _ in range(3):
        bench.until(bench.add("true", gpus=0))
    assert bench.cli("cancel", "-y", "all").stderr == "1-3 already done\n"
    assert bench.cli("hold", "all").stderr == "1-3 done: only a queued job can be held\n"


def test_cancel_can_wait_for_the_end(bench: Bench) -> None:
    bench.until(bench.add(LONG), "started")
    acted = read_json(bench, "cancel", "--wait", "1")
    assert acted["changed"] == [{"id": 1, "state": "cancelled"}]
    assert bench.job(1)["state"] == "cancelled"


def test_cancelling_several_running_jobs_asks_for_confirmation_on_a_terminal(bench: Bench) -> None:
    for _ in range(2):
        bench.until(bench.add(LONG), "started")
    with Terminal(bench, "cancel", "all") as person:
        person.until("stop 2 running jobs (1, 2)? [y/N] ")
        person.type("n\n")
        code, shown = person.end()
    assert code == 130
    assert "nothing was cancelled" in shown
    assert [job["state"] for job in bench.jobs()] == ["running", "running"]
    with Terminal(bench, "cancel", "1") as person:
        assert person.end()[0] == 0
    with Terminal(bench, "cancel", "-y", "all") as person:
        assert person.end()[0] == 0
    assert bench.until(2)["state"] == "cancelled"


def test_retry_queues_jobs_that_did_not_succeed(bench: Bench) -> None:
    bench.until(bench.add("[ -e go ]", gpus=0))
    bench.until(bench.add("true", gpus=0))
    (bench.folder / "go").touch()
    done = bench.cli("retry", "all")
    assert (done.returncode, done.stdout) == (0, "1 queued\n")
    assert done.stderr == "2 done: it succeeded; --done runs it again\n"
    assert wait_for(lambda: bench.job(1), lambda job: job["state"] == "done")["attempt"] == 2
    assert read_json(bench, "retry", "--done", "2")["changed"] == [{"id": 2, "state": "queued"}]


# -- gpus --


def test_gpus_shows_the_holders(bench: Bench) -> None:
    job_id = bench.add(LONG, gpu_ids=["2"])
    bench.until(job_id, "started")
    header, *rows = bench.cli("gpus").stdout.splitlines()
    assert header.split() == ["GPU", "NAME", "MEMORY", "USE", "TEMP", "STATE", "HOLDERS"]
    told = [row.rsplit("  ", 1)[1] for row in rows]
    assert [told[0], told[1], told[3]] == ["-", "-", "-"]
    assert re.fullmatch(r"\S+ job 1 \(pid \d+\) \S+[+-]\d\d:\d\d", told[2])
    gpus = read_json(bench, "gpus")["gpus"]
    assert [gpu["state"] for gpu in gpus] == ["free", "free", "leased", "free"]
    assert gpus[2]["holders"][0]["job"] == "1"


def test_a_gpu_that_is_kept_for_a_bigger_job_is_reserved(bench: Bench) -> None:
    bench.until(bench.add(LONG, gpus=3, time_limit_s=3600), "started")
    bench.add("true", gpus=4)
    rows = bench.cli("gpus").stdout.splitlines()
    assert rows[4].split()[-4:] == ["reserved", "for", "job", "2"]
    gpu = read_json(bench, "gpus")["gpus"][3]
    assert (gpu["state"], gpu["reserved_for"]) == ("free", 2)
    machine = read_json(bench, "status")["machine"]
    assert (machine["free"], [place["reserved_for"] for place in machine["devices"]]) == (0, [None, None, None, 2])


def test_a_gpu_that_our_own_limit_leaves_to_others_is_free(tmp_path: Path) -> None:
    folder = tmp_path / "limited"
    folder.mkdir()
    bench = Bench(folder, DIBS_MAX_GPUS="3")
    try:
        bench.until(bench.add(LONG, gpus=3), "started")
        bench.add("true", gpus=1)
        (row,) = [row for row in bench.cli("gpus").stdout.splitlines() if "free" in row.split()]
        assert "left free for others (max_gpus)" in row
        (gpu,) = [gpu for gpu in read_json(bench, "gpus")["gpus"] if gpu["state"] == "free"]
        assert (gpu["reserved_for"], gpu["kept_by"]) == (None, "max_gpus")
        machine = read_json(bench, "status")["machine"]
        assert machine["free"] == 1
        assert [place["kept_by"] for place in machine["devices"] if place["state"] == "free"] == ["max_gpus"]
    finally:
        bench.close()


def test_the_failures_of_a_day_are_in_the_overview(bench: Bench) -> None:
    bench.until(bench.add("false", gpus=0))
    assert read_json(bench, "status")["failed_lately"] == {"failed": 1}


def test_a_drained_gpu_says_so_once(bench: Bench) -> None:
    bench.cli("gpus", "drain", "0", "--reason", "fan is loud")
    assert bench.cli("gpus").stdout.splitlines()[1].count("drained") == 1


def test_a_long_note_and_why_are_wrapped_between_words(bench: Bench) -> None:
    bench.until(bench.add(LONG, gpus=4), "started")
    bench.add("true")
    with Terminal(bench, "why", "2", NO_COLOR="1") as person:
        lines = person.end()[1].replace("\r", "").strip().split("\n")
    assert len(lines) > 1
    assert all(len(line) <= 80 and not line.startswith(" ") for line in lines)
    assert " ".join(lines) == bench.cli("why", "2").stdout.strip()
