"""One submit from a shell: what a user waits for after typing `dibs add`, and which modules that imports."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import imports, sandboxes
from benchmarks.errors import Failed
from benchmarks.plans import Plan, tell
from benchmarks.series import Book, Key

NAME = "submit"
TITLE = "One command, from start to exit"

#: What `dibs add` is compared with: the interpreter of the same virtual environment, doing nothing.
PYTHON = "python -c pass"
ADD = "dibs add true"
#: What must cost no more than the plain form: the daemon reads the options.
OPTIONS_ADD = "dibs add -g 2 -t 1h -n x --retries 2 -- python train.py"


@dataclass(frozen=True, slots=True)
class Command:
    """A command to be timed."""

    name: str
    words: list[str]
    environ: dict[str, str]


def measure(plan: Plan, book: Book) -> None:
    """Time every command in turn, many times; all servers stand beside each other and have nothing to do."""
    with ExitStack() as stack:
        commands = _commands(plan, book, stack)
        for number in range(plan.sizes.submits):
            tell(f"round {number + 1} of {plan.sizes.submits}")
            first = number % len(commands)
            for command in commands[first:] + commands[:first]:
                time_once(NAME, command, book)
        for command in commands:
            if command.name in (ADD, OPTIONS_ADD):
                _list_imports(command, book)


def _commands(plan: Plan, book: Book, stack: ExitStack) -> list[Command]:
    plain = stack.enter_context(sandboxes.opened(plan.work))
    commands = [
        Command("true", ["true"], plain.environ),
        Command(PYTHON, [sys.executable, "-c", "pass"], plain.environ),
    ]
    for tool in plan.tools:
        if tool.held is None:
            continue
        try:
            box = stack.enter_context(sandboxes.opened(plan.work))
            words = stack.enter_context(tool.held(box))
        except Failed as failure:
            book.note(NAME, f"{tool.name}: {failure}")
        else:
            commands.append(Command(" ".join(words), words, box.environ))
            if commands[-1].name == ADD:
                commands.append(Command(OPTIONS_ADD, OPTIONS_ADD.split(), box.environ))
    return commands


def time_once(part: str, command: Command, book: Book) -> None:
    """Run a command once and note how long it took, and how much processor time it used itself."""
    actions = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    program = _find(command)
    began = time.perf_counter_ns()
    pid = os.posix_spawn(program, command.words, command.environ, file_actions=actions)
    _, status, used = os.wait4(pid, 0)
    took_ns = time.perf_counter_ns() - began
    if status:
        book.note(part, f"{command.name} ended with {os.waitstatus_to_exitcode(status)}")
        return
    book.add(Key(part, command.name, "wall"), "ms", took_ns / 1e6)
    book.add(Key(part, command.name, "CPU"), "ms", (used.ru_utime + used.ru_stime) * 1000)


def _find(command: Command) -> str:
    folders = command.environ["PATH"].split(":")
    found = [str(path) for folder in folders if os.access(path := Path(folder, command.words[0]), os.X_OK)]
    return found[0] if found else command.words[0]


def _list_imports(command: Command, book: Book) -> None:
    found = imports.of(_find(command), command.words[1:], command.environ)
    unwanted = sorted(found & imports.UNWANTED)
    book.add(Key(NAME, command.name, "imports"), "", len(found))
    book.add(Key(NAME, command.name, "unwanted imports"), "", len(unwanted))
    book.note(NAME, f"{command.name} imports {len(found)} modules beyond the interpreter's: {', '.join(sorted(found))}")
    if unwanted:
        book.note(NAME, f"{command.name} imports what it should not: {', '.join(unwanted)}")
