"""From words and options to the job that is sent to the daemon; shared by all verbs that submit.

Whatever can be said wrong without asking the daemon is said here, before one is started.
"""

from __future__ import annotations

import os
from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dibs import commands, environs, settings, units
from dibs.cli import options
from dibs.cli.options import Args, Kind, Option
from dibs.errors import UserError
from dibs.jobs import PRIORITIES, Trouble, When

if TYPE_CHECKING:
    from datetime import datetime

Body = dict[str, object]


@dataclass(frozen=True)
class Count:
    """`-g 2` or `-g 2:a100`."""

    gpus: int
    gpu_type: str | None = None


def _read_count(text: str) -> Count:
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


def _read_list(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise ValueError
    return words


def _read_priority(text: str) -> int:
    if text in PRIORITIES:
        return PRIORITIES[text]
    return options.whole(0).read(text.removeprefix("-")) * (-1 if text.startswith("-") else 1)


def _read_variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError
    return name, value


def _read_selector(text: str) -> str:
    from dibs import selection

    selection.parse([text])
    return text


def _read_dependency(text: str) -> tuple[tuple[str, When], ...]:
    """Read `afterok:12:13,afterany:14`."""
    needs: list[tuple[str, When]] = []
    for part in text.split(","):
        kind, *ids = part.split(":")
        if kind not in SLURM_KINDS or not ids:
            raise ValueError
        needs += [(str(options.whole(1).read(job_id)), SLURM_KINDS[kind]) for job_id in ids]
    return tuple(needs)


def _read_begin(text: str) -> datetime:
    from datetime import datetime

    from dibs.cli import moments

    return moments.parse(text, datetime.now())


def _read_limit(text: str) -> float:
    seconds = units.parse_duration(text)
    if not 0 < seconds < LONGEST_LIMIT_S:
        raise UserError(f'expected a time above 0 and below 30 years such as 90m, 2h or 1d12h, got "{text}".')
    return seconds


def _read_warn(text: str) -> Body:
    """Read `USR1@2m`; Slurm's `B:` before it says whom it reaches, which is ours to say."""
    import signal

    word, at, before = text.removeprefix("B:").partition("@")
    name = word.upper().removeprefix("SIG")
    if name.isdigit():
        name = next((known.name.removeprefix("SIG") for known in signal.Signals if known == int(name)), "")
    if f"SIG{name}" not in signal.Signals.__members__ or name in ("KILL", "STOP"):
        raise ValueError
    return {"signal": name, "before_s": _read_limit(before) if at else WARN_S}


def _read_metric(text: str) -> tuple[str, str]:
    from dibs import metrics

    name, equals, pattern = text.partition("=")
    if not equals:
        raise ValueError
    metrics.check(name, pattern)
    return name, pattern


def _read_array(text: str) -> str:
    from dibs import arrays

    arrays.parse(text)
    return text


def _read_path(text: str) -> str:
    """Read a path with placeholders of ours; Slurm's hold in #SBATCH lines."""
    from dibs import templates

    if not text.strip():
        raise ValueError
    if habit := SLURM_NAMES.keys() & {text[at : at + 2] for at, char in enumerate(text) if char == "%"}:
        name = min(habit)
        raise UserError(
            f"expected a path such as {{name}}-{{id}}.log, got Slurm's {name}.", f"Write {SLURM_NAMES[name]}."
        )
    templates.check(text)
    return text


def _read_troubles(text: str) -> tuple[str, ...]:
    words = _read_list(text)
    if not {*words} <= {trouble.value for trouble in Trouble}:
        raise ValueError
    return words


#: What Slurm calls afterany is an end of any kind, not any one of several jobs.
SLURM_KINDS = {"afterok": When.DONE, "afterany": When.END}
#: Placeholders that are typed after -o by habit.
SLURM_NAMES = {"%j": "{id}", "%A": "{array}", "%a": "{index}", "%x": "{name}"}
#: Seconds; what the wire takes.
LONGEST_LIMIT_S = 1e9
#: Seconds before the limit at which a warning comes when it is not said, as in Slurm.
WARN_S = 60.0

SELECTOR = Kind("a job such as 12, 3-7, @ or name:vit*", _read_selector)
GPU_LIST = Kind("GPUs such as 0,2 or GPU-8f4a...", _read_list)

GPUS = Option(
    ("-g", "--gpus"), "How many GPUs; 2:a100 asks for two of that type. Default 1.",
    Kind("a whole number from 0 up", _read_count), "N", habits=("-G", "--gres", "--gpus-per-node", "--gpus-per-task"),
)  # fmt: skip
GPU_IDS = Option(("--gpu-ids",), "Exactly these GPUs, by index or UUID.", GPU_LIST, "0,2")
PREFER = Option(("--prefer",), "Take these GPUs first if they are free.", GPU_LIST, "1,3")
GPU_TYPE = Option(("--gpu-type",), "Only GPUs whose name matches.", options.TEXT, "GLOB")
NAME = Option(
    ("-n", "--name"), "A name for people.", options.TEXT, "NAME", habits=("-J", "--job-name", "-l", "--label")
)
PROJECT = Option(("-P", "--project"), "The project it belongs to.", options.TEXT, "NAME", habits=("--group",))
PRIORITY = Option(
    ("--priority",), "Higher comes first: a number, or low, normal, high, urgent (-10, 0, 10, 100).",
    Kind("a whole number, or low, normal, high or urgent", _read_priority), "N",
)  # fmt: skip
AFTER = Option(("-a", "--after"), "Start when these are all done.", SELECTOR, "JOBS", is_repeatable=True)
AFTER_ANY = Option(("--after-any",), "Start when one of these is done.", SELECTOR, "JOBS", is_repeatable=True)
AFTER_END = Option(("--after-end",), "Start when these have ended, however.", SELECTOR, "JOBS", is_repeatable=True)
DEPENDENCY = Option(
    ("--dependency",), "Slurm's spelling: afterok is --after, afterany is --after-end.",
    Kind("afterok:12 or afterany:12", _read_dependency), "afterok:12", is_repeatable=True,
)  # fmt: skip
BEGIN = Option(
    ("--begin",), "Not before this moment of your time zone; now+2h and 2026-11-16T08:00 are understood too.",
    Kind("a moment such as 22:00 or now+2h", _read_begin), "22:00", habits=("--delay",),
)  # fmt: skip
RETRIES = Option(("--retries",), "Try again so often when it does not succeed.", options.whole(0, 1000), "N")
RETRY_ON = Option(
    ("--retry-on",), "Try again only after these ends. Default fail,lost,oom.",
    Kind("one or more of fail, lost, oom and timeout, with commas between", _read_troubles), "fail,timeout",
)  # fmt: skip
CPUS = Option(
    ("--cpus",), "Count so many CPU cores for it.", options.whole(0, 65536), "N", habits=("-c", "--cpus-per-task")
)
MEM = Option(("--mem",), "Count so much memory for it.", options.SIZE, "32G")
TIME = Option(("-t", "--time"), "End it after this long.", Kind(units.TIME_EXAMPLE, _read_limit), "2h")
SIGNAL = Option(
    ("--signal",), "Warn its processes that catch this signal so long before the time limit; 60s if not said.",
    Kind("a signal and a time such as USR1@2m", _read_warn), "USR1@2m",
)  # fmt: skip
WAIT_TREE: Option[bool] = Option(
    ("--wait-tree",), "It lasts until every process it started has ended, and not only its command."
)
METRIC = Option(
    ("--metric",), "A number that it prints: the one group of REGEX finds it in the log.",
    Kind("NAME=REGEX with one group for the number", _read_metric), "NAME=REGEX", is_repeatable=True,
)  # fmt: skip
HOLD: Option[bool] = Option(("--hold",), "Queue it held; `dibs unhold` lets it go.", habits=("-H", "--stashed", "-s"))
ENV = Option(
    ("-e", "--env"), "Set a variable in its environment.", Kind("NAME=VALUE", _read_variable), "NAME=VALUE",
    is_repeatable=True,
)  # fmt: skip
CHDIR = Option(
    ("-C", "--chdir"), "Run it in this folder instead of the present one.", options.PATH, "DIR",
    habits=("-D", "-w", "--workdir", "--working-directory"),
)  # fmt: skip
PATH = Kind("a path", _read_path)
OUTPUT = Option(
    ("-o", "--output"), "Append its output to this file; {id} {name} {project} {index} {attempt} {array} are filled.",
    PATH, "PATH",
)  # fmt: skip
STDERR = Option(("--stderr",), "Append its stderr to a file of its own.", PATH, "PATH", habits=("--error",))
TAG = Option(("--tag",), "A word to select it by.", options.TEXT, "WORD", is_repeatable=True)
NOTIFY = Option(
    ("--notify",), "Run this command when it has ended; of a batch, at its first failure and its end.", options.TEXT,
    "CMD",
)  # fmt: skip
VISIBLE = Option(
    ("--visible",), "How CUDA_VISIBLE_DEVICES names its GPUs.", options.one_of("uuid", "index"), "uuid|index"
)

SCRIPT = Option(
    ("--script",), "Queue the text of this file, with its #DIBS and #SBATCH lines; its arguments follow.",
    options.PATH, "FILE",
)  # fmt: skip
WRAP = Option(("--wrap",), "Slurm's spelling of one quoted command.", options.TEXT, "COMMAND")
DRY_RUN: Option[bool] = Option(
    ("--dry-run",), "Check everything, show what would be queued, and queue nothing.", habits=("--test-only",)
)

ARRAY = Option(
    ("--array",), "One job for each of these numbers, which it finds in DIBS_INDEX and SLURM_ARRAY_TASK_ID; "
    "%4: at most four at once.", Kind("numbers such as 0-99, 1,3,7, 0-10:2 or 0-99%4", _read_array), "0-99%4",
)  # fmt: skip
REPEAT = Option(("--repeat",), "So many equal jobs; DIBS_INDEX counts them from 0.", options.whole(1, 100_000), "N")
AT_ONCE = Option(("-j", "--jobs"), "Of a batch: at most so many at once.", options.whole(1), "N")
HALT = Option(("--halt",), "Of a batch: hold the rest after so many failures.", options.whole(1), "N")
AFTERS: tuple[Option[object], ...] = (AFTER, AFTER_ANY, AFTER_END, DEPENDENCY)
#: For verbs that queue many jobs.
BATCH_OPTIONS: tuple[Option[object], ...] = (ARRAY, REPEAT, AT_ONCE, HALT)

#: What may be said on the command line and in the lines of a script.
JOB_OPTIONS: tuple[Option[object], ...] = (
    GPUS, GPU_IDS, PREFER, GPU_TYPE, CPUS, MEM, NAME, PROJECT, PRIORITY, TIME, AFTER, AFTER_ANY, AFTER_END, DEPENDENCY,
    BEGIN, RETRIES, RETRY_ON, SIGNAL, HOLD, WAIT_TREE, METRIC, ENV, CHDIR, OUTPUT, STDERR, TAG, VISIBLE,
    NOTIFY,
)  # fmt: skip
OPTIONS: tuple[Option[object], ...] = (*JOB_OPTIONS, SCRIPT, WRAP, DRY_RUN)


def from_words(args: Args, words: Sequence[str], verb: str) -> Body:
    """Return the request that submits one command, given as the words after the options."""
    if args.has(WRAP):
        return _from_wrapped(args, words)
    given, words = split_variables(words)
    if not words or not words[0].strip():
        after = f" after {given[-1][0]}={given[-1][1]}" if given else ""
        raise UserError(f"expected a command{options.shown(after)}, got none.", f"See `dibs {verb} --help`.")
    defaults = common(args, given)
    is_string = len(words) == 1 and (commands.needs_shell(words[0]) or len(words[0].split()) > 1)
    job: Body = {"command": words[0]} if is_string else {"argv": list(words)}
    for word in words:
        check_text(word, "the command")
    if not is_string:
        _check_program(words, defaults, verb, is_after=any(args.has(option) for option in AFTERS))
    return {"defaults": defaults, "jobs": [job]} | batch(args)


def _from_wrapped(args: Args, words: Sequence[str]) -> Body:
    command = args.get(WRAP) or ""
    if words:
        raise UserError(f'--wrap has the command already, got "{options.shown(" ".join(words))}" beside it.')
    check_text(command, "--wrap")
    return {"defaults": common(args, []), "jobs": [{"command": command}]} | batch(args)


def batch(args: Args) -> Body:
    """Return what is said about the jobs as a whole; that of one job is nothing."""
    if args.has(ARRAY) and args.has(REPEAT):
        raise UserError("--array and --repeat both say how many jobs there are.", "Leave one of them out.")
    if not args.has(ARRAY) and not args.has(REPEAT):
        for option in (AT_ONCE, HALT):
            if args.has(option):
                raise UserError(
                    f"{option.names[0]} is for a batch (`dibs add -`, --file, --array or --repeat), this is one job."
                )
        return {}
    return rules(args)


def rules(args: Args) -> Body:
    """Return what was said about many jobs as a whole."""
    known: dict[str, Option[object]] = {"array": ARRAY, "repeat": REPEAT, "at_once": AT_ONCE, "halt_after": HALT}
    return {key: args.get(option) for key, option in known.items() if args.has(option)}


def from_lines(args: Args, lines: Iterable[bytes], source: str) -> Body:
    """Return the request that submits one job a line; blank lines and comments are none."""
    from dibs import templates

    commands: list[str] = []
    for number, raw in enumerate(lines, 1):
        line = _decoded(raw, f"{source}, line {number}").strip()
        if line and not line.startswith("#"):
            check_text(line, f"{source}, line {number}")
            commands.append(line)
    if not commands:
        raise UserError(f"expected one command a line, got none from {source}.")
    for option in (OUTPUT, STDERR):
        if not args.has(REPEAT) and "index" in templates.used(args.get(option) or ""):
            raise UserError(f"{option.names[-1]}: {{index}} is for --array and --repeat.", "A line has its {id}.")
    return {"defaults": common(args, []), "commands": commands} | rules(args)


def split_variables(words: Sequence[str]) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Split `A=1 B=2 program ...` as a shell does; a lone string with blanks is for the shell itself."""
    given = []
    left = list(words)
    while left and _is_assignment(left[0]) and (len(left) > 1 or len(left[0].split()) == 1):
        given.append(_read_variable(left.pop(0)))
    return given, tuple(left)


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isascii() and name.isidentifier()


def common(args: Args, more_env: Sequence[tuple[str, str]]) -> Body:
    """Return what all jobs of one command line share."""
    env = dict((*args.all(ENV), *more_env))
    for name, value in env.items():
        environs.check_given(name)
        check_text(f"{name}={value}", f"-e {name}")
    count, gpu_ids = args.get(GPUS), args.get(GPU_IDS)
    check_count(count, gpu_ids, args.get(GPU_TYPE))
    if args.has(RETRY_ON) and not args.has(RETRIES):
        raise UserError("--retry-on says when to try again, but not how often.", "Add --retries N.")
    begin, troubles = args.get(BEGIN), args.get(RETRY_ON)
    exclude = settings.load(os.environ).env_exclude
    body: Body = {
        "cwd": _folder(args.get(CHDIR)),
        "environ": b2a_base64(environs.capture(os.environb, exclude), newline=False).decode(),
        "env": env,
        "umask": _umask(),
        "gpus": count.gpus if count and not gpu_ids else None,
        "gpu_ids": list(gpu_ids) if gpu_ids else None,
        "prefer": list(args.get(PREFER) or ()),
        "gpu_type": args.get(GPU_TYPE) or (count.gpu_type if count else None),
        "time_limit_s": args.get(TIME),
        "tags": list(args.all(TAG)),
        "after": _needs(args),
        "begin_at": begin.isoformat() if begin else None,
        "retry_on": list(troubles) if troubles else None,
    }
    if args.has(METRIC):
        body["metric"] = dict(args.all(METRIC))
    texts: dict[str, Option[object]] = {"name": NAME, "project": PROJECT, "output": OUTPUT, "stderr": STDERR}
    plain = texts | {"priority": PRIORITY, "visible": VISIBLE, "retries": RETRIES, "cpus": CPUS, "mem": MEM}
    plain |= {"notify": NOTIFY, "warn": SIGNAL, "hold": HOLD, "wait_tree": WAIT_TREE}
    body |= {key: args.get(option) for key, option in plain.items() if args.has(option)}
    for option in (*texts.values(), TAG, NOTIFY, GPU_TYPE, GPU_IDS, PREFER, AFTER, AFTER_ANY, AFTER_END):
        for given in args.all(option):
            check_text(str(given), option.names[-1])
    return body


def told_begin(args: Args) -> str:
    """Return what a receipt adds about `--begin`: the moment as it was understood, in the submitter's time zone."""
    begin = args.get(BEGIN)
    if begin is None:
        return ""
    from dibs.cli import moments

    return f"; begins {moments.shown(begin)}"


def _needs(args: Args) -> list[Body]:
    """Return the jobs it waits for."""
    needs = [(word, When.DONE) for word in args.all(AFTER)]
    needs += [(word, When.ANY) for word in args.all(AFTER_ANY)]
    needs += [(word, When.END) for word in args.all(AFTER_END)]
    needs += [need for given in args.all(DEPENDENCY) for need in given]
    return [{"select": word, "when": when.value} for word, when in needs]


def check_count(count: Count | None, gpu_ids: tuple[str, ...] | None, gpu_type: str | None) -> None:
    """Refuse options about GPUs that contradict each other."""
    if count and gpu_ids and count.gpus != len(gpu_ids):
        raise UserError(f"--gpus {count.gpus} contradicts --gpu-ids, which names {len(gpu_ids)}.", "Leave --gpus out.")
    if count and count.gpu_type and gpu_type and count.gpu_type != gpu_type:
        raise UserError(f'--gpus says "{count.gpu_type}" and --gpu-type says "{gpu_type}".', "Leave one of them out.")


def _folder(chosen: str | None) -> str:
    """Return the folder a job runs in; `os.getcwd` fails when somebody deleted it under our feet."""
    try:
        folder = os.path.realpath(chosen) if chosen else os.getcwd()
    except FileNotFoundError:
        raise UserError("this folder no longer exists.", "Go to another one, or name one with -C.") from None
    check_text(folder, "the folder")
    if not os.path.isdir(folder):
        what = "is not a folder" if os.path.exists(folder) else "does not exist"
        raise UserError(f'--chdir expected a folder, but "{folder}" {what}.')
    return folder


def _umask() -> int:
    # It can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def search_path(defaults: Mapping[str, object]) -> str:
    """Return where a job looks for programs."""
    env = defaults["env"]
    return (env.get("PATH") if isinstance(env, dict) else None) or os.environ.get("PATH", os.defpath)


def _check_program(words: Sequence[str], defaults: Mapping[str, object], verb: str, is_after: bool) -> None:
    """Refuse a first word that cannot be started, and say what was most likely meant."""
    path, cwd = search_path(defaults), str(defaults["cwd"])
    program, shown = words[0], options.shown(words[0])
    if commands.is_found(program, path, cwd) and program not in commands.BUILTINS:
        return
    if program in commands.BUILTINS:
        line = options.shown(" ".join(words))
        why = f'but built into the shell; quote the command: dibs {verb} "{line} && ..."'
    elif program.startswith("-"):
        why = "; options stand before the command."
    elif program.isdigit() and is_after:
        why = f"; several jobs are named with commas: --after 1,{shown}"
    elif os.path.isfile(os.path.join(cwd, program)):
        rest = " -- ARGUMENTS" if len(words) > 1 else ""
        why = f"but a file; queue its text: dibs {verb} --script {shown}{rest}"
    else:
        why = (
            f"(aliases and functions of a shell are not known here); quote a command that needs a shell: "
            f'dibs {verb} "{shown} ..."'
        )
    raise UserError(f'"{shown}" is not a program here{"" if why.startswith(";") else " "}{why}')


def _decoded(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise UserError(f"{what}: expected UTF-8 text, got other bytes.") from None


def check_text(text: str, what: str) -> None:
    """Refuse a text that cannot be kept or started: not UTF-8, with a NUL in it, or longer than the kernel takes."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UserError(f"{what}: expected UTF-8 text, got other bytes.") from None
    if "\0" in text:
        raise UserError(f"{what}: cannot contain a NUL byte.")
    if size > commands.LONGEST_BYTES:
        raise UserError(
            f"{what}: one text may have {commands.LONGEST_BYTES:,} bytes, this one has {size:,}.",
            "Keep it in a script file and queue that with --script.",
        )
