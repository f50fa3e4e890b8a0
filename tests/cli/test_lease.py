"""`dibs lease`: GPUs leased manually, without a daemon."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench import PATIENCE_S, Bench, wait_for
from dibs.leases import device_lease, holders
from terminal import CTRL_C, CTRL_Z, Terminal


def held(bench: Bench) -> dict[str, str | None]:
    """Return the devices that are held, and as what."""
    found = holders.survey(device_lease.Folder(str(bench.leases)), [f"FAKE-{n}" for n in range(4)])
    return {device: who[0].job for device, who in found.items() if who}


def test_the_command_gets_gpus_and_stdin_and_returns_its_exit_code(bench: Bench) -> None:
    command = "read line; echo $line $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $DIBS_GPU_INDICES; exit 9"
    done = bench.cli("lease", "-g", "2", "--prefer", "3", "sh", "-c", command, input="typed\n")
    assert (done.returncode, done.stdout) == (9, "typed FAKE-3,FAKE-0 PCI_BUS_ID 3,0\n")
    assert bench.pid() is None, "no daemon is needed"
    assert held(bench) == {}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("true",), 0),
        (("sh", "-c", "kill -9 $$"), 137),
        (("exit 4",), 4),
        (("A=1", "sh", "-c", "exit $A"), 1),
        (("no-such-program",), 127),
        (("./plain",), 127),
        (("./script",), 6),
    ],
)
def test_lease_exits_with_the_code_of_its_command(bench: Bench, words: tuple[str, ...], code: int) -> None:
    (bench.folder / "plain").write_text("")
    (bench.folder / "script").write_text("exit 6\n")
    (bench.folder / "script").chmod(0o755)
    assert bench.cli("lease", *words).returncode == code


def test_devices_may_be_named_by_index(bench: Bench) -> None:
    done = bench.cli("lease", "--gpu-ids", "1", "--visible", "index", "printenv", "CUDA_VISIBLE_DEVICES")
    assert done.stdout == "1\n"


def test_without_a_command_it_holds_until_ctrl_c(bench: Bench) -> None:
    with Terminal(bench, "lease", "--gpu-ids", "1,2") as person:
        person.until("FAKE-1\r\nFAKE-2\r\nexport CUDA_VISIBLE_DEVICES=FAKE-1,FAKE-2\r\n")
        assert held(bench) == {"FAKE-1": "lease", "FAKE-2": "lease"}
        person.type(CTRL_C)
        assert person.end()[0] == 0
    assert held(bench) == {}


def test_ctrl_c_is_handled_by_the_command(bench: Bench) -> None:
    with Terminal(bench, "lease", "sh", "-c", "trap 'exit 3' INT; echo ready; while :; do sleep 0.01; done") as person:
        person.until("ready")
        person.type(CTRL_C)
        assert person.end()[0] == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_are_forwarded(bench: Bench, number: signal.Signals) -> None:
    with Terminal(bench, "lease", "sh", "-c", "echo ready; exec sleep 1000") as person:
        person.until("ready")
        person.signal(number)
        assert person.end()[0] == 128 + number


def test_if_lease_is_killed_the_command_keeps_the_gpu(bench: Bench) -> None:
    script = "echo ready; while [ ! -e go ]; do sleep 0.01; done"
    process = subprocess.Popen(
        [sys.executable, "-m", "dibs", "lease", "sh", "-c", script],
        env=bench.environ, cwd=bench.folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait(PATIENCE_S)
    assert list(held(bench)) == ["FAKE-0"]
    (bench.folder / "go").touch()
    wait_for(lambda: held(bench), lambda seen: not seen)
    process.stdout.close()


def test_no_wait_names_the_holder(bench: Bench) -> None:
    job_id = bench.add(["sleep", "1000"], gpus=4)
    bench.until(job_id, "started")
    done = bench.cli("lease", "--no-wait", "true")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.startswith("dibs: cannot lease 1 GPU now: GPU 0: ")
    assert "job 1 (pid" in done.stderr
    assert done.stderr.count("\n") == 1


def test_it_waits_in_the_line_and_names_the_holder(bench: Bench) -> None:
    job_id = bench.add(["sleep", "1000"], gpus=4)
    bench.until(job_id, "started")
    with Terminal(bench, "lease", "echo", "mine") as person:
        person.until("waiting for 1 GPU: GPU 0: ")
        bench.cancel(job_id)
        code, shown = person.end()
    assert code == 0
    assert shown.endswith("mine\r\n")


def test_waiting_can_be_interrupted(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=4), "started")
    with Terminal(bench, "lease", "true") as person:
        person.until("waiting for 1 GPU")
        person.type(CTRL_C)
        assert person.end()[0] == 130
    assert not [name for name in os.listdir(bench.leases) if name.startswith(".dibs-ticket-")]


def test_a_job_waits_for_a_lease(bench: Bench) -> None:
    with Terminal(bench, "lease", "-g", "4") as person:
        person.until("export")
        job_id = bench.add("true")
        assert "lease" in bench.cli("why", str(job_id)).stdout
        assert "lease (pid" in bench.cli("gpus").stdout
        person.type(CTRL_C)
        assert person.end()[0] == 0
    assert bench.until(job_id)["state"] == "done"


# -- time limit ------------------------------------------------------------------------------------------------------


def overrun(bench: Bench, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a script that prints when it is ready, with a limit long enough for that, however slow this machine is."""
    for limit_s in (1, 4, 16, 32):
        done = bench.cli("lease", "-t", f"{limit_s}s", "sh", "-c", script, environ=environ)
        assert done.returncode == 124
        if done.stdout.startswith("ready\n"):
            return done
    raise AssertionError(f"was never ready: {done}")


