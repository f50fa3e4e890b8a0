"""The options that describe a job: one table for all verbs that submit or change jobs, and for script lines.

Each option parses and validates its own value; `submission` checks combinations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dibs.errors import UserError
from dibs.model import jobs, units
from dibs.model.fields import Field
from dibs.model.jobs import PRIORITIES, When
from dibs.submission import options
from dibs.submission.options import Kind, Option

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True)
class Count:
    """`-g 2` or `-g 2:a100`."""

    gpus: int
    gpu_type: str | None = None


def read_count(text: str) -> Count:
    """Parse `2`, `2:a100`, or Slurm's notation."""
    if "," in text:
        listed = options.shown(text)
        raise UserError(f'expected a count, got the list "{listed}".', f"Choose GPUs with --gpu-ids {listed}.")
    # Slurm writes gpu:a100:2 after --gres, and a100:2 after --gpus.
    number, colon, kind = text.removeprefix("gpu:").partition(":")
    if colon and kind.isdigit() and not number.isdigit():
        number, kind = kind, number
    if colon and not kind:
        raise ValueError
    return Count(options.whole(0).read("1" if number == "gpu" else number), kind or None)


def read_list(text: str) -> tuple[str, ...]:
    """Parse words with commas between them."""
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise ValueError
    return words


def _read_priority(text: str) -> int:
    if text in PRIORITIES:
        return PRIORITIES[text]
    return options.whole(0).read(text.removeprefix("-")) * (-1 if text.startswith("-") else 1)


def read_variable(text: str) -> tuple[str, str]:
    """Parse `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError
    return name, value


def _read_selector(text: str) -> str:
    from dibs.model import selectors

    selectors.parse([text])
    return text


def _read_dependency(text: str) -> tuple[tuple[str, When], ...]:
    """Parse `afterok:12:13,afterany:14`."""
    needs: list[tuple[str, When]] = []
    for part in text.split(","):
        kind, *ids = part.split(":")
        if kind not in SLURM_KINDS or not ids:
            raise ValueError
        needs += [(str(options.whole(1).read(job_id)), SLURM_KINDS[kind]) for job_id in ids]
    return tuple(needs)


def _read_begin(text: str) -> datetime:
    from datetime import datetime

    from dibs.submission import times

    return times.parse(text, datetime.now())


def _read_vram(text: str) -> int:
    size = units.parse_size(text)
    if size < 2**20:
        raise UserError(f'expected at least 1M of memory such as 18G, got "{text}".')
    return size


def _read_warn(text: str) -> dict[str, object]:
    """Parse `USR1@2m`; Slurm's `B:` prefix is dropped, because dibs decides which processes get the signal."""
    import signal

    word, at, before = text.removeprefix("B:").partition("@")
    name = word.upper().removeprefix("SIG")
    if name.isdigit():
        name = next((known.name.removeprefix("SIG") for known in signal.Signals if known == int(name)), "")
    if f"SIG{name}" not in signal.Signals.__members__ or name in ("KILL", "STOP"):
        raise ValueError
    return {"signal": name, "before_s": options.POSITIVE_DURATION.read(before) if at else WARN_S}


def _read_metric(text: str) -> tuple[str, str]:
    from dibs.logs import patterns

    name, equals, pattern = text.partition("=")
    if not equals:
        raise ValueError
    patterns.check(name, pattern)
    return name, pattern


def _read_array(text: str) -> str:
    from dibs.model import arrays

    arrays.parse(text)
    return text


def _read_path(text: str) -> str:
    """Parse a path with dibs placeholders; Slurm's are valid only in #SBATCH lines."""
    from dibs.model import path_templates

    if not text.strip():
        raise ValueError
    if habit := SLURM_NAMES.keys() & {text[at : at + 2] for at, char in enumerate(text) if char == "%"}:
        name = min(habit)
        raise UserError(
            f"expected a path such as {{name}}-{{id}}.log, got Slurm's {name}.", f"Write {SLURM_NAMES[name]}."
        )
    path_templates.check(text)
    return text


def _read_troubles(text: str) -> tuple[str, ...]:
    words = read_list(text)
    return tuple(jobs.write_retry_on(jobs.parse_retry_on(word)) for word in words)


