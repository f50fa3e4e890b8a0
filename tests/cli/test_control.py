"""Changing jobs and GPUs after submission on the command line: through the real daemon, with real processes."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from bench import Bench, wait_for
from dibs.cli.verbs import kill
from dibs.errors import DibsError
from dibs.model.jobs import JobId
from dibs.store.writer import Store
from dibs.submission import drafts, job_options
from dibs.system import paths, processes
from terminal import CTRL_C, Terminal

LONG = ["sleep", "1000"]
#: Records each USR1 in its log, and has a child that does the same.
LISTENER = """
trap 'echo got it' USR1
sh -c 'trap "echo child got it" USR1; echo ready; while :; do sleep 0.02; done' &
while :; do sleep 0.02; done
"""


def state(bench: Bench, job_id: int) -> str:
    return str(bench.job(job_id)["state"])


def refused(bench: Bench, *words: str, code: int = 2) -> str:
    """Return the one-line error of a command."""
    done = bench.cli(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done
    assert done.stderr.startswith("dibs: ")
    return done.stderr


def busy(bench: Bench) -> int:
    """Occupy all GPUs, so that later jobs wait."""
    job_id = bench.add(LONG, gpus=4)
    bench.until(job_id, "started")
    return job_id


# -- kill, pause, resume --


def test_a_signal_reaches_the_whole_tree(bench: Bench) -> None:
    job_id = bench.add(LISTENER)
    wait_for(lambda: bench.job(job_id)["started_at"] and "ready" in bench.log(job_id))
    told = bench.cli("kill", "-s", "usr1", str(job_id))
    assert (told.returncode, told.stdout, told.stderr) == (0, f"{job_id} running: SIGUSR1 sent\n", "")
    wait_for(lambda: bench.log(job_id), lambda log: "\ngot it" in log and "child got it" in log)
    assert state(bench, job_id) == "running"


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["-9", "12"], ["-s", "9", "12"]),
        (["-USR1", "12", "--json"], ["-s", "USR1", "12", "--json"]),
        (["12", "-sigint"], ["12", "-s", "sigint"]),
        (["-stop", "12"], ["-s", "stop", "12"]),
        (["-s", "-9", "12"], ["-s", "-9", "12"]),
        (["-s9", "--json", "-q", "12"], ["-s9", "--json", "-q", "12"]),
        (["--", "-9"], ["--", "-9"]),
    ],
)
def test_the_notation_of_the_kill_command_is_parsed(typed: list[str], words: list[str]) -> None:
    assert kill.usual(typed) == words


def test_the_notation_of_the_kill_command_is_accepted(bench: Bench) -> None:
    bench.until(bench.add(LONG), "started")
    assert bench.cli("kill", "-CONT", "1").stdout == "1 running: SIGCONT sent\n"
    assert bench.cli("kill", "-9", "1").stdout == "1 running: SIGKILL sent\n"
    assert bench.until(1)["signal"] == 9
    assert bench.cli("kill", "-9", "1").stderr == "1 failed: only running jobs can receive signals\n"


@pytest.mark.parametrize("word", ["KILL", "sigkill", "9"])
def test_a_signal_has_three_notations(bench: Bench, word: str) -> None:
    job_id = bench.add(LONG)
    bench.until(job_id, "started")
    bench.cli("kill", "-s", word, str(job_id))
    ended = bench.until(job_id)
    assert (ended["state"], ended["cause"], ended["signal"]) == ("failed", "signal", 9)


def is_stopped(pid: int) -> bool:
    proc = processes.look(pid)
    return proc is not None and proc.is_stopped


def test_a_paused_job_keeps_its_gpu_across_a_restart_and_resumes(bench: Bench) -> None:
    job_id = bench.add(LONG)
    pid = bench.until(job_id, "started")["pid"]
    paused = bench.cli("pause", str(job_id))
    assert (paused.returncode, paused.stdout) == (0, f"{job_id} paused\n")
    assert "keeps its GPUs" in paused.stderr
    wait_for(lambda: is_stopped(pid))
    bench.stop()
    bench.start()
    assert (state(bench, job_id), len(bench.free_devices()), is_stopped(pid)) == ("paused", 3, True)
    assert bench.cli("resume", "paused").stdout == f"{job_id} running\n"
    wait_for(lambda: not is_stopped(pid))


def test_the_time_limit_of_a_paused_job_does_not_run(bench: Bench) -> None:
    """A job that is not paused and has a longer limit ends first."""
    job_id = bench.add(LONG, time_limit_s=0.5)
    pid = bench.until(job_id, "started")["pid"]
    bench.cli("pause", str(job_id))
    wait_for(lambda: is_stopped(pid) or state(bench, job_id) == "timeout")
    if state(bench, job_id) == "paused":
        assert bench.until(bench.add(LONG, time_limit_s=1.0))["state"] == "timeout"
        assert state(bench, job_id) == "paused"
        bench.cli("resume", str(job_id))
    assert bench.until(job_id)["state"] == "timeout"


def test_a_paused_job_can_be_cancelled(bench: Bench) -> None:
    job_id = bench.add(LONG)
    pid = bench.until(job_id, "started")["pid"]
    bench.cli("pause", str(job_id))
    wait_for(lambda: is_stopped(pid))
    bench.cli("cancel", str(job_id))
    assert bench.until(job_id)["state"] == "cancelled"


# -- move --


def test_a_job_moved_to_the_front_runs_first(bench: Bench) -> None:
    first = busy(bench)
    for name in "abc":
        bench.add(f"echo {name} >> order", gpus=4, name=name)
    moved = bench.cli("move", "name:c", "first")
    assert (moved.returncode, moved.stdout, moved.stderr) == (0, "4 queued: first\n", "")
    assert bench.cli("move", "2", "after", "@~1").stdout == "2 queued: after 3\n"
    bench.stop()
    bench.start()
    bench.cancel(first, grace_s=0)
    bench.wait_all()
    assert (bench.folder / "order").read_text().split() == ["c", "b", "a"]


# -- edit --


def test_a_waiting_job_is_edited_by_options(bench: Bench) -> None:
    busy(bench)
    job_id = bench.add(LONG)
    done = bench.cli(
        "edit", str(job_id), "-g", "2:pretend*", "-t", "2h", "--priority", "high", "-e", "A=1", "--tag", "x"
    )
    assert (done.returncode, done.stdout) == (0, f"{job_id} queued\n")
    job = bench.job(job_id)
    assert (job["gpus"], job["request"]["gpu_type"], job["time_limit_s"]) == (2, "pretend*", 7200)
    assert (job["priority"], job["tags"], job["env"], job["argv"]) == (10, ["x"], {"A": "1"}, LONG)
    bench.cli("edit", str(job_id), "--unset", "time", "--unset", "gpu-type", "--command", "echo hi")
    job = bench.job(job_id)
    assert (job["time_limit_s"], job["request"]["gpu_type"], job["gpus"], job["command"]) == (None, None, 2, "echo hi")


def test_the_limit_of_a_running_job_can_be_shortened(bench: Bench) -> None:
    job_id = bench.add(LONG, time_limit_s=3600)
    bench.until(job_id, "started")
    assert bench.cli("edit", str(job_id), "-t", "0.1s").returncode == 0
    assert bench.until(job_id)["state"] == "timeout"


def test_every_option_of_a_submission_can_be_edited() -> None:
    """Except --hold, which is a separate verb."""
    assert {*job_options.JOB_OPTIONS} - {*drafts.EDITABLE} == {job_options.HOLD}


def editor(bench: Bench, script: str) -> dict[str, str]:
    """Return an environment whose editor runs a sed script over the text."""
    path = bench.folder / "editor"
    path.write_text(f'#!/bin/sh\ncp "$1" seen\nsed -i \'{script}\' "$1"\n')
    path.chmod(0o755)
    return {"VISUAL": str(path), "TMPDIR": str(bench.folder)}


def edited(bench: Bench, job_id: int, script: str) -> tuple[int, str]:
    """Edit a job at a terminal; return the exit code and what was shown."""
    with Terminal(bench, "edit", str(job_id), columns=400, **editor(bench, script)) as person:
        code, shown = person.end()
    return code, shown.replace("\r", "")


def test_edit_without_options_and_terminal_is_an_error(bench: Bench) -> None:
    busy(bench)
    job_id = bench.add("true")
    done = bench.cli("edit", str(job_id), environ=editor(bench, "s/0/1/"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"dibs: an editor needs a terminal. Name what to change: dibs edit {job_id} --priority high -t 4h\n"
    )
    assert not (bench.folder / "seen").exists()


def test_without_options_the_job_is_opened_in_the_editor(bench: Bench) -> None:
    busy(bench)
    job_id = bench.add("echo hi", time_limit_s=90.5, mem=2**30 + 1, after=[{"select": "1", "when": "end"}])
    script = 's/^priority = 0/priority = 7/; s/^command.*/command = "echo \\\\"ho\\\\""/; /^time/d'
    assert edited(bench, job_id, script) == (0, f"{job_id} queued\n")
    job = bench.job(job_id)
    assert (job["priority"], job["command"], job["time_limit_s"]) == (7, 'echo "ho"', None)
    assert (job["mem"], job["after"]) == (2**30 + 1, [{"id": 1, "when": "end"}])
    assert list(bench.folder.glob("*.toml")) == []
    assert "EDITOR" not in (bench.folder / "seen").read_text()


def test_an_unchanged_text_changes_nothing(bench: Bench) -> None:
    busy(bench)
    job_id = bench.add(LONG, name='ünï \U0001f600 \x7f \\ "')
    events = bench.events(job_id)
    assert edited(bench, job_id, "") == (0, "dibs: nothing was changed.\n")
    assert bench.events(job_id) == events


@pytest.mark.parametrize(
    ("script", "message", "code"),
    [
        ("s/^name/name name/", "expected lines such as name", 2),
        ('s/^time.*/time = "3"/', "time: expected a time such as 90m", 2),
        ("s/^gpus.*/gpus = 9/", "job 2 asks for 9 GPUs; this machine has 4", 69),
        ("s/^gpus.*/gpus = true/", "--gpus: expected", 2),
        ("s/^priority/prioritty/", 'there is no field "prioritty". Did you mean priority?', 2),
        ("/^argv/d", "expected a command, got none", 2),
        ("1s/^/\\xff/", "expected lines such as name", 2),
    ],
)
def test_an_invalid_text_changes_nothing_and_is_kept(bench: Bench, script: str, message: str, code: int) -> None:
    busy(bench)
    job_id = bench.add(LONG)
    before = bench.job(job_id)
    exit_code, shown = edited(bench, job_id, script)
    assert (exit_code, shown.count("\n")) == (code, 1)
    assert message in shown
    (kept,) = bench.folder.glob("dibs-job-*.toml")
    assert shown.endswith(f"Nothing was changed; your text is {kept}\n")
    assert bench.job(job_id) == before


# -- clean --


def test_finished_jobs_are_deleted_with_their_logs(bench: Bench) -> None:
    bench.add("echo hi; echo model > $DIBS_CHECKPOINT_DIR/model")
    bench.add("true")
    bench.wait_all()
    logs = [Path(bench.job(n)["log"]) for n in (1, 2)]
    would = bench.cli("clean", "1", "--dry-run")
    assert would.stdout.startswith("would delete 1 finished job and ")
    assert logs[0].exists()
    done = json.loads(bench.cli("clean", "--json").stdout)
    assert (done["jobs"], done["needed"], done["bytes"] > 3) == (2, [], True)
    assert [path.exists() for path in logs] == [False, False]
    assert (bench.home / "jobs" / "1" / "checkpoint" / "model").read_text() == "model\n"
    assert not (bench.home / "jobs" / "2").exists()
    assert "there is no job 1 any more" in refused(bench, "show", "1", code=3)
    assert bench.add("true") == 3
    bench.wait_all()
    assert bench.cli("clean").stdout.startswith("deleted 1 finished job ")
    assert bench.cli("clean").stdout == "deleted 0 finished jobs and 0B of files\n"


def test_checkpoints_are_deleted_on_request_only(bench: Bench) -> None:
    bench.add("echo model > $DIBS_CHECKPOINT_DIR/model")
    bench.wait_all()
    bench.cli("clean", "all", "--checkpoints")
    assert not (bench.home / "jobs" / "1").exists()


def test_a_job_that_others_depend_on_is_kept_and_named(bench: Bench) -> None:
    bench.until(bench.add("true"))
    bench.cli("pause")
    bench.add("true", after=[{"select": "1"}, {"select": "1", "when": "end"}], gpus=4)
    done = bench.cli("clean", "1")
    assert (done.returncode, done.stdout) == (0, "deleted 0 finished jobs and 0B of files\n")
    assert done.stderr == "dibs: kept 1: unfinished jobs depend on them.\n"
    assert state(bench, 1) == "done"


def test_clean_asks_for_confirmation_on_a_terminal(bench: Bench) -> None:
    bench.until(bench.add("true"))
    with Terminal(bench, "clean") as person:
        person.until("delete 1 finished job and")
        person.type("n\n")
        assert person.end()[0] == 130
    assert state(bench, 1) == "done"
    with Terminal(bench, "clean", "-y") as person:
        code, shown = person.end()
    assert (code, "deleted 1 finished job" in shown) == (0, True)


def test_files_of_deleted_jobs_left_by_a_crash_are_removed_later(bench: Bench) -> None:
    """The rows are gone, and the database records that the files have to follow."""
    bench.until(bench.add("true"))
    bench.stop()
    store = Store.open(paths.database(bench.home))
    with store.batch():
        store.forget([JobId(1)], with_checkpoints=False)
    store.close()
    assert (bench.home / "jobs" / "1").exists()
    bench.start()
    wait_for(lambda: not (bench.home / "jobs" / "1").exists())


# -- gpus --


def test_a_drained_gpu_gets_no_new_job_and_shows_the_reason(bench: Bench) -> None:
    job_id = bench.add(LONG, gpu_ids=["3"])
    bench.until(job_id, "started")
    ambiguous = refused(bench, "gpus", "drain", "fake-", code=3)
    assert ambiguous == 'dibs: "fake-" fits 4 GPUs (FAKE-0, FAKE-1, FAKE-2, FAKE-3). Give more characters.\n'
    drained = bench.cli("gpus", "drain", "3", "fake-2", "--reason", "fan is loud")
    assert drained.returncode == 0
    assert drained.stdout.splitlines()[0].startswith("GPU 3: drained by ")
    shown = {gpu["index"]: gpu for gpu in json.loads(bench.cli("gpus", "--json").stdout)["gpus"]}
    assert [shown[n]["state"] for n in range(4)] == ["free", "free", "drained", "drained"]
    assert "fan is loud" in shown[3]["drained"]
    assert (state(bench, job_id), len(shown[3]["holders"])) == ("running", 1)
    waiting = bench.add("true", gpu_ids=["2"])
    why = bench.cli("why", str(waiting)).stdout
    assert why.startswith(f"job {waiting}: needs 1 GPU; none of the right kind can be used now (GPU 2: drained by ")
    assert bench.until(bench.add("true", gpus=2))["gpu_indices"] == [0, 1]
    assert "only 0 can be used now" in refused(bench, "lease", "--gpu-ids", "2", "--no-wait", "true", code=75)
    bench.stop()
    bench.start()
    assert state(bench, waiting) == "queued"
    assert bench.cli("gpus", "undrain", "2").stdout == "GPU 2: available again\n"
    assert bench.until(waiting)["state"] == "done"
    assert bench.cli("gpus", "undrain", "2").stdout == "GPU 2: was not drained\n"


# -- daemon stop --drain --


def test_a_drained_daemon_starts_nothing_new_and_stops_after_the_last_job(bench: Bench) -> None:
    job_id = busy(bench)
    waiting = bench.add("true")
    with Terminal(bench, "daemon", "stop", "--drain") as person:
        person.until("waiting for 1 job: 1")
        assert "the daemon is draining" in bench.cli("why", str(waiting)).stdout
        assert bench.client.get("/v1/queue")["paused"] is False
        bench.cancel(job_id, grace_s=0)
        code, shown = person.end()
    assert (code, "stopped; no jobs are running" in shown) == (0, True)
    assert bench.cli("daemon", "status").returncode == 5
    bench.start()
    assert bench.until(waiting)["state"] == "done"


def test_ctrl_c_cancels_a_drain(bench: Bench) -> None:
    job_id = busy(bench)
    waiting = bench.add("true")
    with Terminal(bench, "daemon", "stop", "--drain") as person:
        person.until("waiting for 1 job: 1")
        person.type(CTRL_C)
        code, shown = person.end()
    assert (code, "the daemon keeps running and starts jobs again" in shown) == (130, True)
    bench.cancel(job_id, grace_s=0)
    assert bench.until(waiting)["state"] == "done"


# -- cancel --


def test_only_cancelling_several_running_jobs_asks_for_confirmation(bench: Bench) -> None:
    for _ in range(2):
        bench.until(bench.add(LONG), "started")
    bench.cli("pause", "2")
    with Terminal(bench, "cancel", "1-2", "--grace", "0s") as person:
        person.until("stop 2 running jobs (1, 2)?")
        person.type("n\n")
        assert person.end()[0] == 130
    assert (state(bench, 1), state(bench, 2)) == ("running", "paused")
    with Terminal(bench, "cancel", "2", "--grace", "0s") as person:
        assert person.end()[0] == 0
    with Terminal(bench, "cancel", "all", "-y", "--grace", "0s") as person:
        assert person.end()[0] == 0
    bench.wait_all()


def test_on_a_terminal_many_jobs_are_summarized_in_one_line(bench: Bench) -> None:
    busy(bench)
    bench.add_many([{"command": "true"}] * 30)
    with Terminal(bench, "hold", "2-22") as person:
        assert person.end() == (0, "21 jobs held (2-22)\r\n")
    with Terminal(bench, "cancel", "all", "--grace", "0s") as person:
        code, shown = person.end()
    assert code == 0
    assert shown.splitlines() == ["1 job stopping: TERM now, KILL in 0s (1)", "30 jobs cancelled (2-31)"]
    # Piped output has each of them.
    assert len(bench.cli("retry", "2-31").stdout.splitlines()) == 30


# -- over HTTP --


def post(bench: Bench, path: str, body: Any = None) -> Any:
    return bench.client.post(path, {} if body is None else body)


def test_the_same_verbs_exist_over_http(bench: Bench) -> None:
    busy(bench)
    for _ in range(2):
        bench.add("true")
    assert post(bench, "/v1/jobs/1/kill", {"signal": "CONT"})["changed"] == [{"id": 1, "state": "running"}]
    assert post(bench, "/v1/jobs/1/kill", {"signal": int(signal.SIGCONT)})["changed"] == [{"id": 1, "state": "running"}]
    assert post(bench, "/v1/jobs/1/pause")["changed"] == [{"id": 1, "state": "paused"}]
    assert post(bench, "/v1/jobs/1/resume")["changed"] == [{"id": 1, "state": "running"}]
    assert post(bench, "/v1/jobs/3/move", {"to": "before", "other": 2})["changed"] == [{"id": 3, "state": "queued"}]
    changed = bench.client._ask("PATCH", "/v1/jobs/2", (), {"priority": 3, "time_limit_s": 60}, 60)
    assert changed["changed"] == [{"id": 2, "state": "queued"}]
    assert (bench.job(2)["priority"], bench.job(2)["time_limit_s"]) == (3, 60)
    assert post(bench, "/v1/gpus/0/drain", {"reason": "fan"})["id"] == "FAKE-0"
    assert post(bench, "/v1/gpus/FAKE-0/undrain")["drained"] is None
    answer = post(bench, "/v1/jobs/actions", {"verb": "hold", "select": ["queued"]})
    assert [job["id"] for job in answer["changed"]] == [2, 3]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/jobs/1/kill", {}, 2, "kill expected a signal such as USR1."),
        ("/v1/jobs/1/kill", {"signal": "X"}, 2, 'expected a signal such as USR1 or 10, got "X".'),
        ("/v1/jobs/1/move", {"to": "up"}, 2, "move expected first, last, before ID or after ID"),
        ("/v1/jobs/9/move", {"to": "first"}, 3, "there is no job 9"),
        ("/v1/jobs/actions", {"verb": "move", "select": ["all"], "to": "first"}, 2, "move expected the id of one job."),
        ("/v1/jobs/1/dance", {}, 3, 'there is no verb "dance"; there are cancel, retry'),
        ("/v1/jobs/1/edit", {}, 2, "expected the changes to be an object"),
        ("/v1/gpus/9/drain", {}, 3, 'there is no GPU "9"'),
        ("/v1/gpus/0/drain", {"reason": "x" * 201}, 2, "200"),
    ],
)
def test_errors_over_http_are_the_same(bench: Bench, path: str, body: Any, status: int, message: str) -> None:
    bench.add("true", gpus=0)
    with pytest.raises(DibsError) as refusal:
        post(bench, path, body)
    assert refusal.value.exit_code == status
    assert message in refusal.value.message


EMPTY = (
    ("cancel", "unfinished"), ("hold", "queued"), ("unhold", "held"), ("pause", "running"), ("resume", "paused"),
    ("retry", "failed"), ("kill", "-s", "USR1", "running"), ("edit", "queued", "-t", "2h"), ("clean", "failed"),
    ("show", "failed"), ("why", "queued"), ("wait", "running"), ("status", "failed"), ("status", "all"),
)  # fmt: skip


@pytest.mark.parametrize("words", EMPTY)
def test_no_job_in_a_state_is_not_an_error(bench: Bench, words: tuple[str, ...]) -> None:
    done = bench.cli(*words)
    assert (done.returncode, done.stderr.count("\n")) == (0, 0 if words[0] == "clean" else 1)
    told = bench.cli(*words, "--json")
    assert (told.returncode, told.stderr) == (0, "" if words[0] != "wait" else done.stderr)
    document = json.loads(told.stdout)
    assert document == [] or {key: document[key] for key in ("jobs", "changed", "total") if key in document} in (
        {"jobs": []}, {"jobs": 0}, {"changed": []}, {"total": 0},
    )  # fmt: skip


def test_an_id_or_a_name_that_does_not_exist_stays_an_error(bench: Bench) -> None:
    bench.until(bench.add("true", gpus=0, name="x"))
    assert [bench.cli("cancel", word).returncode for word in ("9", "name:y", "failed+name:y", "name:x+failed")] == [
        3, 3, 3, 0,
    ]  # fmt: skip


def test_retry_of_a_job_that_runs_is_1(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=0), "started")
    done = bench.cli("retry", "1")
    assert (done.returncode, done.stderr) == (1, "1 running: running, not finished\n")


def test_every_verb_that_changes_jobs_can_print_ids_only(bench: Bench) -> None:
    """Nothing on stderr either, so that it fits into a script."""

    def quiet(*words: str) -> str:
        done = bench.cli(*words)
        assert (done.returncode, done.stderr) == (0, ""), (words, done)
        return done.stdout

    assert quiet("add", "-q", "-g", "0", "--hold", "CUDA_ROOT=0", "sleep", "1000") == "1\n"
    assert quiet("map", "-q", "-g", "0", "--hold", "true", ":::", "a", "b") == "2\n3\n"
    assert quiet("unhold", "-q", "2-3") == "2\n3\n"
    for job_id in (2, 3):
        bench.until(job_id)
    assert quiet("retry", "-q", "--done", "2,3,1") == "2\n3\n"
    assert quiet("edit", "-q", "1", "--priority", "high") == "1\n"
    assert quiet("move", "-q", "1", "first") == "1\n"
    assert quiet("unhold", "-q", "1") == "1\n"
    bench.until(1, "started")
    assert quiet("pause", "-q", "1") == "1\n"
    assert quiet("resume", "-q", "1") == "1\n"
    assert quiet("kill", "-q", "-s", "CONT", "1") == "1\n"
    assert quiet("pause", "-q") == quiet("resume", "-q") == ""
    assert quiet("cancel", "-q", "--wait", "1") == "1\n"
    refused = bench.cli("hold", "-q", "1")
    assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", "")


def test_add_is_quiet_on_a_terminal_too(bench: Bench) -> None:
    bench.start()
    with Terminal(bench, "add", "-q", "-g", "0", "true") as terminal:
        code, said = terminal.end()
    assert (code, said.split()) == (0, ["1"])
