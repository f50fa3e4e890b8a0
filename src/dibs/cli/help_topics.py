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
    ("0", "It worked; of `wait`: all jobs are done."),
    ("1", "Of `wait`: a job did not succeed; of `doctor`: there is a problem."),
    ("124", "Of `wait --timeout`: the time is over."),
    ("130", "Interrupted with Ctrl-C."),
)
#: Exit codes of `run` and `follow` other than that of the command.
JOB_CODES = (
    ("128 + n", "Ended by signal n."),
    ("124", "Ended by its time limit."),
    ("125", "Lost, or a failure of dibs."),
    ("126, 127", "The command could not be started, or was not found."),
    ("130", "Cancelled before it started."),
)
#: The environment variables that a job gets.
VARIABLES = (
    ("CUDA_VISIBLE_DEVICES", "its GPUs, as UUIDs (or indices: `--visible index`); empty without any"),
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
    ("DIBS_JOB_ID, DIBS_JOB_NAME", "the job"),
    ("DIBS_PROJECT", "its project"),
    ("DIBS_ATTEMPT", "1, 2, ...: the attempt"),
    ("DIBS_JOB_DIR", "its folder, with the logs of all attempts"),
    ("DIBS_GPU_INDICES", "its GPUs by index, as nvidia-smi counts"),
    ("DIBS_CHECKPOINT_DIR", "a folder that stays over all attempts"),
    ("DIBS_REPORT", "a file for JSON lines with numbers; `dibs report` appends to it"),
    ("DIBS_PORT", "a free TCP port, for torchrun and the like"),
    ("DIBS_PYTHON", "the Python interpreter of dibs"),
    ("DIBS_STOP", "TERM@30: the signal of a stop, and the seconds from it to KILL"),
    ("DIBS_WARN", "with --signal: USR1@120, the signal, and the seconds from it to the time limit"),
    ("MASTER_ADDR, MASTER_PORT", "with a GPU, unless they are set"),
    ("PYTHONUNBUFFERED", "1, unless it is set"),
)
STATES = (
    ("held", "kept back by `hold`, or by `--halt` of its batch; `unhold` lets it go"),
    ("queued", "waits; `dibs why` says for what"),
    ("starting", "its GPUs are being taken"),
    ("running", "its command runs"),
    ("paused", "stopped for a while; it keeps its GPUs"),
    ("stopping", "was told to end"),
    ("done", "its command ended with 0"),
    ("failed", "its command ended otherwise, or could not start"),
    ("cancelled", "by `cancel`, or because a job it waited for did not succeed"),
    ("timeout", "ran into its limit (`--time`)"),
    ("lost", "nobody can know how it ended: the machine went down, or its runner was killed"),
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
    ("pueue parallel 4 -g NAME", "generate | dibs add -j 4 -"),
)


class Topic:
    """A help text and its summary."""

    def __init__(self, summary: str, *parts: Part) -> None:
        self.summary = summary
        self.parts = parts


def _selectors() -> tuple[tuple[str, str], ...]:
    groups = ((word, f"all that are {', '.join(words)}") for word, words in selectors.GROUP_WORDS.items())
    return (
        ("12", "the job with this id"),
        ("3-7", "a range of ids"),
        ("1,4,9-12", "a list of them"),
        ("@, @~1", "the last job, the one before"),
        ("all", "every job"),
        ("failed", f"a state: {', '.join(selectors.STATE_WORDS)}"),
        *groups,
        ("name:vit*", "jobs with this name; * and ? are wild. So are project:x, tag:x, sweep:x"),
        ("since:24h", "submitted within that time"),
        ("name:vit*+failed", "those of that name that failed"),
    )


def _exit_codes() -> tuple[tuple[str, str], ...]:
    own = dict(OWN_CODES)
    for error in errors.KINDS.values():
        if error is not errors.DibsError and str(error.exit_code) not in own:
            own[str(error.exit_code)] = (error.__doc__ or "").strip()
    return tuple(sorted(own.items(), key=lambda row: int(row[0])))