#: Slurm's afterany means that a job finished in any way, not any one of several jobs.
SLURM_KINDS = {"afterok": When.DONE, "afterany": When.END}
#: Slurm placeholders that users type after -o by habit.
SLURM_NAMES = {"%j": "{id}", "%A": "{array}", "%a": "{index}", "%x": "{name}"}
#: Default lead time of a warning signal in seconds, as in Slurm.
WARN_S = 60.0

ENGINE_NAME = Kind("the name of an engine, such as local or lab", options.TEXT.read)
SELECTOR = Kind("a job such as 12, 3-7, @ or name:vit*", _read_selector)
GPU_LIST = Kind("GPUs such as 0,2 or GPU-8f4a...", read_list)

GPUS = Option(
    ("-g", "--gpus"), "Number of GPUs. 2:a100 means two GPUs of that type. Default: 1.",
    Kind("a whole number from 0 up", read_count), "N", habits=("-G", "--gres", "--gpus-per-node", "--gpus-per-task"),
)  # fmt: skip
GPU_IDS = Option(("--gpu-ids",), "Use exactly these GPUs, by index or UUID. With -g N: any N of them.", GPU_LIST, "0,2")
PREFER = Option(("--prefer",), "Prefer these GPUs if they are free.", GPU_LIST, "1,3")
GPU_TYPE = Option(("--gpu-type",), "Use only GPUs whose product name matches.", options.TEXT, "GLOB")
NAME = Option(("-n", "--name"), "Job name.", options.TEXT, "NAME", habits=("-J", "--job-name", "-l", "--label"))
PROJECT = Option(("-P", "--project"), "Project of the job.", options.TEXT, "NAME")
GROUP = Option(("--group",), "Group of the job, for a common limit; see `dibs group`.", options.TEXT, "NAME")
PRIORITY = Option(
    ("--priority",), "Higher runs first: a number, or low, normal, high, urgent (-10, 0, 10, 100).",
    Kind("a whole number, or low, normal, high or urgent", _read_priority), "N",
)  # fmt: skip
AFTER = Option(("-a", "--after"), "Start after all of these jobs succeed.", SELECTOR, "JOBS", is_repeatable=True)
AFTER_ANY = Option(("--after-any",), "Start after one of these jobs succeeds.", SELECTOR, "JOBS", is_repeatable=True)
AFTER_END = Option(
    ("--after-end",),
    "Start after these jobs finish, whether they succeed or fail.",
    SELECTOR,
    "JOBS",
    is_repeatable=True,
)
DEPENDENCY = Option(
    ("--dependency",), "Slurm syntax: afterok is --after, afterany is --after-end.",
    Kind("afterok:12 or afterany:12", _read_dependency), "afterok:12", is_repeatable=True,
)  # fmt: skip
BEGIN = Option(
    ("--begin",), "Do not start before this local time. Also now+2h or 2026-11-16T08:00.",
    Kind("a time such as 22:00 or now+2h", _read_begin), "22:00", habits=("--delay",),
)  # fmt: skip
RETRIES = Option(("--retries",), "Retry up to N times if the job fails.", options.whole(0, 1000), "N")
RETRY_ON = Option(
    ("--retry-on",), "Retry only after these outcomes or exit codes. Default: fail,lost,oom.",
    Kind("one or more of fail, lost, oom, timeout and exit codes from 1 to 255, with commas between", _read_troubles),
    "fail,144",
)  # fmt: skip
CPUS = Option(
    ("--cpus",),
    "CPU cores the job needs; for scheduling only.",
    options.whole(0, 65536),
    "N",
    habits=("-c", "--cpus-per-task"),
)
VRAM = Option(
    ("--vram",), "GPU memory the job needs per GPU. Jobs that declare it can share a GPU. Default: exclusive use.",
    Kind(units.SIZE_EXAMPLE, _read_vram), "18G",
)  # fmt: skip
MEM = Option(("--mem",), "Memory the job needs; for scheduling only.", options.SIZE, "32G")
TIME = Option(("-t", "--time"), "Time limit. The job is stopped when it is reached.", options.POSITIVE_DURATION, "2h")
SIGNAL = Option(
    ("--signal",), "Send this signal before the time limit, or at an eviction, to processes that handle it. "
    "Default: 60s before.",
    Kind("a signal and a time such as USR1@2m", _read_warn), "USR1@2m",
)  # fmt: skip
WAIT_TREE: Option[bool] = Option(
    ("--wait-tree",), "The job ends when all of its processes have ended, not only the command."
)
IGNORE_FOREIGN: Option[bool] = Option(
    ("--ignore-foreign",), "Allow GPUs that are in use by foreign processes (without a lease)."
)
EVICTABLE = Option(
    ("--evictable",), "Use idle GPUs beyond your share. When others need them, the job is warned, stopped and queued "
    "again. auto: only while the job writes checkpoints.", options.one_of("yes", "no", "auto"), "yes|no|auto",
    is_bare=True, bare_words=jobs.EVICTABLE,
)  # fmt: skip
VRAM_ENFORCE: Option[bool] = Option(("--vram-enforce",), "Stop the job if it uses more than 110 % of --vram on a GPU.")
STRICT_GPUS: Option[bool] = Option(("--strict-gpus",), "Stop the job if it uses a GPU it was not assigned.")
METRIC = Option(
    ("--metric",), "Read a metric from the log: REGEX with one capture group.",
    Kind("NAME=REGEX with one group for the number", _read_metric), "NAME=REGEX", is_repeatable=True,
)  # fmt: skip
HOLD: Option[bool] = Option(
    ("--hold",), "Submit the job held; `dibs unhold` releases it.", habits=("-H", "--stashed", "-s")
)
ENV = Option(
    ("-e", "--env"), "Set an environment variable.", Kind("NAME=VALUE", read_variable), "NAME=VALUE",
    is_repeatable=True,
)  # fmt: skip
CHDIR = Option(
    ("-C", "--chdir"), "Working directory. Default: the current one.", options.PATH, "DIR",
    habits=("-D", "-w", "--workdir", "--working-directory"),
)  # fmt: skip
PATH = Kind("a path", _read_path)
OUTPUT = Option(
    ("-o", "--output"), "Append output to this file. Placeholders: {id} {name} {project} {index} {attempt} {array}.",
    PATH, "PATH",
)  # fmt: skip
STDERR = Option(("--stderr",), "Append stderr to a separate file.", PATH, "PATH", habits=("--error",))
TAG = Option(("--tag",), "Tag the job; select it with tag:WORD.", options.TEXT, "WORD", is_repeatable=True)
COMMENT = Option(("--comment",), "Free text stored with the job.", options.TEXT, "TEXT")
NOTIFY = Option(
    ("--notify",), "Run this command when the job finishes. For a batch: at its first failure and at its end.",
    options.TEXT, "CMD",
)  # fmt: skip
VISIBLE = Option(("--visible",), "Format of CUDA_VISIBLE_DEVICES.", options.one_of("uuid", "index"), "uuid|index")

