"""Submitted scripts: their text is stored, and their `#DIBS` and `#SBATCH` lines are options.

The command line overrides the lines, and `#DIBS` overrides `#SBATCH`, so one file serves a cluster and this machine.
"""

from __future__ import annotations

import os
import socket
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dibs.errors import UserError
from dibs.model import scripts, suggestions
from dibs.submission import command_hints, drafts, job_options, options
from dibs.submission.drafts import Body
from dibs.submission.options import Args, Caller, Option
from dibs.system import commands, users

#: Groups of options in which a later source replaces all options of an earlier one.
GROUPS: tuple[tuple[Option[object], ...], ...] = (
    (job_options.GPUS, job_options.GPU_IDS),
    job_options.AFTERS,
    (job_options.ARRAY, job_options.REPEAT),
)
LINE_OPTIONS: tuple[Option[object], ...] = (*job_options.JOB_OPTIONS, *job_options.BATCH_OPTIONS)


@dataclass(frozen=True)
class Script:
    """A script as it was read: its path, its text, its arguments, and the variables in front of it."""

    path: str
    body: bytes
    words: tuple[str, ...] = ()
    given: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Return the file name."""
        return os.path.basename(self.path)


class JobRequest(NamedTuple):
    """A parsed command line: its options merged with those of the script's lines, and the request."""

    args: Args
    body: Body


Say = Callable[[str], None]


def read(args: Args, verb: str, say: Say) -> JobRequest:
    """Return the request of a command line that names a command or a script; `say` receives notes for the user."""
    script = find(args)
    if script is None:
        body = drafts.from_words(args, args.words, verb)
        _say_what_surprises(args, body, verb, say)
        return JobRequest(args, body)
    _check_language(script, verb)
    args, is_slurm = with_lines(args, script, verb, say)
    return JobRequest(args, _body(args, script, is_slurm))


def find(args: Args) -> Script | None:
    """Return the script: given by `--script`, or by a single word that names a file which identifies itself as one."""
    chosen = args.get(job_options.SCRIPT)
    if chosen is not None:
        path = args.caller.path("stdin" if chosen == "-" else chosen)
        script = Script(os.path.abspath(path), _contents(args.caller, chosen), args.words)
        scripts.check(script.body, chosen)
        return script
    given, words = drafts.split_variables(args.words)
    if len(words) != 1 or args.has(job_options.WRAP) or commands.needs_shell(words[0]) or " " in words[0]:
        return None
    word = words[0]
    path = args.caller.path(word)
    programs = args.caller.environ.get("PATH", os.defpath)
    # A shell would prefer a program of that name too.
    if ("/" not in word and commands.is_found(word, programs, "/")) or not os.path.isfile(path):
        return None
    if not os.access(path, os.R_OK):
        return None
    body = _contents(args.caller, word)
    if not scripts.is_script(body):
        return None
    scripts.check(body, word)
    return Script(os.path.abspath(path), body, (), tuple(given))


def _check_language(script: Script, verb: str) -> None:
    """Refuse Python without a `#!` line: a shell would run it."""
    if script.name.endswith(".py") and not script.body.startswith(b"#!"):
        raise UserError(
            f"{script.name} has no #! line, so it would run in a shell.",
            f"Start it with #!/usr/bin/env python3, or name its interpreter: dibs {verb} python {script.name}",
        )


def _contents(caller: Caller, path: str) -> bytes:
    """Return the contents of a file, or the beginning of one that is too long for a script."""
    try:
        with caller.open(path) as file:
            return file.read(scripts.LONGEST_BYTES + 1)
    except OSError as error:
        raise UserError(f"--script cannot read {options.shown(path)}: {error.strerror}.") from None