TOPICS: dict[str, Topic] = {
    "selectors": Topic(
        "how jobs are named: 12, 3-7, @, failed, name:vit*",
        "Verbs that are about jobs take selectors. Several are a union; a+b means both.",
        _selectors(),
        "Quote a selector with a star, or the shell may take it for files: dibs status 'name:vit*'",
    ),
    "states": Topic(
        "what becomes of a job, and why it did not succeed",
        "A job is in one of these states; the last five are ends.",
        STATES,
        f"One that did not succeed also has a cause: {', '.join(cause.value for cause in Cause)}.",
    ),
    "exit-codes": Topic(
        "what a script can learn from dibs",
        "Of dibs itself:",
        _exit_codes(),
        "`run`, `follow` and `log -f` exit with the code of the job's command, and otherwise as a shell would:",
        JOB_CODES,
    ),
    "environment": Topic(
        "what a job sees",
        "A job runs in the folder and with the environment of the moment it was queued; -e NAME=VALUE adds to it. "
        "Its stdin is empty. dibs sets:",
        VARIABLES,
        "What CUDA_VISIBLE_DEVICES says in your shell never reaches a job. "
        "More: docs/environments.md, docs/training.md",
    ),
    "sharing": Topic(
        "several people on one machine",
        "Everybody has a queue of their own; nobody needs root. A GPU has one holder at a time, over all users, "
        "and is free when the last process of its job has ended. A freed GPU goes to the user who was served least "
        "recently.",
        (
            ("dibs gpus", "who has which GPU since when, and who waits"),
            ("dibs lease CMD", "hold a GPU by hand: for a notebook, a debugger"),
            ("dibs config max_gpus", "the most GPUs that your jobs use at once"),
            ("dibs config keep_free", "GPUs that your jobs leave free for others"),
        ),
        "Who starts a program without dibs is not stopped, but shown. More: docs/sharing.md, docs/admin.md",
    ),
    "gpus": Topic(
        "asking for GPUs, or for none",
        (
            ("-g 2", "two GPUs; the default is one, on a machine without any none"),
            ("-g 0", "no GPU"),
            ("-g 2:a100", "two whose name has a100 in it"),
            ("--gpu-type GLOB", "the same, as a pattern"),
            ("--gpu-ids 0,2", "exactly these, by index or UUID"),
            ("-g 1 --gpu-ids 0,2", "one of these, whichever is free first"),
            ("--prefer 1,3", "these first, if they are free"),
        ),
        "DIBS_DEVICES=0,1 (or the setting devices) keeps dibs to some GPUs; DIBS_DEVICES=fake:4 pretends to have "
        "four. Change it: dibs config set devices 0,1; dibs daemon restart.",
    ),
    "slurm": Topic(
        "what Slurm's commands are here",
        SLURM,
        "One machine, no partitions, no accounts. More: docs/coming-from.md",
    ),
    "pueue": Topic(
        "what pueue's commands are here",
        PUEUE,
        "There are no groups: -j bounds a batch, GPUs bound the rest. More: docs/coming-from.md",
    ),
    "templates": Topic(
        "names in braces in output paths",
        "In `--output` and `--stderr` these are replaced when the job starts:",
        (
            ("{id}", "the job's id"),
            ("{name}", "its name, with _ for each /"),
            ("{project}", "its project, likewise"),
            ("{index}", "its number in an array, 0 if it stands alone; {index:03} is padded"),
            ("{attempt}", "1, 2, ...: the attempt"),
            ("{array}", "the id of the first job of its array"),
        ),
        "Example: dibs add -o 'logs/{name}-{id}.txt' python train.py",
    ),
    "config": Topic(
        "settings, and where they come from",
        "A value comes from the last of these that has one: the default, /etc/dibs/config.toml, your own "
        "config.toml (in $XDG_CONFIG_HOME/dibs or ~/.config/dibs; $DIBS_CONFIG names another), the environment, an "
        "option.",
        tuple((setting.name, setting.meaning) for setting in settings.SETTINGS),
        "`dibs config` shows the values; `dibs config set NAME VALUE` changes one, at once where the daemon can.",
    ),
}
