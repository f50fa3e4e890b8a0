"""The texts of `dibs help TOPIC`, from which `docs/topics.md` is generated. Tables come from the code."""

from __future__ import annotations

from dibs import errors
from dibs.model import selectors
from dibs.model.jobs import Cause
from dibs.system import settings

#: A paragraph, or the rows of a table with two columns.
Part = str | tuple[tuple[str, str], ...]

#: Exit codes of `dibs` itself that belong to no error.
OWN_CODES = (
    ("0", "Success. `wait`: all jobs succeeded."),
    (
        "1",
        "`wait`: a job did not succeed. `hold`, `pause`, `kill`, `retry`: no job changed. `doctor`: a problem.",
    ),
    ("124", "`wait --timeout`: timed out."),
    ("130", "Interrupted with Ctrl-C."),
)
#: Exit codes of `run` and `follow` other than that of the command.
JOB_CODES = (
    ("128 + n", "Killed by signal n."),
    ("124", "Stopped at its time limit."),
    ("125", "Lost, or an internal error of dibs."),
    ("126, 127", "The command could not be executed, or was not found."),
    ("130", "Cancelled before it started."),
)
#: The environment variables that a job gets.
VARIABLES = (
    ("CUDA_VISIBLE_DEVICES", "the assigned GPUs, as UUIDs (or indices: `--visible index`); empty for none"),
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
    ("DIBS_JOB_ID, DIBS_JOB_NAME", "the job"),
    ("DIBS_PROJECT", "its project"),
    ("DIBS_ATTEMPT", "1, 2, ...: the attempt"),
    ("DIBS_JOB_DIR", "the job's folder, with the logs of all attempts"),
    ("DIBS_GPU_INDICES", "the assigned GPUs by index, as in nvidia-smi"),
    ("DIBS_CHECKPOINT_DIR", "a folder that is kept across attempts"),
    ("DIBS_REPORT", "a file for metrics as JSON lines; `dibs report` appends to it"),
    ("DIBS_PORT", "a free TCP port, e.g. for torchrun"),
    ("DIBS_PYTHON", "the Python interpreter of dibs"),
    ("DIBS_STOP", "TERM@30: the stop signal, and the seconds until SIGKILL"),
    ("DIBS_WARN", "with --signal: USR1@120, the warning signal, and the seconds until the time limit"),
    ("MASTER_ADDR, MASTER_PORT", "with a GPU, unless they are set"),
    ("PYTHONUNBUFFERED", "1, unless it is set"),
)
STATES = (
    ("held", "held by `hold`, or by `--halt` of its batch; `unhold` releases it"),
    ("queued", "waiting; `dibs why` says for what"),
    ("starting", "its GPUs are being leased"),
    ("running", "its command is running"),
    ("paused", "suspended; it keeps its GPUs"),
    ("stopping", "being stopped"),
    ("done", "its command exited with 0"),
    ("failed", "its command exited with another code, or could not be started"),
    ("cancelled", "by `cancel`, or because a job it depends on did not succeed"),
    ("timeout", "reached its time limit (`--time`)"),
    ("lost", "result unknown: the machine went down, or its runner was killed"),
)
#: What a program that types commands, such as a coding agent, should type.
AGENTS = (
    ("id=$(dibs add -q --tag agent -t 2h CMD)", "submit; stdout is only the id"),
    ("dibs add --dry-run CMD", "check the command; submit nothing"),
    ("dibs run --tag agent CMD", "submit, stream its output, exit with its code"),
    ("dibs wait $id --timeout 10m", "wait until it ends: 0 all done, 1 some failed, 124 not yet, 6 only held"),
    ("dibs log $id -n 50", "the end of its output"),
    ("dibs show $id --json", "one job: state, cause, exit_code, numbers, log"),
    ("dibs status --json tag:agent", "all of your jobs: .jobs[].state"),
    ("dibs why $id", "why it is not running, and what would help"),
    ("dibs gpus --json", "GPUs, holders, health"),
    ("dibs sweep CMD -p lr 0.1 0.01", "one job per combination; again: only missing ones"),
    ("dibs results NAME --json", "parameters and metrics of its runs"),
    ("dibs cancel -y tag:agent", "stop your jobs, and no others"),
)
SLURM = (
    ("sbatch script.sh", "dibs add script.sh"),
    ("sbatch --wrap 'CMD'", "dibs add 'CMD'"),
    ("srun CMD", "dibs run CMD"),
    ("squeue, sinfo", "dibs, dibs gpus"),
    ("scancel 12", "dibs cancel 12"),
    ("scancel -s USR1 12", "dibs kill -s USR1 12"),
    ("scontrol update job=12 TimeLimit=4:0:0", "dibs edit 12 -t 4h"),
    ("scontrol suspend 12, resume 12", "dibs pause 12, dibs resume 12"),
    ("scontrol top 12", "dibs move 12 first"),
    ("scontrol hold 12, release 12", "dibs hold 12, dibs unhold 12"),
    ("scontrol show job 12", "dibs show 12"),
    ("salloc --gres=gpu:2", "dibs lease -g 2"),
    ("--dependency=afterok:12", "the same, or --after 12"),
    ("-J NAME", "the same, or -n NAME"),
)
PUEUE = (
    ("pueue add -- CMD", "dibs add CMD"),
    ("pueue status", "dibs"),
    ("pueue log 3, follow 3", "dibs log 3, dibs follow 3"),
    ("pueue stash 3, enqueue 3", "dibs hold 3, dibs unhold 3 (or enqueue 3)"),
    ("pueue restart -i 3", "dibs retry 3"),
    ("pueue kill 3, remove 3", "dibs cancel 3"),
    ("pueue kill -s SIGINT 3", "dibs kill -s INT 3"),
    ("pueue pause 3, start 3", "dibs pause 3, dibs resume 3"),
    ("pueue switch 3 7", "dibs move 3 before 7"),
    ("pueue edit 3", "dibs edit 3"),
    ("pueue clean", "dibs clean"),
    ("pueue add --after 3", "dibs add --after 3"),
    ("pueue wait", "dibs wait"),
    ("pueue parallel 4 -g NAME", "dibs group set NAME -j 4"),
)


