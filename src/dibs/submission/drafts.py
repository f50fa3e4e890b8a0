"""Build the request for the daemon from words and options; shared by all verbs that submit.

Errors that can be found without the daemon are raised here, before one is started.
"""

from __future__ import annotations

import os
import shlex
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, cast

from dibs.errors import UserError
from dibs.model import environment, fields, jobs, suggestions
from dibs.model.jobs import LOCAL
from dibs.submission import command_hints, job_options, options
from dibs.submission.options import Args, Caller, Option
from dibs.system import commands

if TYPE_CHECKING:
    from dibs.sweeps.templates import Template

Body = dict[str, object]

#: Commands that are sent as a list; more are sent as one text.
MOST_LISTED = 100_000
#: Command lines of one submission that are looked at for a warning.
LOOKED_AT = 100
#: Maximum length of a program's name in characters (NAME_MAX).
LONGEST_PROGRAM = 255

_KEYS = {option: own.key for own in fields.EDITABLE.values() for option in job_options.setters(own)}
#: The options of `dibs edit`, each with the field it sets, in the order of the options.
EDITABLE: dict[Option[object], str] = {
    option: key for option in job_options.JOB_OPTIONS if (key := _KEYS.get(option)) is not None
} | {job_options.AT_ONCE: "at_once", job_options.HALT: "halt_after"}
#: The keys whose value is that of one option, as given.
_PLAIN = {own.key or "": job_options.setters(own)[0] for own in fields.ALL if own.is_plain and own.options}
_PLAIN |= {"warn": job_options.SIGNAL, "hold": job_options.HOLD}


def from_words(args: Args, words: Sequence[str], verb: str) -> Body:
    """Return the request that submits one command, given as the words after the options."""
    wrapped = args.get(job_options.WRAP)
    if wrapped is not None:
        if words:
            raise UserError(
                f'--wrap already contains the command, got another one: "{options.shown(" ".join(words))}".'
            )
        commands.check_text(wrapped, "--wrap")
        return {"defaults": common(args, []), "jobs": [{"command": wrapped}]} | batch(args)
    given, words = split_variables(words)
    if not words or not words[0].strip():
        after = f" after {given[-1][0]}={given[-1][1]}" if given else ""
        raise UserError(f"expected a command{options.shown(after)}, got none.", f"See `dibs {verb} --help`.")
    defaults = common(args, given)
    is_string = commands.is_string(words)
    job: Body = {"command": words[0]} if is_string else {"argv": list(words)}
    for word in words:
        commands.check_text(word, "the command")
    if not is_string:
        check_program(args, words, defaults, verb)
    return {"defaults": defaults, "jobs": [job]} | batch(args)


def batch(args: Args) -> Body:
    """Return the settings of a batch; empty for a single job."""
    if args.has(job_options.ARRAY) and args.has(job_options.REPEAT):
        raise UserError("expected --array or --repeat, got both.", "Leave one of them out.")
    if not args.has(job_options.ARRAY) and not args.has(job_options.REPEAT):
        for option in (job_options.AT_ONCE, job_options.HALT):
            if args.has(option):
                raise UserError(
                    f"{option.names[0]} is for a batch (`dibs add -`, --file, --array or --repeat), this is one job."
                )
        return {}
    return rules(args)


def rules(args: Args) -> Body:
    """Return the options that apply to many jobs as a whole."""
    known: dict[str, Option[object]] = {
        "array": job_options.ARRAY,
        "repeat": job_options.REPEAT,
        "at_once": job_options.AT_ONCE,
        "halt_after": job_options.HALT,
    }
    return {key: args.get(option) for key, option in known.items() if args.has(option)}


def from_lines(args: Args, lines: Iterable[bytes], source: str) -> Body:
    """Return the request that submits one job per line; blank lines and comments are skipped."""
    from dibs.model import path_templates

    kept: list[str] = []
    for number, raw in enumerate(lines, 1):
        where = f"{source}, line {number}"
        try:
            line = raw.decode().strip()
        except UnicodeDecodeError:
            raise UserError(f"{where}: expected UTF-8 text, got other bytes.") from None
        if line and not line.startswith("#"):
            commands.check_text(line, where)
            kept.append(line)
    if not kept:
        raise UserError(f"expected one command per line, got none from {source}.")
    for option in (job_options.OUTPUT, job_options.STDERR):
        if not args.has(job_options.REPEAT) and "index" in path_templates.used(args.get(option) or ""):
            raise UserError(
                f"{option.names[-1]}: {{index}} is for --array and --repeat.", "Use {id} for jobs of a file."
            )
    # An older daemon knows only lists, and takes no more.
    listed: Body = {"commands": kept} if len(kept) <= MOST_LISTED else {"lines": "\n".join(kept)}
    return {"defaults": common(args, []), **listed} | rules(args)


def lines_of(body: Body) -> Iterator[str]:
    """Return the first command lines of a batch, all of them if it is small."""
    if isinstance(text := body.get("lines"), str):
        return iter(text.split("\n", LOOKED_AT)[:LOOKED_AT])
    if "commands" in body:
        return iter(cast("list[str]", body["commands"]))
    return (shlex.join(cast("Sequence[str]", job["argv"])) for job in cast("list[Body]", body["jobs"]))