ENGINE = Option(
    ("--engine",), "Where the job runs: local, or the name of a cluster in the settings.", ENGINE_NAME, "NAME"
)
SLURM = Option(
    ("--slurm",), "More options for sbatch, in quotes; they follow those of the settings.", options.TEXT, '"-p gpu"'
)
OVERFLOW = Option(("--overflow",), "Send the job to this cluster if it would wait too long here.", ENGINE_NAME, "NAME")
OVERFLOW_AFTER = Option(
    ("--overflow-after",), "How long a job may wait here before it is sent there. Default: 30m.",
    options.DURATION, "30m",
)  # fmt: skip

SCRIPT = Option(
    ("--script",), "Submit a script with the options in its #DIBS and #SBATCH lines; arguments may follow.",
    options.PATH, "FILE",
)  # fmt: skip
WRAP = Option(("--wrap",), "Slurm syntax for one quoted command.", options.TEXT, "COMMAND")
DRY_RUN: Option[bool] = Option(
    ("--dry-run",), "Validate and show what would be submitted; submit nothing.", habits=("--test-only",)
)

PRESET = Option(("--preset",), "Take the options of [presets.NAME] in the settings.", options.TEXT, "NAME")
LIKE = Option(
    ("--like",), "Take options, environment and folder of this job, and its command if none is given.", SELECTOR, "JOB"
)

