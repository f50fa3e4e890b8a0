"""What `add` and `run` accept: scripts and their options, arrays, warnings, templates, dry runs, hints."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from bench import Bench, wait_for
from dibs.errors import UserError
from dibs.system import processes
from terminal import Terminal


def write(bench: Bench, name: str, text: str) -> Path:
    """Write a script that is not executable into the working folder."""
    path = bench.folder / name
    path.write_text(text)
    path.chmod(0o644)
    return path


def add(bench: Bench, *words: str, says: str = "", **kwargs: Any) -> list[int]:
    """Submit from the command line, which prints exactly this on stderr; return the ids."""
    done = bench.cli("add", *words, **kwargs)
    assert (done.returncode, done.stderr) == (0, f"dibs: {says}\n" if says else "")
    return [int(line) for line in done.stdout.split()]


def refused(bench: Bench, *words: str, **kwargs: Any) -> str:
    """Return the one line with which a command line is refused; nothing is queued."""
    done = bench.cli(*words, **kwargs)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dibs: ")
    assert done.stderr.count("\n") == 1
    assert bench.client.get("/v1/jobs")["jobs"] == []
    return done.stderr


def output(bench: Bench, job_id: int) -> str:
    """Return everything a job printed."""
    assert bench.until(job_id)["state"] == "done", bench.log(job_id)
    return bench.log(job_id)


# -- lines --


def test_lines_in_one_text_are_queued_all_or_none(bench: Bench) -> None:
    defaults = {"cwd": "/", "hold": True, "gpus": 0}
    answer = bench.client.post("/v1/jobs", {"defaults": defaults, "lines": "echo 1\necho 2\necho 3"})
    assert answer["ids"] == [1, 2, 3]
    listed = bench.client.get("/v1/jobs", [("select", "all")])["jobs"]
    assert [(job["command"], job["name"], job["state"]) for job in listed] == [
        (f"echo {number}", "echo", "held") for number in (1, 2, 3)
    ]
    with pytest.raises(UserError, match="line 2: expected a command, got an empty one"):
        bench.client.post("/v1/jobs", {"defaults": defaults, "lines": "echo 4\n\necho 5"})
    with pytest.raises(UserError, match="expected an object with jobs, commands or lines"):
        bench.client.post("/v1/jobs", {"defaults": defaults, "lines": "true", "commands": ["true"]})
    assert len(bench.client.get("/v1/jobs", [("select", "all")])["jobs"]) == 3


def test_more_lines_than_a_list_holds_are_queued_by_one_command(bench: Bench) -> None:
    assert refused(bench, "add", "-", input="true\n" * 100_001 + "echo \0\n").startswith("dibs: stdin, line 100002: ")
    done = bench.cli("add", "--hold", "-", input="true\n" * 100_001)
    assert (done.returncode, len(done.stdout.split())) == (0, 100_001)
    assert bench.client.get("/v1/queue")["counts"]["held"] == 100_001


# -- scripts --


def test_a_script_runs_as_it_was_at_submit(bench: Bench) -> None:
    """Even if the file is changed or deleted by then, and also at a retry by another daemon."""
    file = write(bench, "train.sh", "#!/bin/sh\necho first $#: $1,$2\n")
    (job_id,) = add(bench, "--hold", "--script", "train.sh", "--", "--lr", "a b")
    file.write_text("echo second\n")
    bench.client.post("/v1/jobs/actions", {"verb": "unhold", "select": [str(job_id)]})
    assert output(bench, job_id) == "first 2: --lr,a b\n"
    file.unlink()
    bench.stop()
    bench.start()
    bench.retry(job_id, done=True)
    assert output(bench, job_id) == "first 2: --lr,a b\n"
    assert bench.job(job_id)["attempt"] == 2


def test_a_script_is_private_and_knows_its_name(bench: Bench) -> None:
    write(bench, "train.sh", 'ls -l "$0"; echo "$DIBS_SCRIPT"\n')
    (job_id,) = add(bench, "--script", "train.sh")
    mode, path = output(bench, job_id).split("\n")[:2]
    assert mode.startswith("-rw------- ")
    assert mode.endswith("/script/train.sh")
    assert path == str(bench.folder / "train.sh")
    assert stat.S_IMODE(os.stat(bench.home / "dibs.db").st_mode) == 0o600
    job = bench.job(job_id)
    assert (job["script"], job["command"], job["name"]) == ("train.sh", "train.sh", "train.sh")


def test_a_python_script_is_run_by_python_and_can_import_its_neighbours(bench: Bench) -> None:
    (bench.folder / "lib").mkdir()
    write(bench, "lib/beside.py", "WORD = 'found'\n")
    write(bench, "lib/train.py", "#!/usr/bin/env python3\nimport sys, beside\nprint(beside.WORD, sys.argv[1:])\n")
    (job_id,) = add(bench, "--script", "lib/train.py", "x")
    assert output(bench, job_id) == "found ['x']\n"


@pytest.mark.parametrize("word", ["train.sh", "./train.sh"])
@pytest.mark.parametrize("text", ["#!/bin/sh\necho hi\n", "#DIBS -g 0\necho hi\n", "#SBATCH -J x\necho hi\n"])
def test_a_single_file_with_a_shebang_or_options_is_a_script(bench: Bench, word: str, text: str) -> None:
    write(bench, "train.sh", text)
    (job_id,) = add(bench, "A=1", word)
    assert output(bench, job_id) == "hi\n"
    assert bench.job(job_id)["script"] == "train.sh"
    assert bench.job(job_id)["env"]["A"] == "1"


def test_a_file_does_not_shadow_a_program_of_the_same_name(bench: Bench) -> None:
    write(bench, "true", "#!/bin/sh\nexit 3\n")
    (job_id,) = add(bench, "true")
    assert bench.until(job_id)["state"] == "done"
    assert bench.job(job_id)["script"] is None


def test_a_script_can_be_read_from_stdin(bench: Bench) -> None:
    (job_id,) = add(bench, "--script", "-", "a", "b", input="echo $2 $1\n")
    assert output(bench, job_id) == "b a\n"


SLURM = """#!/bin/bash
#SBATCH --job-name=vit --time=60 --mem=4000
#SBATCH --gres=gpu:2
#SBATCH -o out/%x-%j.log
#SBATCH -p gpu --mail-type=END
#SBATCH --cpus-per-task=2
#DIBS --tag lab -e A=1
echo $SLURM_JOB_ID $SLURM_JOB_NAME $SLURM_CPUS_PER_TASK $SLURM_SUBMIT_DIR ${SLURM_ARRAY_TASK_ID-none}
"""


def test_a_script_for_slurm_runs_with_slurms_units_names_and_variables(bench: Bench) -> None:
    write(bench, "vit.sh", SLURM)
    (job_id,) = add(bench, "vit.sh", says="vit.sh: ignored here: -p gpu, --mail-type=END")
    assert output(bench, job_id) == f"{job_id} vit 2 {bench.folder} none\n"
    job = bench.job(job_id)
    assert (job["name"], job["gpus"], job["time_limit_s"], job["mem"]) == ("vit", 2, 3600, 4000 * 2**20)
    assert (job["tags"], job["log"]) == (["lab"], f"{bench.folder}/out/vit-{job_id}.log")


def test_the_command_line_overrides_script_options_and_dibs_lines_override_sbatch(bench: Bench) -> None:
    write(bench, "x.sh", "#DIBS -g 1 -e A=1 -e B=1 --tag a\n#SBATCH --gres=gpu:3 --time=5 -J slurm\ntrue\n")
    (job_id,) = add(bench, "-n", "typed", "-e", "B=2", "--tag", "b", "x.sh")
    job = bench.job(job_id)
    assert (job["name"], job["gpus"], job["time_limit_s"], job["tags"]) == ("typed", 1, 300, ["a", "b"])
    assert (job["env"]["A"], job["env"]["B"]) == ("1", "2")
    (job_id,) = add(bench, "--gpu-ids", "0,2", "x.sh")
    assert bench.job(job_id)["request"]["gpu_ids"] == ["FAKE-0", "FAKE-2"]


def test_an_sbatch_warning_without_a_limit_is_ignored(bench: Bench) -> None:
    write(bench, "x.sh", "#SBATCH --signal=B:USR1@90\ntrue\n")
    (job_id,) = add(bench, "x.sh", says="x.sh: ignored here: --signal without --time")
    assert bench.job(job_id)["warn"] is None
    (job_id,) = add(bench, "-t", "1h", "x.sh")
    assert bench.job(job_id)["warn"] == {"signal": "USR1", "before_s": 90}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "#SBATCH --nodes=2\ntrue\n",
            "x.sh, line 1: --nodes=2 asks for 2 nodes, but dibs runs a job on one machine.",
        ),
        ("#!/bin/sh\n#DIBS --gpsu 2\n", "x.sh, line 2: add has no option --gpsu. Did you mean --gpus?"),
        ("#DIBS -t 30\n", 'x.sh, line 1: -t expected a time such as 90m, 2h or 1d12h, got "30"'),
        ("#DIBS -g 2 echo\n", 'x.sh, line 1: expected options, got "echo".'),
        ("#SBATCH --array=9-1\n", "x.sh, line 1: --array expected numbers"),
        ("#DIBS --script y.sh\n", "x.sh, line 1: add has no option --script."),
        ("#!/bin/sh\r\ntrue\r\n", "x.sh has Windows line endings"),
        ("#!/nowhere/python\n", "x.sh: command not found: /nowhere/python (its first line names it)."),
        ("#!/usr/bin/env no-such-python\n", "x.sh: command not found: no-such-python (its first line names it)."),
        ("", "x.sh is empty"),
        ("a\0b", "x.sh is a binary file, not a script."),
    ],
)
def test_a_script_that_cannot_be_queued_is_refused(bench: Bench, text: str, says: str) -> None:
    write(bench, "x.sh", text)
    assert says in refused(bench, "add", "--script", "x.sh")


def test_an_unreadable_script_is_refused(bench: Bench) -> None:
    assert "--script cannot read nowhere.sh: No such file or directory." in refused(
        bench, "add", "--script", "nowhere.sh"
    )
    assert "--script cannot read .: Is a directory." in refused(bench, "add", "--script", ".")


def test_a_file_that_is_no_program_gives_the_hint_to_use_script(bench: Bench) -> None:
    write(bench, "train.txt", "echo\n")
    assert "Submit it as a script: dibs add --script train.txt -- ARGUMENTS" in refused(bench, "add", "train.txt", "x")
    assert "Submit it as a script: dibs run --script ./train.txt\n" in refused(bench, "run", "./train.txt")


def test_a_notebook_is_given_a_command_that_runs_it(bench: Bench) -> None:
    write(bench, "train.ipynb", "{}")
    hint = "it is a notebook. Run its cells: dibs add jupyter execute ./train.ipynb\n"
    assert hint in refused(bench, "add", "./train.ipynb")


def test_a_python_file_is_given_its_interpreter(bench: Bench) -> None:
    write(bench, "train.py", "print()\n")
    python = "python" if shutil.which("python", path=bench.environ["PATH"]) else "python3"
    says = "command not found: train.py; it is a Python file. Name its interpreter: dibs add "
    assert f"{says}{python} train.py x\n" in refused(bench, "add", "train.py", "x")
    says = "train.py has no #! line, so it would run in a shell. Start it with #!/usr/bin/env python3"
    assert says in refused(bench, "add", "--script", "train.py")


@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_interpreter_of_the_active_environment_is_named(bench: Bench, name: str) -> None:
    (bench.folder / "work").mkdir()
    write(bench, "work/train.py", "print()\n")
    inside, outside = bench.folder / "work" / ".venv", bench.folder / "env"
    for folder in (inside, outside):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to("/bin/true")
    for folder, python in ((inside, ".venv/bin/python"), (outside, f"{outside}/bin/python")):
        says = refused(bench, "add", "-C", f"{bench.folder}/work", "train.py", environ={name: str(folder)})
        assert says.endswith(f" Name its interpreter: dibs add {python} train.py\n")


def test_an_executable_script_gives_a_warning_that_its_option_lines_are_ignored(bench: Bench) -> None:
    write(bench, "x.sh", SLURM).chmod(0o755)
    says = "./x.sh runs as a program, which ignores its #DIBS and #SBATCH lines. To use them: dibs add --script ./x.sh"
    (job_id,) = add(bench, "./x.sh", "a", says=says)
    assert bench.job(job_id)["script"] is None


def test_a_job_submitted_inside_a_job_does_not_inherit_its_array_index(bench: Bench) -> None:
    bench.start()
    environ = {"DIBS_JOB_ID": "5", "SLURM_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "3"}
    (job_id,) = add(bench, "echo ${SLURM_ARRAY_TASK_ID-none}", environ=environ)
    assert output(bench, job_id) == "none\n"
    # The variable of a real cluster is kept.
    (job_id,) = add(bench, "echo ${SLURM_ARRAY_TASK_ID-none}", environ=environ | {"DIBS_JOB_ID": "6"})
    assert output(bench, job_id) == "3\n"


def test_run_accepts_one_script_only(bench: Bench) -> None:
    write(bench, "x.sh", "#!/bin/sh\necho ran; exit 3\n")
    done = bench.cli("run", "x.sh")
    assert (done.returncode, done.stdout) == (3, "ran\n")
    write(bench, "x.sh", "#SBATCH --array=0-3\n")
    done = bench.cli("run", "x.sh")
    assert (done.returncode, done.stdout) == (2, "")
    assert "run takes one job; --array is for many. Submit them with dibs add." in done.stderr


# -- many jobs --


def test_an_array_is_one_job_per_index(bench: Bench) -> None:
    ids = add(
        bench, "-g0", "--array", "1,3-5:2", "echo $DIBS_INDEX $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_JOB_ID $SLURM_JOB_ID"
    )
    assert [output(bench, n) for n in ids] == [f"{i} {i} {ids[0]} {n}\n" for i, n in zip((1, 3, 5), ids, strict=True)]
    assert [bench.job(n)["index"] for n in ids] == [1, 3, 5]


def test_an_array_may_limit_how_many_run_at_once(bench: Bench) -> None:
    shown = json.loads(bench.cli("add", "--dry-run", "--json", "--array", "0-9%4", "true").stdout)
    assert (len(shown["jobs"]), shown["at_once"]) == (10, 4)
    shown = json.loads(bench.cli("add", "--dry-run", "--json", "-j", "2", "--array", "0-9%4", "true").stdout)
    assert shown["at_once"] == 2
    ids = add(bench, "-g0", "--array", "0-2%1", "sleep 1000")
    bench.until(ids[0], "started")
    assert [bench.job(n)["state"] for n in ids[1:]] == ["queued", "queued"]


def test_repeated_jobs_are_equal_except_for_their_number(bench: Bench) -> None:
    ids = add(bench, "-g0", "--repeat", "2", "-o", "{index}.txt", "echo $DIBS_INDEX ${SLURM_JOB_ID-none}")
    assert [output(bench, n) for n in ids] == ["0 none\n", "1 none\n"]
    assert (bench.folder / "1.txt").read_text() == "1 none\n"
    ids = add(bench, "-g0", "--repeat", "2", "-", input="true\nfalse\n")
    assert [(bench.job(n)["command"], bench.job(n)["index"]) for n in ids] == [
        *(("true", 0), ("true", 1), ("false", 0), ("false", 1))
    ]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"array": 5}, "array expected a text"),
        ({"array": "x"}, "--array expected"),
        ({"array": "0-3", "repeat": 2}, "expected `array` with one job"),
        ({"repeat": 0}, "--repeat expected a whole number from 1 up"),
        ({"repeat": 10**6}, "--repeat expected"),
        ({"repeat": True}, "--repeat expected"),
        ({"times": 2}, "expected an object with jobs, commands or lines"),
    ],
)
def test_the_api_refuses_an_invalid_array_too(bench: Bench, more: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        bench.client.post("/v1/jobs", {"jobs": [{"command": "true", "cwd": "/"}], **more})
    assert bench.client.get("/v1/jobs")["jobs"] == []


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"command": "x", "script": "dHJ1ZQ=="}, "expected `argv` to begin with the absolute path of the script."),
        ({"argv": ["x"], "script": "dHJ1ZQ=="}, "expected `argv` to begin with the absolute path"),
        ({"argv": ["/x/.."], "script": "dHJ1ZQ=="}, "expected `argv` to begin with the absolute path"),
        ({"argv": ["/x"], "script": "?"}, "script expected base64"),
        ({"argv": ["/x"], "script": "é"}, "script expected base64"),
        ({"command": "x", "environ": "é"}, "environ expected base64"),
        ({"command": "x", "begin_at": "9999-12-31T23:59:59-10:00"}, "begin_at expected a time such as"),
        ({"argv": ["/x"], "script": "AA=="}, "x is a binary file, not a script"),
        ({"command": "x", "output": "{foo}"}, "--output expected placeholders among"),
        ({"command": "x", "time_limit_s": 9, "warn": {"signal": "FOO"}}, "--signal expected a signal such as USR1"),
        ({"command": "x", "metric": {"loss": "("}}, "--metric expected NAME=REGEX"),
        ({"command": "x", "gpus": "two"}, "--gpus: expected a whole number"),
        ({"command": "x", "colour": 1}, "the request: object contains unknown field `colour`."),
    ],
)
def test_the_api_refuses_an_invalid_job(bench: Bench, job: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        bench.client.post("/v1/jobs", {"cwd": "/", **job})
    assert bench.client.get("/v1/jobs")["jobs"] == []


def test_an_error_message_truncates_long_values(bench: Bench) -> None:
    with pytest.raises(UserError) as caught:
        bench.client.post("/v1/jobs", {"command": "x", "visible": "x" * 1_000_000})
    assert caught.value.message.startswith("--visible expected uuid or index")
    assert len(caught.value.message) < 5000


# -- single options --


def test_with_wait_tree_a_job_lasts_as_long_as_its_children(bench: Bench) -> None:
    gate = bench.folder / "gate"
    os.mkfifo(gate)
    (job_id,) = add(bench, "-g0", "--wait-tree", f"(cat {gate} > late) & exit 0")
    pid = bench.until(job_id, "started")["pid"]
    wait_for(lambda: processes.look(pid) is None)
    # Another job that leaves something running has ended since; this one would have ended before it.
    (other,) = add(bench, "-g0", "sleep 1000 & exit 0")
    assert bench.until(other)["state"] == "done"
    assert bench.job(job_id)["state"] == "running"
    gate.write_text("kept\n")
    assert bench.until(job_id)["state"] == "done"
    assert (bench.folder / "late").read_text() == "kept\n"
    assert bench.job(job_id)["wait_tree"] is True


def test_a_comment_is_stored_shown_edited_and_removed(bench: Bench) -> None:
    (job_id,) = add(bench, "--hold", "--comment", "warm start \x1b[31mred", "true")
    assert bench.job(job_id)["comment"] == "warm start \x1b[31mred"
    assert "--comment" in bench.job(job_id)["cli"]
    shown = bench.cli("show", str(job_id)).stdout
    assert re.search(r"^ *comment +warm start", shown, re.MULTILINE)
    assert "\x1b" not in shown
    assert json.loads(bench.cli("show", "--json", str(job_id)).stdout)["comment"].startswith("warm start")
    assert bench.cli("edit", str(job_id), "--comment", "cold start").returncode == 0
    assert bench.job(job_id)["comment"] == "cold start"
    assert bench.cli("edit", str(job_id), "--unset", "comment").returncode == 0
    assert bench.job(job_id)["comment"] is None
    assert not re.search(r"^ *comment ", bench.cli("show", str(job_id)).stdout, re.MULTILINE)


def test_a_comment_can_be_set_over_http(bench: Bench) -> None:
    (job_id,) = bench.client.post("/v1/jobs", {"command": "true", "hold": True, "comment": "from a program"})["ids"]
    assert bench.job(job_id)["comment"] == "from a program"
    for wrong in ("x" * 4097, "", 7, "\0"):
        with pytest.raises(UserError):
            bench.client.post("/v1/jobs", {"command": "true", "comment": wrong})


@pytest.mark.parametrize("comment", ["", "x" * 4097, "\udcff"])
def test_an_invalid_comment_is_refused(bench: Bench, comment: str) -> None:
    assert "comment" in refused(bench, "add", "--comment", comment, "true")


def test_metrics_and_warnings_are_stored(bench: Bench) -> None:
    (job_id,) = add(bench, "--metric", "loss=loss: ([0-9.]+)", "--signal", "usr1@90s", "-t", "1h", "true")
    job = bench.job(job_id)
    assert (job["metric"], job["warn"]) == ({"loss": "loss: ([0-9.]+)"}, {"signal": "USR1", "before_s": 90})


def test_a_warning_reaches_the_program_inside_a_shell(bench: Bench) -> None:
    """The shell around it, which the signal would end, does not get it."""
    program = (
        "import signal, sys; signal.signal(signal.SIGUSR1, lambda *_: sys.exit('saved'))\nwhile True: signal.pause()"
    )
    write(bench, "program.py", program)
    (job_id,) = add(bench, "-g0", "-t", "1h", "--signal", "USR1@3599.9s", "python3 program.py; echo then $?")
    assert output(bench, job_id) == "saved\nthen 1\n"


def test_output_templates_create_folders_when_the_job_starts(bench: Bench) -> None:
    (job_id,) = add(bench, "--hold", "-n", "a/b", "-o", "out/{{x}}/{project}-{name}-{id:03}-{attempt}", "echo hi")
    assert not (bench.folder / "out").exists()
    bench.client.post("/v1/jobs/actions", {"verb": "unhold", "select": [str(job_id)]})
    assert output(bench, job_id) == "hi\n"
    assert (bench.folder / f"out/{{x}}/default-a_b-{job_id:03}-1").read_text() == "hi\n"


def test_options_of_slurm_and_pueue_are_accepted(bench: Bench) -> None:
    (job_id,) = add(
        bench,
        *("--gres", "gpu:2", "-c", "2", "-l", "foo", "-D", "/tmp", "--group", "lab", "--stashed", "--wrap", "a | b"),
    )
    job = bench.job(job_id)
    assert (job["gpus"], job["cpus"], job["name"], job["cwd"]) == (2, 2, "foo", "/tmp")
    assert (job["group"], job["state"], job["command"]) == ("lab", "held", "a | b")
    (job_id,) = add(bench, "--gpus-per-node", "pretend:1", "--delay", "2h", "true")
    assert bench.job(job_id)["request"]["gpu_type"] == "pretend"
    assert bench.job(job_id)["begin_at"] is not None


# -- dry runs --


def test_a_dry_run_shows_what_would_be_queued_and_changes_nothing(bench: Bench) -> None:
    done = bench.cli("add", "--dry-run", "-g", "2", "-e", "A=1", "-e", "API_KEY=x", "-t", "1h", "echo a | cat")
    assert (done.returncode, done.stderr) == (0, "")
    first, *facts = done.stdout.splitlines()
    assert first == "1 job would be submitted; nothing was submitted."
    assert [line.split(maxsplit=1) for line in facts] == [
        ["command", "echo a | cat"],
        [
            "runs",
            f"{bench.client.post('/v1/jobs?dry_run=yes', {'command': 'a|b'})['jobs'][0]['runs'][0]} -c 'echo a | cat'",
        ],
        ["folder", str(bench.folder)],
        ["name", "echo"],
        ["project", "default"],
        ["GPUs", "2"],
        ["sets", "A=1 API_KEY='***'"],
        ["time", "limit  1h00m"],
        ["starts", "now, on GPUs 0, 1"],
    ]
    assert bench.client.get("/v1/jobs")["jobs"] == []
    assert bench.cli("run", "--dry-run", "true").returncode == 0
    assert add(bench, "true") == [1]


def test_a_dry_run_shows_where_the_job_would_start(bench: Bench) -> None:
    bench.until(bench.add("sleep 600", gpus=2), "started")
    told = [bench.client.post("/v1/jobs?dry_run=1", {"command": "true", "gpus": gpus}) for gpus in (2, 0, 3)]
    assert told[0]["expected_start"]["gpu_ids"] == ["FAKE-2", "FAKE-3"]
    assert told[0]["expected_start"]["gpu_indices"] == [2, 3]
    assert told[1]["expected_start"]["gpu_ids"] == []
    assert told[2]["expected_start"] is None
    assert "starts   now\n" in bench.cli("add", "--dry-run", "-g", "0", "true").stdout


def test_a_dry_run_shows_a_single_time_if_the_range_is_one(bench: Bench) -> None:
    done = bench.cli("add", "--dry-run", "--begin", "2099-01-01T00:00:00Z", "true")
    assert re.search(r"starts   at 2099-01-01 00:00 \(in \d+d\d+h\), on GPU 0\n", done.stdout)
    with Terminal(bench, "add", "--dry-run", "true") as person:
        shown = person.end()[1]
    assert re.search(r"starts \S*  now, on GPU 0\r\n", shown)


def test_a_dry_run_refuses_what_a_submission_would(bench: Bench) -> None:
    assert bench.cli("add", "--dry-run", "-g", "9", "true").returncode == 69
    assert bench.cli("add", "--dry-run", "-a", "7", "true").returncode == 3
    assert "command not found: no-such-program" in refused(bench, "add", "--dry-run", "no-such-program")


def test_a_dry_run_of_many_jobs_shows_the_first_ones(bench: Bench) -> None:
    done = bench.cli("add", "--dry-run", "--array", "0-11%3", "true")
    assert done.stdout.startswith("12 jobs would be submitted; nothing was submitted.\n")
    assert "at once" in done.stdout
    assert done.stdout.endswith("  9: true\n  ... and 2 more\n")
    shown = json.loads(bench.cli("add", "--dry-run", "--json", "--array", "0-11%3", "true").stdout)
    assert [job["index"] for job in shown["jobs"]] == list(range(12))
    assert shown["jobs"][0]["runs"] == ["true"]


def test_a_dry_run_says_when_the_start_is_unknown(bench: Bench) -> None:
    assert "starts   unknown: it would be held" in bench.cli("add", "--dry-run", "--hold", "true").stdout
    (job_id,) = add(bench, "-g", "4", "sleep", "1000")
    bench.until(job_id, "started")
    assert "starts   unknown: " in bench.cli("add", "--dry-run", "true").stdout


# -- hints --


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["cd", "x"], 'command not found: cd; it is built into the shell. Quote the command: dibs add "cd x && ..."'),
        (["source", "venv/bin/activate"], "built into the shell"),
        (["ll"], "command not found: ll (shell aliases and functions do not work here)"),
        (["-a", "1", "2", "--", "true"], "separate several jobs with commas: --after 1,2"),
    ],
)
def test_an_unknown_program_gives_a_hint(bench: Bench, words: list[str], says: str) -> None:
    assert says in refused(bench, "add", *words)


def test_a_mistyped_program_name_gets_a_suggestion(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "trainer").symlink_to("/bin/true")
    (tmp_path / "trayner").write_text("not a program")
    says = 'command not found: triner; did you mean trainer? Quote a command that needs a shell: dibs add "triner ..."'
    assert says in refused(bench, "add", "-e", f"PATH={tmp_path}:/nowhere:", "triner", "x")
    assert "did you mean" not in refused(bench, "add", "-e", f"PATH={tmp_path}", "trayne")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["python3", "trian.py", "--out", "new.py"], "trian.py does not exist in {} (did you mean train.py?)"),
        (["env", "A=1", "./src/run.sh"], None),
        (["bash", "jobs/run"], "jobs/run does not exist in {}"),
        (["python3", "-u", "missing.sh"], "missing.sh does not exist in {}"),
    ],
)
def test_a_script_that_does_not_exist_is_warned_about(bench: Bench, words: list[str], says: str | None) -> None:
    write(bench, "train.py", "print()\n")
    (bench.folder / "src").mkdir()
    write(bench, "src/run.sh", "true\n")
    warning = says.format(bench.folder) if says else ""
    assert len(add(bench, "--hold", "-C", str(bench.folder), *words, says=warning)) == 1


def test_a_command_line_that_cannot_start_is_warned_about_once_however_it_is_submitted(bench: Bench) -> None:
    write(bench, "train.py", "print()\n")
    write(bench, "lines", "# ours\ntrain.py --lr=1\ntrain.py --lr=2\n")
    there = ["--hold", "-C", str(bench.folder)]
    for words in (
        ["add", *there, "train.py --lr=1"],
        ["add", *there, "--file", str(bench.folder / "lines")],
        ["sweep", *there, "--name", "one", "-p", "lr=1,2", "--", "train.py --lr={lr}"],
        ["map", *there, "train.py --lr={}", ":::", "1", "2"],
    ):
        done = bench.cli(*words)
        assert done.returncode == 0
        said = [line for line in done.stderr.splitlines() if "command not found" in line]
        assert len(said) == 1, done.stderr
        assert said[0].startswith("dibs: command not found: train.py; it is a Python file. Name its interpreter: ")
    done = bench.cli("add", *there, "-q", "train.py --lr=1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["echo", "docs/new", "--to", "x.py"], ["env", "https://here/x.py"], ["true"]])
def test_other_words_are_no_scripts(bench: Bench, words: list[str]) -> None:
    add(bench, "--hold", *words)


def test_activating_an_environment_in_a_job_is_refused(bench: Bench) -> None:
    says = refused(bench, "add", "conda", "activate", "x")
    assert "conda activate changes only the shell that runs it, so a job with nothing else has no effect." in says
    assert "conda activate x && dibs add python train.py. Or: dibs add conda run -n x python train.py" in says


def test_an_interactive_shell_gives_the_hint_to_use_a_lease(bench: Bench) -> None:
    done = bench.cli("run", "bash")
    assert done.returncode == 0
    assert done.stderr == "dibs: a job has no keyboard: bash will end at once. To type into it: dibs lease bash\n"


def test_a_cuda_visible_devices_of_the_shell_is_mentioned_once(bench: Bench) -> None:
    chosen = {"CUDA_VISIBLE_DEVICES": "3"}
    says = "CUDA_VISIBLE_DEVICES=3 is set here, but jobs do not see it: dibs chooses their GPUs (--gpu-ids, --prefer)"
    add(bench, "true", environ=chosen, says=says)
    add(bench, "true", environ=chosen)
    assert bench.cli("run", "true", environ=chosen).stderr == ""
    assert bench.cli("run", "true", environ=chosen | {"CUDA_VISIBLE_DEVICES": "4"}).stderr != ""
    assert add(bench, "true", environ=chosen | {"DIBS_GPU_INDICES": "3"})
    wait_for(lambda: all(job["state"] == "done" for job in bench.jobs()))