def split_variables(words: Sequence[str]) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Split `A=1 B=2 program ...` as a shell does; a single string with blanks is left to the shell."""
    given = []
    left = list(words)
    while left and commands.is_assignment(left[0]) and (len(left) > 1 or len(left[0].split()) == 1):
        given.append(job_options.read_variable(left.pop(0)))
    return given, tuple(left)


def common(args: Args, more_env: Sequence[tuple[str, str]]) -> Body:
    """Return the fields that all jobs of one command line share."""
    env = dict((*args.all(job_options.ENV), *more_env))
    for name, value in env.items():
        environment.check_given(name)
        commands.check_text(f"{name}={value}", f"-e {name}")
    count, gpu_ids = args.get(job_options.GPUS), args.get(job_options.GPU_IDS)
    job_options.check_count(count, gpu_ids, args.get(job_options.GPU_TYPE))
    if args.has(job_options.RETRY_ON) and not args.has(job_options.RETRIES):
        raise UserError("--retry-on needs a number of retries.", "Add --retries N.")
    begin, troubles = args.get(job_options.BEGIN), args.get(job_options.RETRY_ON)
    environ = {os.fsencode(name): os.fsencode(value) for name, value in args.caller.environ.items()}
    captured = environment.capture(environ, args.caller.settings.env_exclude)
    body: Body = {
        "cwd": _folder(args.caller, args.get(job_options.CHDIR), is_here=_runs_here(args)),
        "environ": b2a_base64(captured, newline=False).decode(),
        "env": env,
        "umask": _umask() if args.caller.umask is None else args.caller.umask,
        "gpus": count.gpus if count else None,
        "gpu_ids": list(gpu_ids) if gpu_ids else None,
        "prefer": list(args.get(job_options.PREFER) or ()),
        "gpu_type": args.get(job_options.GPU_TYPE) or (count.gpu_type if count else None),
        "time_limit_s": args.get(job_options.TIME),
        "tags": list(args.all(job_options.TAG)),
        "after": _needs(args),
        "begin_at": begin.isoformat() if begin else None,
        "retry_on": list(troubles) if troubles else None,
    }
    if (like := args.get(job_options.LIKE)) is not None:
        # Its options are among these already; the daemon knows its environment.
        del body["environ"]
        body["environ_of"] = int(like)
    if args.has(job_options.EVICTABLE):
        body["evictable"] = args.get(job_options.EVICTABLE) or jobs.YES
    if args.has(job_options.METRIC):
        body["metric"] = dict(args.all(job_options.METRIC))
    body |= {key: args.get(option) for key, option in _PLAIN.items() if args.has(option)}
    for option in job_options.JOB_OPTIONS:
        for given in args.all(option):
            if isinstance(given, str):
                commands.check_text(given, option.names[-1])
    _check_outputs(args, str(body["cwd"]))
    return body


def changed_by(args: Args) -> Body:
    """Return the fields that the options of `dibs edit` change, with their new values."""
    given = [option for option in args.given if option in EDITABLE]
    if not given:
        return {}
    # Leave `--retry-on` to the daemon: only it knows whether the job has retries.
    own = Args((), {option: values for option, values in args.given.items() if option != job_options.RETRY_ON})
    body = common(own, []) | rules(args) | {"retry_on": list(args.get(job_options.RETRY_ON) or ())}
    changes = {EDITABLE[option]: body[EDITABLE[option]] for option in given}
    count = args.get(job_options.GPUS)
    if count is not None and count.gpu_type:
        changes["gpu_type"] = count.gpu_type
    return changes


def _check_outputs(args: Args, cwd: str) -> None:
    """Refuse an output that the job could not write to; a path with placeholders is checked when the job starts."""
    for option in (job_options.OUTPUT, job_options.STDERR):
        path = args.get(option)
        if path is None:
            continue
        # Imported late: most jobs write to their log.
        from dibs.system import output_files

        why = output_files.find_refusal(os.path.join(cwd, os.path.expanduser(path)))
        if why is not None:
            raise UserError(f"{option.names[-1]} {options.shown(path)}: {why}.")


def begin_note(args: Args) -> str:
    """Return the receipt's note about `--begin`: the parsed time in the submitter's time zone."""
    begin = args.get(job_options.BEGIN)
    if begin is None:
        return ""
    from dibs.submission import times

    return f"; begins {times.shown(begin)}"


def _needs(args: Args) -> list[Body]:
    needs = [(word, when) for when, option in job_options.AFTER_WHEN.items() for word in args.all(option)]
    needs += [need for given in args.all(job_options.DEPENDENCY) for need in given]
    return [{"select": word, "when": when.value} for word, when in needs]


def _runs_here(args: Args) -> bool:
    """Tell whether the job runs on this machine, so that its folder and program must exist here."""
    engine = args.get(job_options.ENGINE)
    if engine is None:
        project = args.get(job_options.PROJECT) or fields.DEFAULT_PROJECT
        engine = args.caller.settings.engine_for(project)
    return engine == LOCAL


def _folder(caller: Caller, chosen: str | None, *, is_here: bool = True) -> str:
    """Return the folder a job runs in; an absolute one also if the current folder was deleted."""
    folder = "" if chosen and os.path.isabs(chosen) else caller.folder()
    folder = os.path.realpath(os.path.join(folder, chosen)) if chosen else folder
    commands.check_text(folder, "the folder")
    if is_here and not os.path.isdir(folder):
        what = "is not a folder" if os.path.exists(folder) else "does not exist"
        raise UserError(f'--chdir expected a folder, but "{folder}" {what}.')
    return folder


def _umask() -> int:
    # If the kernel does not report it, it can only be read by setting it; another thread that creates a file or
    # reads it meanwhile would then see the wrong value.
    with suppress(OSError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def search_path(caller: Caller, defaults: Mapping[str, object]) -> str:
    """Return the search path for programs of a job."""
    env = defaults["env"]
    return (env.get("PATH") if isinstance(env, dict) else None) or caller.environ.get("PATH", os.defpath)


def check_template(args: Args, template: Template, defaults: Mapping[str, object], verb: str) -> None:
    """Refuse a template whose program is fixed and cannot be started."""
    program = template.words[0]
    if all(isinstance(piece, str) for piece in program):
        check_program(args, ["".join(str(piece) for piece in program)], defaults, verb)


def check_program(args: Args, words: Sequence[str], defaults: Mapping[str, object], verb: str) -> None:
    """Refuse a program that cannot be started, and suggest what was probably meant."""
    command_hints.check_activation(words, verb)
    if not _runs_here(args) or args.has(job_options.LIKE):
        # The search path is that of a cluster or of another job.
        return
    path, cwd = search_path(args.caller, defaults), str(defaults["cwd"])
    program, shown = words[0], options.shown(words[0])
    if commands.is_found(program, path, cwd) and program not in commands.BUILTINS:
        return
    if program in commands.BUILTINS:
        line = options.shown(" ".join(words))
        why = f'; it is built into the shell. Quote the command: dibs {verb} "{line} && ..."'
    elif program.startswith("-"):
        why = "; options come before the command."
    elif " " in program and len(words) > 1 and words[1].startswith("-"):
        # A quoted command line, and options that were typed after it.
        after = options.shown(" ".join(words[1:]))
        why = f'; options come before the command: dibs {verb} {after} "{shown}"'
    elif program.isdigit() and any(args.has(option) for option in job_options.AFTERS):
        why = f"; separate several jobs with commas: --after 1,{shown}"
    elif program.endswith(".py") and os.path.isfile(os.path.join(cwd, program)):
        python = command_hints.python_command(words, args.caller.environ, cwd, path)
        why = f"; it is a Python file. Name its interpreter: dibs {verb} {python}"
    elif program.endswith(".ipynb") and os.path.isfile(os.path.join(cwd, program)):
        why = f"; it is a notebook. Run its cells: dibs {verb} jupyter execute {shown}"
    elif os.path.isdir(os.path.join(cwd, program)):
        why = "; it is a folder."
    elif os.path.isfile(os.path.join(cwd, program)):
        rest = " -- ARGUMENTS" if len(words) > 1 else ""
        why = f"; it is a file. Submit it as a script: dibs {verb} --script {shown}{rest}"
    else:
        near = _near_program(program, path)
        why = f"; did you mean {near}?" if near else " (shell aliases and functions do not work here)."
        why += f' Quote a command that needs a shell: dibs {verb} "{shown} ..."'
    raise UserError(f"command not found: {shown}{why}")


def unknown_program(args: Args, line: str, body: Body) -> str:
    """Return a warning about a command line whose program cannot be started; empty if there is none."""
    if not _runs_here(args) or args.has(job_options.LIKE):
        return ""
    defaults = cast("Body", body["defaults"])
    path, cwd = search_path(args.caller, defaults), str(defaults["cwd"])
    return command_hints.unknown_program(line, args.caller.environ, cwd, path)


def first_warning(args: Args, lines: Iterable[str], body: Body) -> str:
    """Return the first warning about the command lines of a batch, of which only the first ones are looked at."""
    cwd = str(cast("Body", body["defaults"])["cwd"])
    warnings = (
        command_hints.missing_script([line], cwd) or unknown_program(args, line, body)
        for line in islice(lines, LOOKED_AT)
    )
    return next(filter(None, warnings), "")


def _near_program(program: str, path: str) -> str | None:
    """Return the program that was probably meant, if there is one; unreadable folders are skipped."""
    if "/" in program or len(program) > LONGEST_PROGRAM:
        return None
    names: list[str] = []
    for folder in path.split(":"):
        with suppress(OSError):
            names += os.listdir(folder or ".")
    near = suggestions.one_slip(program, names)
    return near if near is not None and commands.is_found(near, path, ".") else None
