"""Metrics that runs print: found at the end of a log by regular expressions, which may be bad ones."""

import os
import re
import signal
import subprocess
import sys

import pytest

from bench import wait_for
from dibs.logs import numbers_child
from dibs.system import locks, processes


def test_the_last_match_counts_even_within_one_line():
    assert numbers_child.printed("loss: 3\nloss: 2 loss: 1\nend\n", {"loss": r"loss: ([0-9.]+)"}) == {"loss": 1.0}


def test_text_that_is_no_number_is_skipped():
    assert numbers_child.printed("loss: 3\nloss: .\n", {"loss": r"loss: ([0-9.]+)"}) == {"loss": 3.0}


def test_a_number_that_is_not_finite_is_ignored():
    assert numbers_child.printed("loss: nan\nacc: inf", {"loss": "loss: (.*)", "acc": "acc: (.*)"}) == {
        "loss": None,
        "acc": None,
    }


def test_only_the_end_of_a_long_log_is_read(tmp_path):
    log = tmp_path / "log"
    log.write_text("early: 1\n" + ("x" * 99 + "\n") * (numbers_child.LOG_BYTES // 100 + 1) + "late: 2\n")
    found = numbers_child.search([str(log)], {"early": r"early: (\d)", "late": r"late: (\d)"}, summaries_for_s=60)
    assert found == [({"late": 2.0}, {"late": (2.0, 2.0, 2.0, 1)})]


def test_all_numbers_are_summarized_one_per_line():
    text = "loss: 3\nloss: 9 loss: 2\nloss: nan\nloss: .\nloss: 4\n"
    assert numbers_child.summaries(text, {"loss": r"loss: (\S+)", "acc": r"acc: (\S+)"}) == {"loss": (2.0, 4.0, 3.0, 3)}


def test_a_missing_log_has_no_numbers(tmp_path):
    assert numbers_child.search([str(tmp_path / "none")], {"loss": "(.)"}) == [({}, {})]


def test_an_endless_regular_expression_is_aborted(tmp_path):
    log = tmp_path / "log"
    log.write_text("a" * 60 + "\n")
    assert numbers_child.search([str(log)], {"loss": "(?:a+)+(b)"}, deadline_s=0.3, summaries_for_s=0.2) == [({}, {})]


def test_the_last_number_is_returned_even_if_the_others_take_too_long(tmp_path):
    log = tmp_path / "log"
    log.write_text("a" * 60 + "\naab7\n")
    found = numbers_child.search([str(log)], {"loss": r"(?:a+)+b(\d)"}, summaries_for_s=0.2)
    assert found == [({"loss": 7.0}, {})]


@pytest.fixture
def endless(tmp_path):
    """A process that searches a log with an expression that takes for ever, as the daemon does, and its child."""
    log = tmp_path / "log"
    log.write_text("a" * 60 + "\n")
    code = "import sys; from dibs.logs import numbers_child; numbers_child.search([sys.argv[1]], {'x': '(?:a+)+(b)'})"
    with subprocess.Popen([sys.executable, "-c", code, str(log)]) as parent:
        (child,) = wait_for(lambda: processes.descendants(parent.pid))
        yield parent, child
        processes.send_all([child], signal.SIGKILL)
        parent.kill()


def test_a_search_has_limits_on_cpu_time_and_memory(endless):
    _, child = endless

    wait_for(lambda: limits(child.pid), lambda seen: seen == {"cpu time": "70", "address space": str(1024**3)})


def limits(pid):
    text = locks.read_all(f"/proc/{pid}/limits").decode()
    return dict(re.findall(r"^Max (cpu time|address space) +(\S+)", text, re.MULTILINE))


def test_a_search_ends_with_its_parent_process(endless):
    parent, child = endless
    # It is set up once it has limits.
    wait_for(lambda: limits(child.pid)["cpu time"] != "unlimited")
    os.kill(parent.pid, signal.SIGKILL)
    wait_for(lambda: (seen := processes.look(child.pid)) is None or seen.is_dead)
