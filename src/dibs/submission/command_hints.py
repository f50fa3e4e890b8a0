"""Hints about a command that probably does not do what was meant: a Python file, a missing script, `conda activate`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence

from dibs.errors import UserError
from dibs.model import suggestions
from dibs.submission import options
from dibs.system import commands

#: Endings of files that are meant to be run.
SCRIPT_ENDINGS = (".py", ".sh")
#: Programs whose next word is a script, unless it is an option.
INTERPRETERS = ("bash", "dash", "ksh", "python", "python3", "sh", "zsh")
#: Programs whose words name files of another machine or container.
ELSEWHERE = frozenset(("apptainer", "docker", "enroot", "podman", "singularity", "ssh"))
#: Words that only a shell interprets: a program gets them as they are.
OPERATORS = frozenset(("|", "||", "&&", "&", ">", ">>", "2>", "2>&1", "&>"))
#: Characters after which a shell no longer takes words as they are. "=" and "%" are common in options.
SPECIAL = commands.SHELL_CHARACTERS - frozenset("=%")
#: What a shell runs without a program of that name, besides `commands.BUILTINS`.
SHELL_WORDS = commands.BUILTINS | frozenset(
    ("break", "command", "continue", "coproc", "dirs", "enable", "getopts", "hash", "help", "history", "jobs", "let",
     "logout", "mapfile", "read", "readarray", "return", "suspend", "time", "times", "type", "wait")
)  # fmt: skip
#: Programs that change the shell that runs them, which ends with the job.
ACTIVATORS = frozenset(("conda", "mamba", "micromamba"))


def python_command(words: Sequence[str], environ: Mapping[str, str], cwd: str, path: str) -> str:
    """Return the command that runs a Python file, with the interpreter of the active environment if there is one."""
    # Only for an error; a submission must load little.
    import shlex

    return shlex.join([_interpreter(environ, cwd, path), *words])


def _interpreter(environ: Mapping[str, str], cwd: str, path: str) -> str:
    folder = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
    if folder and commands.is_found(python := os.path.join(folder, "bin", "python"), "", cwd):
        return os.path.relpath(python, cwd) if python.startswith(f"{cwd}/") else python
    return "python" if commands.is_found("python", path, cwd) else "python3"


def missing_script(words: Sequence[str], cwd: str) -> str:
    """Return a warning about the first word that looks like a script and is no file; empty if there is none."""
    if len(words) == 1:
        words = _literal_words(words[0])
    if not words or os.path.basename(words[0]) in ELSEWHERE:
        return ""
    for before, word in itertools.pairwise(words):
        if _is_script(words[0], before, word) and not os.path.exists(os.path.join(cwd, word)):
            return f"{options.shown(word)} does not exist in {cwd}{_near_file(word, cwd)}"
    return ""


def unknown_program(line: str, environ: Mapping[str, str], cwd: str, path: str) -> str:
    """Return a warning about a command line whose program cannot be started; empty if it can, or if nobody knows."""
    words = _literal_words(line)
    if not words or words[0] in SHELL_WORDS or commands.is_found(words[0], path, cwd):
        return ""
    is_whole = words == line.split()
    if not is_whole and not words[0].endswith(SCRIPT_ENDINGS):
        # It may be a keyword, or a function of the command line itself.
        return ""
    if f"BASH_FUNC_{words[0]}%%" in environ:
        return ""
    said = f"command not found: {options.shown(words[0])}"
    if words[0].endswith(".py") and os.path.isfile(os.path.join(cwd, words[0])):
        said += f"; it is a Python file. Name its interpreter: {python_command(words[:1], environ, cwd, path)}"
    return said


def _literal_words(line: str) -> list[str]:
    """Return the words that a shell passes on unchanged, up to the first that it interprets; without assignments."""
    words = list(itertools.takewhile(SPECIAL.isdisjoint, line.split(" ")))
    return list(itertools.dropwhile(commands.is_assignment, filter(None, words)))


def operator(words: Sequence[str], verb: str) -> str:
    """Return a warning about a shell operator among the words of a program; empty if there is none."""
    found = next((word for word in words[1:] if word in OPERATORS), None)
    if found is None or os.path.basename(words[0]) in ELSEWHERE:
        return ""
    line = options.shown(" ".join(words))
    return f'{words[0]} gets "{found}" as an argument. To let a shell interpret it: dibs {verb} "{line}"'


def background(words: Sequence[str]) -> str:
    """Return a warning about a command that puts itself into the background; empty if it does not."""
    end = words[0].rstrip() if len(words) == 1 else ""
    if not end.endswith("&") or end.endswith("&&"):
        return ""
    return "the command ends with &: the job ends at once, and what it started is stopped. Leave out the &"


def _is_script(program: str, before: str, word: str) -> bool:
    """Tell whether a word is meant to be run; after an option it is its value, except after `python -u`."""
    if word.startswith("-") or "://" in word:
        return False
    if os.path.basename(program) in INTERPRETERS:
        return (before == program and "/" in word) or (word.endswith(SCRIPT_ENDINGS) and not before.startswith("--"))
    return word.endswith(SCRIPT_ENDINGS) and not before.startswith("-")


def _near_file(word: str, cwd: str) -> str:
    folder, name = os.path.split(word)
    try:
        near = suggestions.one_slip(name, os.listdir(os.path.join(cwd, folder)))
    except OSError:
        # The folder is missing too, or closed: then there is nothing to suggest.
        return ""
    return f" (did you mean {options.shown(os.path.join(folder, near))}?)" if near else ""


def check_activation(words: Sequence[str], verb: str) -> None:
    """Refuse `conda activate NAME` as a whole command: it would change nothing but the job's own shell."""
    if len(words) < 2 or os.path.basename(words[0]) not in ACTIVATORS or words[1] != "activate":
        return
    name = options.shown(words[2]) if len(words) > 2 else "NAME"
    raise UserError(
        f"{words[0]} activate changes only the shell that runs it, so a job with nothing else has no effect.",
        f"Activate it first, because jobs get the environment of this shell: {words[0]} activate {name} && dibs {verb} "
        f"python train.py. Or: dibs {verb} {words[0]} run -n {name} python train.py",
    )