def test_at_the_time_limit_the_command_gets_sigterm_and_the_code_is_124(bench: Bench) -> None:
    done = overrun(bench, "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.01; done")
    assert done.stdout == "ready\nasked\n"
    begun, *_, over = [line for line in done.stderr.splitlines() if line.startswith("dibs: ")]
    assert begun.startswith("dibs: GPU 0 leased for ")
    assert over == "dibs: time limit reached: the command gets TERM, and KILL after 30 s"


def test_a_command_that_ignores_sigterm_is_killed_with_its_process_tree(bench: Bench) -> None:
    """Including daemonized processes with a separate session: they would keep the GPU."""
    overrun(bench, "trap '' TERM; (setsid sleep 1000 &); echo ready; while :; do sleep 0.01; done", DIBS_GRACE="0.2s")
    assert held(bench) == {}


def test_a_command_that_ends_in_time_keeps_its_exit_code(bench: Bench) -> None:
    assert bench.cli("lease", "-t", "1h", "exit 3").returncode == 3


def test_a_lease_without_a_command_ends_at_its_time_limit(bench: Bench) -> None:
    done = bench.cli("lease", "-t", "0.1s")
    assert (done.returncode, done.stdout) == (124, "FAKE-0\nexport CUDA_VISIBLE_DEVICES=FAKE-0\n")
    assert done.stderr.endswith("dibs: lease time limit reached: the GPUs are released\n")
    assert held(bench) == {}


# -- keyboard and signals --------------------------------------------------------------------------------------------

#: Counts the INT it gets, until it is asked for the number.
COUNTING = "n=0; trap 'n=$((n+1)); echo got' INT; echo ready; while [ ! -e go ]; do sleep 0.01; done; echo total $n"


def test_an_interrupt_sent_to_lease_alone_reaches_the_command(bench: Bench) -> None:
    with Terminal(bench, "lease", "sh", "-c", COUNTING) as person:
        person.until("ready")
        person.signal(signal.SIGINT)
        person.until("got")
        (bench.folder / "go").touch()
        assert "total 1" in person.end()[1]


def test_ctrl_c_reaches_the_command_once(bench: Bench) -> None:
    with Terminal(bench, "lease", "sh", "-c", COUNTING) as person:
        person.until("ready")
        person.type(CTRL_C)
        person.until("got")
        (bench.folder / "go").touch()
        assert "total 1" in person.end()[1]


