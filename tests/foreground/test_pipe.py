"""`dibs pipe`: one command a line from stdin, each on GPUs of its own, without a daemon."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bench import PATIENCE_S, Bench, wait_for
from dibs.leases import device_lease, holders
from terminal import CTRL_C, Terminal

GATE = "while [ ! -e go ]; do sleep 0.01; done"


def held(bench: Bench) -> dict[str, str | None]:
    """Return the devices that are held, and as what."""
    found = holders.survey(device_lease.Folder(str(bench.leases)), [f"FAKE-{n}" for n in range(4)])
    return {device: who[0].job for device, who in found.items() if who}


def start(bench: Bench, *words: str, stdin: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """Start a pipe that the test writes to."""
    return subprocess.Popen(
        [sys.executable, "-m", "dibs", "pipe", *words], env=bench.environ, cwd=bench.folder, stdin=stdin,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def feed(process: subprocess.Popen[str], *lines: str) -> None:
    """Write lines and leave the stream open."""
    assert process.stdin is not None
    process.stdin.write("".join(f"{line}\n" for line in lines))
    process.stdin.flush()


def wait_for_files(bench: Bench, *names: str) -> None:
    """Wait until commands have created these files."""
    wait_for(lambda: sorted(name for name in names if not (bench.folder / name).exists()), lambda missing: not missing)


def test_every_line_runs_on_a_gpu_with_an_empty_stdin(bench: Bench) -> None:
    command = (
        "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $DIBS_GPU_INDICES $PYTHONUNBUFFERED; readlink /proc/self/fd/0"
    )
    done = bench.cli("pipe", "--gpu-ids", "2", input=command, environ={"CUDA_VISIBLE_DEVICES": "9"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "FAKE-2 PCI_BUS_ID 2 1\n/dev/null\n", "")
    assert bench.pid() is None, "no daemon is needed"
    assert held(bench) == {}


@pytest.mark.parametrize("way", ["job", "share", "lease", "pipe"])
def test_inside_a_lease_a_pipe_uses_the_leased_gpus(bench: Bench, way: str) -> None:
    """Queueing for GPUs it already holds would deadlock; other GPUs are not used."""
    (bench.folder / "commands").write_text("echo $CUDA_VISIBLE_DEVICES >> seen\n" * 3)
    inner = f"{sys.executable} -m dibs pipe < commands"
    match way:
        case "job":
            done = bench.cli("run", "--gpu-ids", "2", inner)
        case "share":
            done = bench.cli("run", "--gpu-ids", "2", "--vram", "1G", inner)
        case "lease":
            done = bench.cli("lease", "--gpu-ids", "2", inner)
        case _:
            done = bench.cli("pipe", "--gpu-ids", "2", input=inner)
    assert (done.returncode, done.stderr) == (0, "")
    assert (bench.folder / "seen").read_text() == "FAKE-2\n" * 3
    wait_for(lambda: held(bench), lambda left: left == {})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-g 2", "dibs: -g 2: only 1 GPU can be used here."),
        ("--gpu-ids 1", "dibs: --gpu-ids names GPU 1; only GPU 2 can be used here."),
        ("--vram 1G", "dibs: --vram has no effect here: GPU 2 is leased already. Use --per-gpu 2."),
    ],
)
def test_more_gpus_than_leased_are_refused(bench: Bench, words: str, says: str) -> None:
    done = bench.cli("lease", "--gpu-ids", "2", f"{sys.executable} -m dibs pipe {words} < /dev/null")
    assert (done.returncode, done.stderr.strip()) == (2, says)


def test_a_group_larger_than_max_gpus_is_refused(bench: Bench) -> None:
    done = bench.cli("pipe", "--gpu-ids", "0,1", "2,3", input="touch never", environ={"DIBS_MAX_GPUS": "1"})
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith("dibs: each command asks for 2 GPUs; max_gpus allows 1.")
    assert not (bench.folder / "never").exists()


def test_a_stop_without_waiting_commands_mentions_only_unread_input(bench: Bench) -> None:
    process = start(bench, "--gpu-ids", "0")
    feed(process, f"touch began; {GATE}")
    wait_for_files(bench, "began")
    process.terminate()
    assert process.stderr is not None
    assert "no more commands start" in process.stderr.readline()
    (bench.folder / "go").touch()
    _, told = process.communicate(timeout=PATIENCE_S)
    assert told == "dibs: stopped before starting the rest of the input\n"


def test_empty_input_is_no_error(bench: Bench) -> None:
    done = bench.cli("pipe", input="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_failed_command_is_reported_and_sets_the_exit_code(bench: Bench) -> None:
    done = bench.cli("pipe", "--gpu-ids", "1", input="true\nexit 3\nkill -9 $$\n")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "dibs: command 2 failed (exit 3) on GPU 1: exit 3",
        "dibs: command 3 failed (signal 9) on GPU 1: kill -9 $$",
        "dibs: 2 of 3 commands failed",
    ]


@pytest.mark.parametrize("bad", ["echo " + "x" * 140_000, "echo a\0b"], ids=["too long", "NUL"])
def test_a_command_that_cannot_be_started_frees_its_slot(bench: Bench, bad: str) -> None:
    done = bench.cli("pipe", "--gpu-ids", "0", input=f"{bad}\necho next\n")
    assert (done.returncode, done.stdout) == (1, "next\n")
    assert "command 1 failed (cannot be started: " in done.stderr


def test_a_script_without_a_shebang_runs(bench: Bench) -> None:
    (bench.folder / "script").write_text("echo $1\n")
    (bench.folder / "script").chmod(0o755)
    assert bench.cli("pipe", input="./script seen").stdout == "seen\n"


def test_several_lines_can_be_one_command(bench: Bench) -> None:
    done = bench.cli("pipe", "-j", "1", input="X=1; echo a$X \\\n  b\n---\nX=2\necho c$X\n---\necho d$X\n")
    assert done.stdout == "a1 b\nc2\nd\n"


def test_blank_lines_are_commands_unless_they_are_skipped(bench: Bench) -> None:
    lines = "\n# nothing\ntrue\n"
    assert bench.cli("pipe", "--summary", input=lines).stdout.endswith("\n3 commands: 3 done, 0 failed\n")
    skipped = bench.cli("pipe", "--summary", "--skip-blank", input=lines)
    assert skipped.stdout.endswith("\n1 command: 1 done, 0 failed\n")


def test_a_line_starts_as_soon_as_it_is_read(bench: Bench) -> None:
    """As with `tail -f queue | dibs pipe`, which never ends by itself."""
    process = start(bench)
    for number in range(3):
        feed(process, f"touch {number}")
        wait_for_files(bench, str(number))
    assert process.communicate(timeout=PATIENCE_S) == ("", "")
    assert process.returncode == 0


def test_a_fifo_can_be_read_together_with_others(bench: Bench) -> None:
    fifo = bench.folder / "queue"
    os.mkfifo(fifo)
    writer = os.open(fifo, os.O_RDWR)
    readers = [os.open(fifo, os.O_RDONLY) for _ in range(2)]
    processes = [start(bench, stdin=reader) for reader in readers]
    os.write(writer, b"touch a\n")
    wait_for_files(bench, "a")
    os.write(writer, b"touch b\n")
    wait_for_files(bench, "b")
    for fd in (*readers, writer):
        os.close(fd)
    for process in processes:
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


def test_the_gpus_of_a_group_are_leased_together(bench: Bench) -> None:
    command = "echo $CUDA_VISIBLE_DEVICES $MASTER_ADDR ${MASTER_PORT:+port}"
    done = bench.cli("pipe", "--gpu-ids", "0,1", "2,3", input=f"{command}\n")
    assert done.stdout == "FAKE-0,FAKE-1 127.0.0.1 port\n"
    both = bench.cli("pipe", "--gpu-ids", "0,1 2,3", "--visible", "index", "--summary", input=f"{GATE}\ntouch go\n")
    assert "GPU 0,1" in both.stdout
    assert "GPU 2,3" in both.stdout


def test_each_command_gets_the_requested_number_of_gpus(bench: Bench) -> None:
    done = bench.cli("pipe", "-g", "2", "--gpu-ids", "1-3", input="echo $DIBS_GPU_INDICES\n" * 3)
    assert done.stdout == "1,2\n" * 3


def test_commands_share_a_gpu_on_request(bench: Bench) -> None:
    """Empty GPUs come first, then a second command on each: all four run at once with one lease per GPU."""
    wait = f"touch $0.$DIBS_GPU_INDICES; {GATE}"
    process = start(bench, "--gpu-ids", "0,1", "--per-gpu", "2")
    feed(process, *(wait.replace("$0", str(number)) for number in range(5)))
    wait_for_files(bench, "0.0", "1.1", "2.1", "3.0")
    assert held(bench) == {"FAKE-0": "pipe", "FAKE-1": "pipe"}
    (bench.folder / "go").touch()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_at_most_n_commands_run_at_once(bench: Bench) -> None:
    process = start(bench, "-j", "2")
    feed(process, *(f"touch {number}; {GATE}" for number in range(3)))
    wait_for_files(bench, "0", "1")
    assert sorted(held(bench)) == ["FAKE-0", "FAKE-1"]
    (bench.folder / "go").touch()
    process.communicate(timeout=PATIENCE_S)
    assert (bench.folder / "2").exists()


def test_each_command_can_have_its_own_output_file(bench: Bench) -> None:
    done = bench.cli("pipe", "--logs", "out/logs", "--retries", "1", input="echo a; echo b >&2\necho c; false\n")
    assert (done.stdout, done.returncode) == ("", 1)
    logs = bench.folder / "out" / "logs"
    assert {path.name: path.read_text() for path in logs.iterdir()} == {
        "1.log": "a\nb\n",
        "2.log": "c\n",
        "2.2.log": "c\n",
    }
    assert "command 2 failed (exit 1) on GPU 1, retrying: " in done.stderr


def test_failed_commands_are_retried(bench: Bench) -> None:
    done = bench.cli("pipe", "--retries", "2", "--summary", input="echo x >> tries; [ $(wc -l < tries) = 3 ]\n")
    assert done.returncode == 0
    assert done.stdout.endswith("\n1 command: 1 done, 0 failed\n")
    assert (bench.folder / "tries").read_text() == "x\n" * 3


def test_it_stops_after_n_failures(bench: Bench) -> None:
    done = bench.cli("pipe", "-j", "1", "--halt", "2", input="false\ntrue\nfalse\ntouch never\ntouch never\n")
    assert done.returncode == 1
    assert "dibs: halted before starting 2 commands" in done.stderr
    assert not (bench.folder / "never").exists()


def test_the_summary_lists_what_ran_where_and_how_it_ended(bench: Bench) -> None:
    done = bench.cli("pipe", "--gpu-ids", "3", "--summary", input="true\nexit 4\n")
    head, *rows, total = done.stdout.splitlines()
    assert head.split() == ["COMMAND", "WHERE", "STATE", "END", "TIME", "TEXT"]
    assert rows[0].split()[:5] == ["1", "GPU", "3", "done", "exit"]
    assert rows[1].split()[:6] == ["2", "GPU", "3", "failed", "exit", "4"]
    assert total == "2 commands: 1 done, 1 failed"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--gpus", "2"), 2, "--gpus 2 could be a count or a GPU. Write -g 2 for 2 GPUs per command, or --gpu-ids 2"),
        (("-g", "0,1"), 2, "-g expected a count"),
        (("-g", "5"), 69, "asks for 5 GPUs"),
        (("-g", "2", "--gpu-ids", "1"), 2, "-g 2: only 1 GPU can be used"),
        (("-g", "3", "--gpu-ids", "0,1", "2,3"), 2, "-g 3 contradicts"),
        (("--gpu-ids", "7"), 2, 'there is no GPU "7"'),
        (("--gpu-ids", "3-1"), 2, "a range that goes up"),
        (("--gpu-ids", "0,0"), 2, "names a GPU twice"),
        (("--gpu-ids", "0", "--gpus", "0,1"), 2, "both name GPUs"),
        (("python", "train.py"), 2, "takes no arguments"),
        (("--halt", "0"), 2, "--halt expected"),
        (("--logs", "/dev/null/x"), 2, "--logs expected a folder"),
    ],
)
def test_bad_input_is_a_one_line_error_and_runs_nothing(
    bench: Bench, words: tuple[str, ...], code: int, said: str
) -> None:
    done = bench.cli("pipe", *words, input="touch never\n")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("dibs: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (bench.folder / "never").exists()


@pytest.mark.parametrize(
    "words", [("--gpus", "0,1"), ("--gpus", "0", "1"), ("--gpu-ids", "FAKE-0,1"), ("--gpu-ids", "0-1")]
)
def test_a_gpu_list_has_several_notations(bench: Bench, words: tuple[str, ...]) -> None:
    done = bench.cli(
        "pipe", *words, input=f"touch a; {GATE}; echo $DIBS_GPU_INDICES\necho $DIBS_GPU_INDICES; touch go\n"
    )
    assert sorted(done.stdout.split()) == ["0", "1"]


def test_without_gpus_commands_run_without_one(bench: Bench) -> None:
    done = bench.cli("pipe", input="echo [$CUDA_VISIBLE_DEVICES]\n", environ={"DIBS_DEVICES": "none"})
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert "no GPU found" in done.stderr
    refused = bench.cli("pipe", "-g", "1", input="true\n", environ={"DIBS_DEVICES": "none"})
    assert refused.returncode == 69
    assert bench.cli("pipe", "-g", "0", input="echo [$CUDA_VISIBLE_DEVICES]\n").stdout == "[]\n"


def test_max_gpus_applies_to_a_pipe_too(bench: Bench) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dibs", "pipe"], env=bench.environ | {"DIBS_MAX_GPUS": "1"}, cwd=bench.folder,
        stdin=subprocess.PIPE, text=True,
    )  # fmt: skip
    feed(process, f"touch a; {GATE}", "touch b")
    wait_for_files(bench, "a")
    assert list(held(bench)) == ["FAKE-0"]
    (bench.folder / "go").touch()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_idle_gpus_are_released(bench: Bench) -> None:
    """At once at the end of the stream; after a short wait while more may come."""
    process = start(bench)
    feed(process, "true", f"touch began; {GATE}")
    wait_for_files(bench, "began")
    wait_for(lambda: held(bench), lambda seen: len(seen) == 1)
    (bench.folder / "go").touch()
    wait_for(lambda: held(bench), lambda seen: not seen)
    feed(process, "touch later")
    wait_for_files(bench, "later")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_a_pipe_and_another_command_take_turns(bench: Bench) -> None:
    """A lease is shared by all commands of the call, and offered back as soon as somebody else waits."""
    process = start(bench, "--gpu-ids", "0")
    feed(process, f"touch began; {GATE}; echo pipe >> order", *["echo pipe >> order"] * 3)
    wait_for_files(bench, "began")
    with Terminal(bench, "lease", "--gpu-ids", "0", "sh", "-c", "echo lease >> order") as person:
        assert "pipe (pid" in person.until("waiting for 1 GPU: GPU 0: ")
        (bench.folder / "go").touch()
        assert person.end()[0] == 0
    _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert (bench.folder / "order").read_text().split() == ["pipe", "lease", "pipe", "pipe", "pipe"]
    assert told.startswith("dibs: waiting for a GPU: ")


def test_it_waits_for_a_gpu_held_by_a_job(bench: Bench) -> None:
    job_id = bench.add(GATE, gpus=4)
    bench.until(job_id, "started")
    process = start(bench)
    feed(process, "touch ran")
    assert process.stderr is not None
    assert "job 1 (pid" in process.stderr.readline()
    assert not (bench.folder / "ran").exists()
    (bench.folder / "go").touch()
    process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, (bench.folder / "ran").exists()) == (0, True)


def test_leftover_processes_of_a_command_are_ended_and_named(bench: Bench) -> None:
    left = "sleep 1000 > /dev/null 2>&1 & echo $! > left"
    done = bench.cli("pipe", "--gpu-ids", "0", input=f"{left}\necho next\n")
    assert (done.returncode, done.stdout) == (0, "next\n")
    pid = (bench.folder / "left").read_text().strip()
    assert done.stderr == f"dibs: command 1 left processes running, now stopped: {pid} sleep\n"
    assert not Path(f"/proc/{pid}").exists()


def test_a_daemonized_process_is_ended_too(bench: Bench) -> None:
    done = bench.cli(
        "pipe",
        input="setsid sh -c 'echo $$ > left; exec sleep 1000' > /dev/null 2>&1 & while [ ! -s left ]; do :; done\n",
    )
    pid = (bench.folder / "left").read_text().strip()
    assert done.returncode == 0
    assert f"processes left running, now stopped: {pid} sleep" in done.stderr
    assert not Path(f"/proc/{pid}").exists()


def test_a_terminal_shows_progress(bench: Bench) -> None:
    (bench.folder / "commands").write_text(f"true\nfalse\n{GATE}\n")
    with Terminal(bench, "pipe", "--logs", "out") as person:
        person.type("false\n")
        person.until("1 failed, 0 running")
        person.type(f"{GATE}\n")
        person.until("1 running")
        (bench.folder / "go").touch()
        person.type("\x04")
        code, shown = person.end()
    assert code == 1
    assert "type commands, one per line" in shown


def test_the_output_of_commands_has_lines_of_its_own(bench: Bench) -> None:
    """It does not continue a line of progress."""
    with Terminal(bench, "pipe") as person:
        person.type("true\n")
        person.type(f"touch began; {GATE}; printf 'a result\\n'\n")
        wait_for_files(bench, "began")
        (bench.folder / "go").touch()
        person.type("\x04")
        code, shown = person.end()
    assert code == 0
    assert "a result" in shown.splitlines()


def test_after_ctrl_c_running_commands_finish(bench: Bench) -> None:
    with Terminal(bench, "pipe", "--gpu-ids", "0") as person:
        person.type(f"touch began; {GATE}; echo finished\ntouch never\n")
        wait_for_files(bench, "began")
        person.type(CTRL_C)
        person.until("no more commands start; 1 command finishes")
        (bench.folder / "go").touch()
        code, shown = person.end()
    assert code == 130
    assert "finished" in shown
    # The second line may have been read before Ctrl-C, which discards what the terminal still had.
    assert re.search(r"stopped before starting (1 command and )?the rest of the input", shown)
    assert not (bench.folder / "never").exists()


def test_after_a_hangup_running_commands_finish(bench: Bench) -> None:
    with Terminal(bench, "pipe", "--gpu-ids", "0") as person:
        person.type(f"touch began; {GATE}; touch finished\ntouch never\n")
        wait_for_files(bench, "began")
        os.close(person.master)
        person.master = -1
        (bench.folder / "go").touch()
        assert person.process.wait(PATIENCE_S) == 129
    assert (bench.folder / "finished").exists()
    assert not (bench.folder / "never").exists()


def test_a_command_that_reads_from_the_terminal_is_not_suspended_for_ever(bench: Bench) -> None:
    with Terminal(bench, "pipe") as person:
        person.type("cat /dev/tty; echo answered\n")
        person.until("answered\r\n")
        person.type("\x04")
        assert person.end()[0] == 0


def test_log_files_are_readable_and_writable_for_the_owner(bench: Bench) -> None:
    bench.cli("pipe", "--logs", "out", input="true\n")
    assert stat.S_IMODE((bench.folder / "out" / "1.log").stat().st_mode) & 0o600 == 0o600