class Topic:
    """A help text and its summary."""

    def __init__(self, summary: str, *parts: Part) -> None:
        self.summary = summary
        self.parts = parts


def _selectors() -> tuple[tuple[str, str], ...]:
    groups = (
        (word, f"jobs that are {', '.join(words[:-1])} or {words[-1]}") for word, words in selectors.GROUP_WORDS.items()
    )
    return (
        ("12", "the job with this id"),
        ("3-7", "a range of ids"),
        ("1,4,9-12", "a list of ids and ranges"),
        ("@, @~1", "the last job, the one before it"),
        ("all", "every job"),
        ("failed", f"a state: {', '.join(selectors.STATE_WORDS)}"),
        *groups,
        ("name:vit*", "jobs with this name; * and ? are wildcards. Also project:x, tag:x, sweep:x"),
        ("since:24h", "submitted within that time"),
        ("name:vit*+failed", "failed jobs with this name"),
    )


def _exit_codes() -> tuple[tuple[str, str], ...]:
    own = dict(OWN_CODES)
    for error in errors.KINDS.values():
        if error is not errors.DibsError and str(error.exit_code) not in own:
            own[str(error.exit_code)] = (error.__doc__ or "").strip()
    return tuple(sorted(own.items(), key=lambda row: int(row[0])))


