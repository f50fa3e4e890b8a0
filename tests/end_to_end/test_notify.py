"""Notifications of a whole dibs: what the command gets, and that it delays nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import Bench, wait_for

#: Appends the variables to one file, and the document on stdin to another.
TELL = 'echo "$DIBS_EVENT $DIBS_JOB_ID $DIBS_JOB_STATE $DIBS_JOB_EXIT_CODE $DIBS_BATCH_SIZE" >> told; cat >> documents'


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def told(bench: Bench, count: int) -> list[str]:
    """Wait for the given number of notifications."""
    return wait_for(lambda: lines(bench.folder / "told"), lambda seen: len(seen) >= count)


def test_the_command_runs_in_the_environment_and_folder_of_the_job(bench: Bench) -> None:
    done = bench.cli(
        "add", "-g0", "-n", "vit", "--notify", f'{TELL}; echo "$COLOUR" > colour', "exit 3", environ={"COLOUR": "red"}
    )
    assert done.returncode == 0
    assert told(bench, 1) == ["finished 1 failed 3 "]
    wait_for(lambda: lines(bench.folder / "colour"), lambda seen: seen == ["red"])
    document = json.loads((bench.folder / "documents").read_text())
    assert (document["event"], document["batch"]) == ("finished", None)
    assert document["text"].startswith("job 1 (vit) failed after ")
    assert document["text"].endswith("s: exit code 3")
    assert bench.job(1) | document["job"] == bench.job(1)


def test_a_retried_attempt_sends_no_notification(bench: Bench) -> None:
    bench.add("exit 1", gpus=0, retries=2, notify=TELL)
    assert told(bench, 1) == ["finished 1 failed 1 "]
    assert bench.job(1)["attempt"] == 3


def test_a_batch_sends_a_notification_at_its_first_failure_and_at_its_end(bench: Bench) -> None:
    until_go = "while [ ! -e go ]; do sleep 0.01; done"
    bench.add_many([{"command": "exit 1"}, {"command": f"{until_go}; exit 1"}, {"command": until_go}], notify=TELL)
    assert told(bench, 1) == ["failed 1 failed 1 3"]
    (bench.folder / "go").touch()
    _, last = told(bench, 2)
    assert last.startswith("finished ")
    assert last.endswith(" 3")
    bench.stop()
    assert len(told(bench, 2)) == 2


def test_the_setting_applies_to_all_jobs_and_an_empty_queue(tmp_path: Path) -> None:
    bench = Bench(tmp_path, DIBS_NOTIFY=f"cd {tmp_path}; {TELL}")
    try:
        bench.add("true", gpus=0)
        assert sorted(told(bench, 2)) == ["empty 1 done 0 ", "finished 1 done 0 "]
    finally:
        bench.close()


def test_a_failed_notification_is_recorded_at_the_job(bench: Bench) -> None:
    bench.add("true", gpus=0, notify="echo oh no; exit 9")
    (event,) = wait_for(lambda: [each for each in bench.events(1) if each["kind"] == "NoticeFailed"])
    assert event["detail"] == f"its notification (finished) exited with code 9; see {bench.home}/notifications.log"
    assert (bench.home / "notifications.log").read_text() == "oh no\n"


def test_hanging_notifications_delay_neither_jobs_nor_the_end_of_the_daemon(bench: Bench) -> None:
    """A few run at once, the others wait, and nothing waits for them."""
    hanging = "echo x >> begun; while [ ! -e go ]; do sleep 0.01; done; echo y >> ended"
    for _ in range(6):
        bench.add("true", gpus=0, notify=hanging)
    wait_for(lambda: lines(bench.folder / "begun"), lambda seen: len(seen) == 4)
    bench.wait_all()
    assert bench.until(bench.add("true"))["state"] == "done"
    assert len(lines(bench.folder / "begun")) == 4
    bench.stop()
    (bench.folder / "go").touch()
    wait_for(lambda: lines(bench.folder / "ended"), lambda seen: len(seen) == 4)


def test_waiting_notifications_are_sent_when_others_finish(bench: Bench) -> None:
    for _ in range(6):
        bench.add("true", gpus=0, notify=TELL)
    assert len(told(bench, 6)) == 6


def test_an_end_without_a_daemon_is_notified_by_the_next_one(bench: Bench) -> None:
    bench.add("while [ ! -e go ]; do sleep 0.01; done", notify=TELL)
    bench.until(1, "started")
    bench.kill()
    (bench.folder / "go").touch()
    wait_for(lambda: bench.client.connect() is None)
    bench.start()
    assert told(bench, 1) == ["finished 1 done 0 "]
    bench.stop()
    bench.start()
    bench.wait_all()
    assert len(told(bench, 1)) == 1


@pytest.mark.parametrize("command", ["", " "])
def test_an_empty_command_is_refused(bench: Bench, command: str) -> None:
    done = bench.cli("add", "--notify", command, "true")
    assert (done.returncode, done.stderr) == (2, f'dibs: --notify expected a text, got "{command}".\n')