def test_ctrl_z_stops_and_fg_continues(bench: Bench) -> None:
    dibs = shlex.join([sys.executable, "-m", "dibs"])
    command = shlex.quote('echo ready; read line; echo "got $line"')
    # A shell with job control but without a line editor, which loses keys while it takes the terminal back.
    script = f"{dibs} lease sh -c {command}; echo back; until [ -e go ]; do sleep 0.01; done; fg; exit 7"
    with Terminal(bench, program=("bash", "--norc", "-m", "-c", script)) as person:
        person.until("ready")
        person.type(CTRL_Z)
        person.until("back")
        assert list(held(bench)) == ["FAKE-0"]
        (bench.folder / "go").touch()
        person.type("more\n")
        person.until("got more")
        assert person.end()[0] == 7
    assert held(bench) == {}


def test_the_command_controls_the_terminal(bench: Bench) -> None:
    """An interactive shell takes the terminal and gives it back."""
    with Terminal(bench, "lease", "bash", "--norc", "-i", PS1="$ ", HISTFILE="") as person:
        person.until("$ ")
        person.type("echo on $CUDA_VISIBLE_DEVICES; exit 5\n")
        person.until("on FAKE-0")
        assert person.end()[0] == 5


def test_losing_the_terminal_ends_the_command_and_frees_the_gpu(bench: Bench) -> None:
    with Terminal(bench, "lease", "sh", "-c", "echo ready; exec sleep 1000") as person:
        person.until("ready")
        assert person.hang_up() == 128 + signal.SIGHUP
    wait_for(lambda: held(bench), lambda seen: not seen)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_wait_ended_by_a_signal_has_its_exit_code_and_leaves_no_ticket(bench: Bench, number: signal.Signals) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=4), "started")
    with Terminal(bench, "lease", "true") as person:
        person.until("waiting for 1 GPU")
        person.signal(number)
        code, shown = person.end()
    assert code == 128 + number
    assert "dibs: stopped waiting; nothing is leased." in shown
    assert not tickets(bench)


def tickets(bench: Bench) -> list[str]:
    return [name for name in os.listdir(bench.leases) if name.startswith(".dibs-ticket-")]


# -- for a shell -----------------------------------------------------------------------------------------------------


