"""Order and retries on the command line: dependencies, begin times, retries, hold and pause."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.cli.test_option_parsing import parse

from bench import Bench, wait_for
from dibs.cli import main as cli
from dibs.cli.verbs import help as help_page
from dibs.errors import UserError
from dibs.submission import add_command, drafts, options, times
from terminal import Terminal

pytestmark = pytest.mark.usefixtures("started")

LONG = ["sleep", "1000"]


def add_job(bench: Bench, *words: str) -> int:
    """Submit a command from the command line; return its id."""
    done = bench.cli("add", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return int(done.stdout)


def defaults(*words: str) -> drafts.Body:
    """Return the request fields made from the options of `add`."""
    return drafts.common(parse("add", *words, "true"), [])


# -- times --


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A submitter in Berlin, whose clock is set back on 25 October 2026."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


NOW = datetime(2026, 11, 15, 21, 30, 15)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("22:00", "2026-11-15T22:00:00+01:00"),
        ("22:00:30", "2026-11-15T22:00:30+01:00"),
        ("9:00", "2026-11-16T09:00:00+01:00"),
        ("21:30", "2026-11-16T21:30:00+01:00"),
        ("00:00", "2026-11-16T00:00:00+01:00"),
        ("now+2h", "2026-11-15T23:30:15+01:00"),
        ("now+1d12h", "2026-11-17T09:30:15+01:00"),
        ("now+30minutes", "2026-11-15T22:00:15+01:00"),
        ("2026-11-16T08:00", "2026-11-16T08:00:00+01:00"),
        ("2026-11-16 08:00", "2026-11-16T08:00:00+01:00"),
        ("2026-11-16", "2026-11-16T00:00:00+01:00"),
        ("2026-11-16T08:00Z", "2026-11-16T09:00:00+01:00"),
        ("2027-07-01T08:00", "2027-07-01T08:00:00+02:00"),
    ],
)
def test_a_time_is_parsed_in_the_time_zone_of_the_submitter(berlin: None, text: str, expected: str) -> None:
    assert times.parse(text, NOW).isoformat() == expected


def test_a_clock_time_is_correct_across_a_change_of_daylight_saving_time(berlin: None) -> None:
    evening = datetime(2026, 10, 24, 22, 0)
    assert times.parse("08:00", evening).isoformat() == "2026-10-25T08:00:00+01:00"
    assert times.parse("now+10h", evening).isoformat() == "2026-10-25T07:00:00+01:00"


def test_a_time_is_shown_with_its_day_and_zone(berlin: None) -> None:
    assert times.shown(datetime(2026, 11, 16, 7, 0, tzinfo=UTC)) == "Mon 2026-11-16 08:00 CET"
    assert times.shown(datetime(2026, 7, 1, 6, 0, 30, tzinfo=UTC)) == "Wed 2026-07-01 08:00:30 CEST"


@pytest.mark.parametrize(
    ("earliest_s", "latest_s", "expected"),
    [
        (-5, 0, "now"),
        (0, 700, "by 21:41 (within 11m40s)"),
        (700, 700, "at 21:41 (in 11m40s)"),
        (45, 7200, "between 21:31:00 and 23:30 (in 45s to 2h00m)"),
        (7200, 86400, "between 23:30 and Mon 21:30 (in 2h00m to 1d00h)"),
        (86400, 8 * 86400, "between Mon 21:30 and 2026-11-23 21:30 (in 1d00h to 8d00h)"),
    ],
)
def test_an_expected_start_is_shown_as_clock_time_and_relative_to_now(
    berlin: None, earliest_s: float, latest_s: float, expected: str
) -> None:
    now = NOW.astimezone()
    assert times.between(now + timedelta(seconds=earliest_s), now + timedelta(seconds=latest_s), now) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("yesterday", "22", "2200", "22:60", "25:00", "-1:00", "2:5", "", " ", "1:2:3:4", "\u0662\u0662:00"),
        *("now", "now+", "now+5", "now-2h", "now+soon"),
        *("2026-11-15T21:30", "2020-01-01", "20261116", "2026-13-01T00:00", "2026-11-16T"),
    ],
)
def test_a_time_that_is_invalid_or_past_is_refused(berlin: None, text: str) -> None:
    with pytest.raises(UserError, match=r"^expected a "):
        times.parse(text, NOW)


# -- options --


def test_dependencies_are_sent_with_their_condition() -> None:
    words = ["-a", "12", "--after=3-5", "--after-any", "name:x*", "--after-end", "@", "-a", "done"]
    assert defaults(*words)["after"] == [
        {"select": "12", "when": "done"},
        {"select": "3-5", "when": "done"},
        {"select": "done", "when": "done"},
        {"select": "name:x*", "when": "any"},
        {"select": "@", "when": "end"},
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("afterok:12", [("12", "done")]),
        ("afterany:12", [("12", "end")]),
        ("afterok:1:2,afterany:3", [("1", "done"), ("2", "done"), ("3", "end")]),
    ],
)
def test_dependencies_in_slurm_notation_are_accepted(text: str, expected: list[tuple[str, str]]) -> None:
    assert defaults(f"--dependency={text}")["after"] == [{"select": job, "when": when} for job, when in expected]


def test_retries_cpus_and_memory_are_sent() -> None:
    body = defaults("--retries", "2", "--retry-on", "oom,timeout", "--cpus", "8", "--mem", "1.5G")
    assert (body["retries"], body["retry_on"]) == (2, ["oom", "timeout"])
    assert (body["cpus"], body["mem"]) == (8, 3 * 2**29)


def test_the_rules_of_a_batch_are_sent_beside_its_jobs(tmp_path: Any) -> None:
    (tmp_path / "lines").write_text("true\n")
    body = add_command.draft(parse("add", "-j", "2", "--halt", "3", "--file", str(tmp_path / "lines")), print).body
    assert (body["at_once"], body["halt_after"], body["commands"]) == (2, 3, ["true"])


# -- through the daemon --


def test_a_job_waits_for_another_and_show_says_so(bench: Bench) -> None:
    add_job(bench, "while [ ! -e go ]; do sleep 0.01; done")
    add_job(bench, "-a", "@", "--retries", "3", "--cpus", "1", "--mem", "64M", "true")
    shown = bench.cli("show", "2").stdout
    for name, value in (("after", "1 (done)"), ("retries", "3"), ("CPUs", "1"), ("memory", "64M")):
        assert f"\n{name:9}  {value}\n" in shown
    told = json.loads(bench.cli("show", "2", "--json").stdout)
    assert (told["after"], told["retries"]) == ([{"id": 1, "when": "done"}], 3)
    assert (told["cpus"], told["mem"], told["begin_at"]) == (1, 64 * 2**20, None)
    assert "waiting for job 1" in bench.cli("why", "2").stdout
    (bench.folder / "go").touch()
    assert bench.until(2)["state"] == "done"
    assert "retries" not in bench.cli("show", "1").stdout


def test_a_dependency_in_slurm_notation_reaches_the_job(bench: Bench) -> None:
    bench.until(add_job(bench, "false"))
    add_job(bench, "--dependency=afterany:1", "true")
    done = bench.cli("add", "--dependency=afterok:1", "true")
    told = "dibs: job 3 was cancelled: job 1, a dependency, did not succeed\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", told)
    assert bench.until(2)["state"] == "done"
    assert (bench.until(3)["state"], bench.job(3)["cause"]) == ("cancelled", "dependency")


def test_a_begin_time_is_stored_in_utc_and_shown_in_the_submitters_zone(bench: Bench) -> None:
    done = bench.cli("add", "--begin", "now+2h", "true", environ={"TZ": "Asia/Tokyo"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    kept = datetime.fromisoformat(bench.job(1)["begin_at"])
    assert abs(kept - datetime.now(UTC) - timedelta(hours=2)) < timedelta(minutes=2)
    with Terminal(bench, "add", "--begin", "2099-01-02T03:04", "true", TZ="Asia/Tokyo") as person:
        code, shown = person.end()
    assert code == 0
    assert "; begins Fri 2099-01-02 03:04 JST; dibs follow 2" in shown
    assert bench.job(2)["begin_at"] == "2099-01-01T18:04:00.000Z"
    shown = bench.cli("show", "2", environ={"TZ": "Asia/Tokyo"}).stdout
    assert "begins     Fri 2099-01-02 03:04 JST\n" in shown
    assert "Z\n" not in shown
    with Terminal(bench, "show", "2", TZ="Asia/Tokyo", NO_COLOR="1") as person:
        assert "begins     Fri 2099-01-02 03:04 JST" in person.end()[1]


def test_a_zone_a_day_away_is_refused(bench: Bench) -> None:
    done = bench.cli("why", environ={"TZ": "XXX-25"})
    assert (done.returncode, done.stderr) == (
        2,
        'dibs: expected a time zone such as Europe/Berlin in TZ, got "XXX-25".\n',
    )


def test_a_job_is_retried_after_the_named_causes(bench: Bench) -> None:
    add_job(bench, "--retries", "2", "exit 3")
    wait_for(lambda: bench.job(1), lambda job: job["state"] == "failed" and job["attempt"] == 3)
    add_job(bench, "--retries", "2", "--retry-on", "oom,timeout", "exit 3")
    assert bench.until(2)["attempt"] == 1


def test_run_and_follow_continue_across_a_retry(bench: Bench) -> None:
    command = "echo attempt $DIBS_ATTEMPT; [ $DIBS_ATTEMPT = 3 ] || exit 9"
    done = bench.cli("run", "--retries", "2", command)
    assert (done.returncode, done.stdout) == (0, "attempt 1\nattempt 2\nattempt 3\n")
    done = bench.cli("run", "--retries", "1", "-o", "out", command)
    assert (done.returncode, done.stdout) == (9, "attempt 1\nattempt 2\n")
    bench.add("while [ ! -e go ]; do sleep 0.01; done; " + command, retries=2)
    with Terminal(bench, "follow", "3") as person:
        (bench.folder / "go").touch()
        code, shown = person.end()
    assert code == 0
    assert shown.endswith("attempt 3\r\n")


def test_a_batch_has_a_separate_limit(bench: Bench) -> None:
    lines = "while [ ! -e go ]; do sleep 0.01; done\n" * 3
    done = bench.cli("add", "-j", "1", "-", input=lines)
    assert done.stdout == "1\n2\n3\n"
    bench.until(1, "started")
    assert [job["state"] for job in bench.jobs("2-3")] == ["queued", "queued"]
    (bench.folder / "go").touch()
    assert [bench.until(job_id)["state"] for job_id in (1, 2, 3)] == ["done"] * 3


def test_the_rest_of_a_batch_is_held_after_a_failure(bench: Bench) -> None:
    done = bench.cli("add", "-j1", "--halt", "1", "-", input="false\ntrue\ntrue\n")
    assert done.returncode == 0
    wait_for(lambda: [job["state"] for job in bench.jobs()], lambda states: states == ["failed", "held", "held"])
    assert {job["reason"] for job in bench.jobs("held")} == {"held: 1 of its batch failed (--halt)"}
    shown = bench.cli("show", "3").stdout
    assert shown.startswith("job 3  held: 1 of its batch failed (--halt)\n")
    assert "`dibs unhold 2-3` releases all of them." in shown


def test_wait_leaves_at_once_when_only_held_jobs_remain(bench: Bench) -> None:
    bench.cli("add", "-j1", "--halt", "1", "-", input="false\ntrue\ntrue\n")
    bench.cli("add", "-a", "3", "true")
    bench.cli("add", "--hold", "true")
    waited = bench.cli("wait")
    assert (waited.returncode, waited.stdout) == (6, "")
    assert waited.stderr == (
        "dibs: 2 jobs are held: 1 of its batch failed (--halt). `dibs unhold 2-3` releases all of them. "
        "1 job is held by you. `dibs unhold 5` releases it.\n"
    )
    told = json.loads(bench.cli("wait", "4", "--json").stdout)
    assert (told["over"], [held["jobs"] for held in told["held"]]) == (False, [1])


def test_wait_waits_for_held_jobs_if_told_to(bench: Bench) -> None:
    bench.cli("add", "--hold", "-g0", "true")
    assert bench.cli("wait", "--held", "wait", "--timeout", "0.1s").returncode == 124
    bench.cli("unhold", "1")
    assert bench.cli("wait", "--held", "wait").returncode == 0


def test_wait_goes_on_while_a_job_may_still_start(bench: Bench) -> None:
    """Job 3 waits for a job that is not selected and runs; a held job does not end the wait before that."""
    gate = bench.folder / "gate"
    bench.add(f"until test -e {gate}; do sleep 0.05; done", gpus=0)
    bench.cli("add", "--hold", "true")
    bench.cli("add", "-g0", "-a", "1", "true")
    assert bench.cli("wait", "2,3", "--timeout", "0.1s").returncode == 124
    gate.touch()
    waited = bench.cli("wait", "2,3")
    assert (waited.returncode, bench.job(3)["state"]) == (6, "done")


def test_hold_and_unhold_report_what_they_did(bench: Bench) -> None:
    bench.until(bench.add(LONG, gpus=4), "started")
    bench.add("true")
    done = bench.cli("hold", "all")
    assert (done.returncode, done.stdout) == (0, "2 held\n")
    assert done.stderr == "1 running: only a queued job can be held\n"
    assert bench.cli("hold", "2").returncode == 0
    assert bench.cli("hold", "1").returncode == 1
    assert bench.cli("why", "2").stdout.startswith("job 2: held by you")
    acted = json.loads(bench.cli("enqueue", "2", "--json").stdout)
    assert acted == {"changed": [{"id": 2, "state": "queued"}], "unchanged": []}
    bench.cli("hold", "2")
    assert bench.cli("unhold", "held").stdout == "2 queued\n"
    assert bench.cli("unhold", "2").stderr == "2 queued: it is not held\n"


def test_a_paused_queue_starts_nothing_and_status_says_so(bench: Bench) -> None:
    paused = bench.cli("pause")
    assert (paused.returncode, paused.stdout) == (0, "queue paused; running jobs continue\n")
    bench.add("true")
    status = bench.cli("status")
    assert status.stderr == "the queue is paused; dibs resume\n"
    assert "paused" not in bench.cli("status", "-q").stderr
    assert json.loads(bench.cli("status", "--json").stdout)["queue"] == {"paused": True}
    with Terminal(bench, "status") as person:
        assert "; the queue is paused; dibs resume" in person.end()[1]
    assert bench.job(1)["state"] == "queued"
    assert json.loads(bench.cli("pause", "--json").stdout)["paused"] is True
    resumed = bench.cli("resume")
    assert (resumed.returncode, resumed.stdout) == (0, "queue resumed\n")
    assert bench.until(1)["state"] == "done"
    assert bench.cli("status").stderr == ""
    assert json.loads(bench.cli("resume", "--json").stdout)["paused"] is False


def test_help_has_its_verbs_in_groups() -> None:
    titles = [line for line in help_page.overview().splitlines() if line in {f"{title}:" for title in cli.GROUPS}]
    assert titles == ["Submit:", "Watch:", "Control:", "Sweeps:", "Machine:"]


@pytest.mark.parametrize("verb", ["add", "run", "map", "sweep"])
def test_help_of_a_job_has_the_ten_common_options_first_and_every_option_once(verb: str) -> None:
    own = (*cli.load(verb).OPTIONS, *options.COMMON)
    groups = help_page.option_groups(own)
    assert (groups[0][0], len(groups[0][1])) == ("Common options", 10)
    assert sorted(option.names for _, group in groups for option in group) == sorted(option.names for option in own)


@pytest.mark.parametrize(
    ("words", "right"), [(["--json", "status"], "dibs status --json"), (["-g", "2", "add"], "dibs add -g 2")]
)
def test_an_option_before_the_verb_gets_a_hint(words: list[str], right: str) -> None:
    with pytest.raises(UserError, match=f"options come after the verb: {right}"):
        cli.split(words)
    assert cli.split(["-q", "failed"]) == ([], "status", ["-q", "failed"])