ARRAY = Option(
    ("--array",), "Submit one job per index (DIBS_INDEX, SLURM_ARRAY_TASK_ID). "
    "%4: at most four at a time.", Kind("numbers such as 0-99, 1,3,7, 0-10:2 or 0-99%4", _read_array), "0-99%4",
)  # fmt: skip
REPEAT = Option(("--repeat",), "Submit N identical jobs; DIBS_INDEX counts from 0.", options.whole(1, 100_000), "N")
AT_ONCE = Option(("-j", "--jobs"), "Run at most N jobs of the batch at a time.", options.whole(1), "N")
HALT = Option(("--halt",), "Hold the rest of the batch after N failures.", options.whole(1), "N")
#: The options that name jobs to wait for, by what must become of those jobs.
AFTER_WHEN = {When.DONE: AFTER, When.ANY: AFTER_ANY, When.END: AFTER_END}
AFTERS: tuple[Option[object], ...] = (*AFTER_WHEN.values(), DEPENDENCY)
#: For verbs that submit many jobs.
BATCH_OPTIONS: tuple[Option[object], ...] = (ARRAY, REPEAT, AT_ONCE, HALT)

#: Allowed on the command line and in script lines.
JOB_OPTIONS: tuple[Option[object], ...] = (
    GPUS, GPU_IDS, PREFER, GPU_TYPE, VRAM, CPUS, MEM, NAME, PROJECT, GROUP, PRIORITY, TIME, AFTER, AFTER_ANY, AFTER_END,
    DEPENDENCY, BEGIN, RETRIES, RETRY_ON, SIGNAL, HOLD, WAIT_TREE, METRIC, ENV, CHDIR, OUTPUT, STDERR, TAG, COMMENT,
    VISIBLE, IGNORE_FOREIGN, STRICT_GPUS, VRAM_ENFORCE, NOTIFY, EVICTABLE, ENGINE, SLURM, OVERFLOW, OVERFLOW_AFTER,
)  # fmt: skip
#: Options that stand for others.
TEMPLATES: tuple[Option[object], ...] = (PRESET, LIKE)
OPTIONS: tuple[Option[object], ...] = (*JOB_OPTIONS, *TEMPLATES, SCRIPT, WRAP, DRY_RUN)
#: The order of help: what people type every day, then the rest by subject.
GROUPS: dict[str, tuple[Option[object], ...]] = {
    "Common options": (GPUS, NAME, TIME, PRIORITY, AFTER, PROJECT, ENV, CHDIR, RETRIES, HOLD),
    "GPUs and resources": (
        GPU_IDS, GPU_TYPE, PREFER, VRAM, VRAM_ENFORCE, CPUS, MEM, VISIBLE, IGNORE_FOREIGN, STRICT_GPUS,
    ),
    "Order and time": (AFTER_ANY, AFTER_END, DEPENDENCY, BEGIN, RETRY_ON, SIGNAL, EVICTABLE, WAIT_TREE),
    "Batches": (*BATCH_OPTIONS, GROUP),
    "Clusters": (ENGINE, SLURM, OVERFLOW, OVERFLOW_AFTER),
    "Templates": TEMPLATES,
    "Output and notes": (OUTPUT, STDERR, METRIC, TAG, COMMENT, NOTIFY),
}  # fmt: skip
_BY_NAME = {option.names[-1]: option for option in JOB_OPTIONS}


def setters(field: Field) -> tuple[Option[object], ...]:
    """Return the options that set a field of a job."""
    return tuple(_BY_NAME[name] for name in field.options)


def check_count(count: Count | None, gpu_ids: tuple[str, ...] | None, gpu_type: str | None) -> None:
    """Refuse options about GPUs that contradict each other."""
    if count and gpu_ids and not 0 < count.gpus <= len(gpu_ids):
        raise UserError(f"--gpus {count.gpus} contradicts --gpu-ids, which names {len(gpu_ids)}.", "Leave --gpus out.")
    if count and count.gpu_type and gpu_type and count.gpu_type != gpu_type:
        raise UserError(f'--gpus says "{count.gpu_type}" and --gpu-type says "{gpu_type}".', "Leave one of them out.")