class Shell:
    """A shell that reads commands from the test, with `dibs` on its PATH."""

    def __init__(self, bench: Bench, name: str) -> None:
        programs = bench.folder / "bin"
        programs.mkdir(exist_ok=True)
        script = programs / "dibs"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dibs "$@"\n')
        script.chmod(0o755)
        environ = bench.environ | {"PATH": f"{programs}:{bench.environ['PATH']}", "HOME": str(bench.folder)}
        self.process = subprocess.Popen(
            [name], env=environ, cwd=bench.folder, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def do(self, line: str) -> list[str]:
        """Run one line; return the output."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\necho :over:\n")
        self.process.stdin.flush()
        return list(iter(lambda: self.process.stdout.readline().rstrip("\n"), ":over:"))  # type: ignore[union-attr]


@contextmanager
def shell(bench: Bench, name: str = "bash") -> Iterator[Shell]:
    one = Shell(bench, name)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait(PATIENCE_S)
        for stream in (one.process.stdin, one.process.stdout):
            if stream is not None:
                stream.close()


EVAL = 'eval "$(dibs lease -g 2 --env)"'
SHELLS = [name for name in ("sh", "bash", "dash", "zsh") if shutil.which(name)]


@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_holds_gpus_until_it_exits(bench: Bench, name: str) -> None:
    with shell(bench, name) as one:
        assert one.do(EVAL) == []
        assert one.do("echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $DIBS_GPU_INDICES") == [
            "FAKE-0,FAKE-1 PCI_BUS_ID 0,1"
        ]
        note = f"lease of shell {one.process.pid}"
        assert held(bench) == {"FAKE-0": note, "FAKE-1": note}
    wait_for(lambda: held(bench), lambda seen: not seen)


@pytest.mark.parametrize("name", SHELLS)
def test_release_frees_the_gpus_and_unsets_the_variables(bench: Bench, name: str) -> None:
    with shell(bench, name) as one:
        one.do(EVAL)
        assert one.do('eval "$(dibs lease --release)"') == ["dibs: released: FAKE-0, FAKE-1"]
        assert held(bench) == {}
        assert one.do('echo "[$CUDA_VISIBLE_DEVICES$DIBS_GPU_INDICES]"') == ["[]"]
        assert one.do("dibs lease --release") == [
            "dibs: nothing is leased for this shell. dibs gpus shows who holds what."
        ]


@pytest.mark.parametrize("name", [name for name in ("fish",) if shutil.which(name)])
def test_fish_and_csh_are_detected(bench: Bench, name: str) -> None:
    with shell(bench, name) as one:
        # It reads all of its input before it begins.
        shown, _ = one.process.communicate(
            "dibs lease -g 2 --env | source; echo $CUDA_VISIBLE_DEVICES\ndibs lease --release | source\n"
            'echo "[$CUDA_VISIBLE_DEVICES$DIBS_GPU_INDICES]"\n',
            PATIENCE_S,
        )
    assert shown.splitlines() == ["FAKE-0,FAKE-1", "dibs: released: FAKE-0, FAKE-1", "[]"]


def test_the_shell_is_found_behind_a_wrapper_and_a_subshell_leases_separately(bench: Bench) -> None:
    with shell(bench) as one:
        one.do('eval "$(nice env A=1 dibs lease --env; true)"')
        assert held(bench) == {"FAKE-0": f"lease of shell {one.process.pid}"}
        one.do('(eval "$(dibs lease --env)"; printenv CUDA_VISIBLE_DEVICES > sub)')
        assert (bench.folder / "sub").read_text() == "FAKE-1\n"
        wait_for(lambda: list(held(bench)), lambda seen: seen == ["FAKE-0"])


def test_a_shell_can_lease_once_and_a_failure_is_the_exit_code_of_eval(bench: Bench) -> None:
    with shell(bench) as one:
        one.do('eval "$(dibs lease --env)"')
        shown = one.do('eval "$(dibs lease --env)" || echo no')
        assert shown == [
            f"dibs: shell {one.process.pid} has leased FAKE-0 already. First: dibs lease --release", "no"
        ]  # fmt: skip
        assert list(held(bench)) == ["FAKE-0"]


def test_a_killed_keeper_frees_the_gpu(bench: Bench) -> None:
    with shell(bench) as one:
        one.do('eval "$(dibs lease --env)"')
        (holder,) = holders.survey(device_lease.Folder(str(bench.leases)), ["FAKE-0"])["FAKE-0"]
        assert holder.pid is not None
        assert (holder.pid, holder.uid) != (one.process.pid, None)
        os.kill(holder.pid, signal.SIGKILL)
        wait_for(lambda: held(bench), lambda seen: not seen)


def test_the_lease_of_a_shell_ends_at_its_time_limit(bench: Bench) -> None:
    with shell(bench) as one:
        (said,) = one.do('eval "$(dibs lease --env -t 0.2s)"')
        assert said.startswith("dibs: GPU 0 leased for 0s, until ")
        wait_for(lambda: held(bench), lambda seen: not seen)
        assert one.do("echo alive") == ["alive"]


def test_the_syntax_of_fish_and_csh_can_be_requested(bench: Bench) -> None:
    with shell(bench) as one:
        assert one.do("dibs lease --env --shell fish")[0] == "set -gx CUDA_VISIBLE_DEVICES FAKE-0;"
        one.do("dibs lease --release")
        assert one.do("dibs lease --env --shell csh")[0] == "setenv CUDA_VISIBLE_DEVICES FAKE-0;"


def test_ctrl_c_while_a_shell_waits_leaves_nothing_behind(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=4), "started")
    with Terminal(bench, "lease", "--env") as person:
        person.until("waiting for 1 GPU")
        person.type(CTRL_C)
        assert person.end()[0] == 130
    wait_for(lambda: tickets(bench), lambda left: not left)


def test_no_wait_for_a_shell_is_exit_code_75(bench: Bench) -> None:
    bench.until(bench.add(["sleep", "1000"], gpus=4), "started")
    done = bench.cli("lease", "--env", "--no-wait")
    assert (done.returncode, done.stdout) == (75, "false;\n")
    assert done.stderr.startswith("dibs: cannot lease 1 GPU now: ")


# -- for a running process -------------------------------------------------------------------------------------------


def test_a_running_process_is_adopted_until_it_ends(bench: Bench) -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        done = bench.cli("lease", "--gpu-ids", "2", "--pid", str(process.pid))
        assert (done.returncode, done.stdout, done.stderr) == (0, "FAKE-2\n", "")
        assert held(bench) == {"FAKE-2": f"lease of process {process.pid}"}
        process.kill()
    wait_for(lambda: held(bench), lambda seen: not seen)


def test_an_adopted_process_can_be_released(bench: Bench) -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        bench.cli("lease", "-g", "2", "--pid", str(process.pid))
        done = bench.cli("lease", "--release", "--pid", str(process.pid))
        assert (done.returncode, done.stdout) == (0, "")
        assert held(bench) == {}
        assert process.poll() is None
        process.kill()


def test_a_process_that_does_not_exist_is_an_error(bench: Bench) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    done = bench.cli("lease", "--pid", str(process.pid))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"dibs: --pid expected a running process, got {process.pid}, which has exited.\n"


def test_a_process_of_another_user_is_not_adopted(bench: Bench) -> None:
    if os.geteuid() != 0:
        done = bench.cli("lease", "--pid", "1")
    else:
        with subprocess.Popen(["sleep", "1000"], user=65534) as process:
            done = bench.cli("lease", "--pid", str(process.pid))
            process.kill()
    assert done.returncode == 4
    assert done.stderr.endswith(" is not yours.\n")
    assert held(bench) == {}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--env", "true"), '--env takes no command, got "true".'),
        (("--pid", "1", "sleep", "9"), '--pid takes no command, got "sleep 9".'),
        (("--pid", "0"), '--pid expected a whole number from 1 up, got "0".'),
        (("--release", "-g", "2"), "--release releases everything that was leased; --gpus has no effect with it."),
        (("--shell", "fish"), "--shell has no effect without --env or --release."),
        (("-t", "8"), "-t expected a time such as 90m, 2h or 1d12h"),
    ],
)
def test_contradictory_options_are_a_one_line_error_and_lease_nothing(
    bench: Bench, words: tuple[str, ...], expected: str
) -> None:
    done = bench.cli("lease", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert held(bench) == {}


def test_a_lease_with_a_time_can_be_extended(bench: Bench) -> None:
    gate = bench.folder / "gate"
    script = f"echo ready; until [ -e {gate} ]; do sleep 0.01; done"
    with Terminal(bench, "lease", "-t", "2h", "sh", "-c", script) as person:
        person.until("ready")
        pid = next(bench.leases.glob(".dibs-end-*")).name.rpartition("-")[2]
        said = bench.cli("lease", "--extend", "1h", "--pid", pid).stderr
        assert f"the lease of process {pid} lasts 2h59m" in said or "lasts 3h00m" in said
        gate.touch()
        assert person.end()[0] == 0
    assert not list(bench.leases.glob(".dibs-end-*"))
    refused = bench.cli("lease", "--extend", "1h", "--pid", pid)
    assert refused.returncode == 3
    assert refused.stderr.startswith(f"dibs: no lease with a time limit (--time) belongs to process {pid}.")


@pytest.mark.parametrize("words", [["--extend", "1h", "--env"], ["--extend", "0s"], ["--extend", "1h", "true"]])
def test_extend_stands_alone(bench: Bench, words: list[str]) -> None:
    refused = bench.cli("lease", *words)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