def with_lines(args: Args, script: Script, verb: str, say: Say) -> tuple[Args, bool]:
    """Return the options of the command line merged over those of the script, and whether it has `#SBATCH` lines."""
    from dibs.submission import sbatch  # few submissions are scripts

    place = sbatch.Place(users.own(), socket.gethostname().partition(".")[0])
    lines: dict[str, list[Args]] = {"SBATCH": [], "DIBS": []}
    left: list[str] = []
    for line in scripts.directives(script.body, script.name):
        with suggestions.inside(f"{script.name}, line {line.number}:"):
            words: Sequence[str] = line.words
            if line.kind == "SBATCH":
                words, unknown = sbatch.translate(words, place)
                left += unknown
            lines[line.kind].append(options.parse(verb, LINE_OPTIONS, words))
            if rest := lines[line.kind][-1].words:
                raise UserError(f'expected options, got "{options.shown(rest[0])}".')
    whole = layered(_joined(lines["SBATCH"]), _joined(lines["DIBS"]), args)
    if whole.has(job_options.SIGNAL) and not whole.has(job_options.TIME) and not args.has(job_options.SIGNAL):
        # The script leaves the time limit to the cluster; a typed signal without one is an error elsewhere.
        del whole.given[job_options.SIGNAL]
        left.append("--signal without --time")
    if left:
        say(f"{script.name}: ignored here: {', '.join(left)}")
    return whole, bool(lines["SBATCH"])


def layered(*layers: Args) -> Args:
    """Merge options of several sources; later ones win, and repeatable ones accumulate."""
    given: dict[Option[object], tuple[object, ...]] = {}
    for layer in layers:
        for group in GROUPS:
            if any(layer.has(option) for option in group):
                given = {option: values for option, values in given.items() if option not in group}
        given |= {option: (*given.get(option, ()), *values) for option, values in layer.given.items()}
    return replace(layers[-1], given=given)


def _joined(lines: Sequence[Args]) -> Args:
    """Merge the lines of one kind."""
    given: dict[Option[object], tuple[object, ...]] = {}
    for line in lines:
        given |= {option: (*given.get(option, ()), *values) for option, values in line.given.items()}
    return Args((), given)


def _body(args: Args, script: Script, is_slurm: bool) -> Body:
    for word in (script.path, *script.words):
        commands.check_text(word, "the script")
    more = [("SLURM_SUBMIT_DIR", args.caller.folder())] if is_slurm else []
    defaults = drafts.common(args, [*more, *script.given])
    _check_interpreter(args.caller, script, defaults)
    job: Body = {
        "argv": [script.path, *script.words],
        "script": b2a_base64(script.body, newline=False).decode(),
        "slurm": is_slurm,
    }
    return {"defaults": defaults | job, "jobs": [{}]} | drafts.batch(args)


def _check_interpreter(caller: Caller, script: Script, defaults: Body) -> None:
    words = scripts.interpreter(script.body, caller.settings.shell)
    path, cwd = drafts.search_path(caller, defaults), str(defaults["cwd"])
    wanted = [words[0]]
    if os.path.basename(words[0]) == "env" and len(words) > 1 and not words[1].startswith("-") and "=" not in words[1]:
        wanted.append(words[1])
    for program in wanted:
        if not commands.is_found(program, path, cwd):
            raise UserError(f"{script.name}: command not found: {options.shown(program)} (its first line names it).")


def _say_what_surprises(args: Args, body: Body, verb: str, say: Say) -> None:
    _, words = drafts.split_variables(args.words)
    cwd = os.path.abspath(args.caller.path(args.get(job_options.CHDIR) or "."))
    warnings = [command_hints.missing_script(words, cwd), command_hints.operator(words, verb)]
    if commands.is_string(words):
        warnings.append(drafts.unknown_program(args, words[0], body))
    if not args.has(job_options.WAIT_TREE):
        warnings.append(command_hints.background(words))
    for warning in filter(None, warnings):
        say(warning)
    path = args.caller.path(words[0]) if len(words) > 1 and "/" in words[0] else ""
    if os.path.isfile(path) and os.access(path, os.R_OK):
        kinds = {line.kind for line in scripts.directives(_contents(args.caller, words[0]), words[0])}
        if kinds:
            names = " and ".join(f"#{kind}" for kind in sorted(kinds))
            use = f"dibs {verb} --script {words[0]}"
            say(f"{words[0]} runs as a program, which ignores its {names} lines. To use them: {use}")
    if len(words) == 1 and words[0] in commands.INTERACTIVE:
        say(f"a job has no keyboard: {words[0]} will end at once. To type into it: dibs lease {words[0]}")