TOPICS: dict[str, Topic] = {
    "selectors": Topic(
        "how to select jobs: 12, 3-7, @, failed, name:vit*",
        "Verbs that act on jobs take selectors. Several selectors are a union; a+b means both.",
        _selectors(),
        "Quote a selector that contains a star, so that the shell does not expand it: dibs status 'name:vit*'",
    ),
    "states": Topic(
        "states of a job, and causes of failure",
        "A job is in one of these states. The last five are final.",
        STATES,
        f"A job that did not succeed also has a cause: {', '.join(cause.value for cause in Cause)}.",
    ),
    "exit-codes": Topic(
        "exit codes of dibs, for scripts",
        "dibs itself:",
        _exit_codes(),
        "`run`, `follow` and `log -f` exit with the code of the job's command, or:",
        JOB_CODES,
    ),
    "environment": Topic(
        "what a job sees",
        "A job runs with the working directory and environment of its submission; -e NAME=VALUE adds to it. "
        "Its stdin is /dev/null. dibs sets:",
        VARIABLES,
        "CUDA_VISIBLE_DEVICES of your shell is not passed to jobs. More: docs/environments.md, docs/training.md",
    ),
    "sharing": Topic(
        "several people on one machine",
        "Each user has a queue; nobody needs root. A GPU has one holder at a time, across all users, "
        "and is free when the last process of its job has ended. A freed GPU goes to the user with the "
        "least GPU time.",
        (
            ("dibs gpus", "who holds which GPU, since when, and who is waiting"),
            ("dibs lease CMD", "lease a GPU for interactive use: a notebook, a debugger"),
            ("dibs config max_gpus", "maximum number of GPUs your jobs use at a time"),
            ("dibs config keep_free", "number of GPUs your jobs leave free for others"),
        ),
        "A program started without `dibs` is shown, not stopped. More: docs/sharing.md, docs/admin.md",
    ),
    "gpus": Topic(
        "requesting GPUs, or none",
        (
            ("-g 2", "two GPUs; default: one, or none on a machine without GPUs"),
            ("-g 0", "no GPU"),
            ("-g 2:a100", "two GPUs with a100 in their name"),
            ("--gpu-type GLOB", "the same, as a pattern"),
            ("--gpu-ids 0,2", "exactly these, by index or UUID"),
            ("-g 1 --gpu-ids 0,2", "one of these, the first that is free"),
            ("--prefer 1,3", "these, if they are free"),
        ),
        "DIBS_DEVICES=0,1 (or the setting devices) restricts dibs to some GPUs; DIBS_DEVICES=fake:4 makes four "
        "pretend GPUs. To change it: dibs config set devices 0,1; dibs daemon restart.",
    ),
    "agents": Topic(
        "for coding agents and scripts",
        "Run all GPU work through dibs: other people use these GPUs too.",
        AGENTS,
        "Wait with `dibs wait`, never with sleep in a loop: it returns as soon as the job ends. Data is on stdout, "
        "hints and errors on stderr; `--json` prints one document, `-q` ids only. An error is one line with the next "
        "step.",
        "Tag your jobs (`--tag agent`) and select them by that tag; do not change other jobs. Give every "
        "job a time limit (`-t`). A job outlives your shell: note its id and come back later.",
        "Exit codes: 2 wrong usage, 3 no such job, 4 not allowed, 5 no daemon, 69 impossible here, 75 cannot start now "
        "(`--no-wait`). In Python: `import dibs`, docs/python.md. More: docs/agents.md, `dibs help add`",
    ),
    "slurm": Topic(
        "Slurm commands and what to type instead",
        SLURM,
        "This machine has no partitions and accounts. To submit to a cluster: --engine. More: docs/coming-from.md",
    ),
    "pueue": Topic(
        "pueue commands and what to type instead",
        PUEUE,
        "GPUs limit how many jobs run; -j limits a batch, `dibs group` a group. More: docs/coming-from.md",
    ),
    "templates": Topic(
        "placeholders in output paths",
        "Replaced in `--output` and `--stderr` when the job starts:",
        (
            ("{id}", "the job's id"),
            ("{name}", "its name, with _ for each /"),
            ("{project}", "its project, with _ for each /"),
            ("{index}", "its index in an array, else 0; {index:03} is padded"),
            ("{attempt}", "1, 2, ...: the attempt"),
            ("{array}", "the id of the first job of its array"),
        ),
        "Example: dibs add -o 'logs/{name}-{id}.txt' python train.py",
    ),
    "config": Topic(
        "settings and their sources",
        "Later sources override earlier ones: the default, /etc/dibs/config.toml, your own "
        "config.toml (in $XDG_CONFIG_HOME/dibs or ~/.config/dibs; $DIBS_CONFIG names another), the environment, an "
        "option.",
        # The first sentence; `dibs config` prints all.
        tuple((setting.name, f"{setting.meaning.partition('. ')[0].rstrip('.')}.") for setting in settings.SETTINGS),
        "`dibs config` shows the values; `dibs config set NAME VALUE` changes one, at once where possible.",
    ),
}
