"""Types every command of a page, in one shell on one terminal, in a separate dibs.

A sleep in a job of a page (`sleep 20`, `time.sleep`) lasts until the page waits for the job, so that the output in
between is stable; see `fakes/page`. No page takes longer than its commands do.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import pty
import pwd
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import blocks
from bench import PATIENCE_S, Bench, wait_for

FAKES = Path(__file__).parent / "fakes"
COLUMNS = 80
ACTIVE = ("starting", "running", "stopping")
#: Seconds for which `write` repeats a query before it accepts the output.
BELIEF_S = 3.0
#: Commands that return when jobs have ended: time passes while they run.
WAITS = re.compile(
    r"\bdibs (wait|follow|run|pipe|log (.* )?-f|.*--wait\b|.*--drain\b)|\b(schedule|sch) |python fit_submitit"
)
#: Commands that only query: typed again until they show what the page says.
LOOKS = re.compile(
    r"(dibs( (status|show|why|log|config|doctor|gpus|daemon status)\b(?!.*( -f| drain| undrain)).*)?|cat .*|ls\b.*)$"
)
#: Reads the name of a file with commands, runs them here, and reports their exit code.
SHELL = r"""
code=0
while IFS= read -r -u 9 file; do (exit $code); . "$file"; code=$?; printf '\001%s\002' "$code"; done
"""


class Typist:
    """One reader of one page."""

    def __init__(self) -> None:
        # The length of this name affects tables that are fitted to the terminal, so it is always the same.
        self.folder = Path(tempfile.mkdtemp(prefix="dibs-page-", dir="/tmp"))
        self.project = self.folder / "project"
        shutil.copytree(FAKES / "project", self.project)
        path = f"{FAKES / 'page'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.bench = Bench(
            self.folder,
            home=self.folder / ".local/state/dibs/gpu3",
            HOME=str(self.folder),
            PATH=path,
            LANG="C.UTF-8",
            USER="ada",
            TERM="dumb",
            NO_COLOR="1",
            REAL_PYTHON=sys.executable,
        )
        self.bench.home.mkdir(0o700, parents=True)
        # Whether a logout ends jobs depends on the machine: mark the hint as shown today.
        (self.bench.home / "told-logout").touch()
        self.gate = self.folder / ".time-passes"
        #: Something differed from the page: later commands are not waited for.
        self.is_astray = False
        self._start()

    def _start(self) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        orders, self.orders = os.pipe()
        self.shell = subprocess.Popen(
            ["bash", "-c", f"exec 9<&{orders} {orders}<&-; {SHELL}"],
            env=self.bench.environ, cwd=self.project, pass_fds=(orders,),
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(orders)
        os.close(slave)

    def put(self, name: str, text: str) -> None:
        """Write a file that the page shows; one with #! is executable."""
        path = self.folder / name[2:] if name.startswith("~/") else self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)

    def type(self, command: str) -> tuple[int, str]:
        """Type a command; return its exit code and its output."""
        if not WAITS.search(command):
            return self._type(command)
        self.gate.touch()
        try:
            code, seen = self._type(command)
            self._rest()
        finally:
            self.gate.unlink()
        return code, seen

    def look(self, step: blocks.Step, patience_s: float) -> tuple[int, str]:
        """Type a query until it shows what is expected, or the deadline is over."""
        deadline = time.monotonic() + patience_s
        while True:
            code, seen = self.type(step.command)
            is_over = self.is_astray or time.monotonic() > deadline
            if blocks.is_as_expected(step.expected or "", seen) or is_over:
                return code, seen

    def later(self) -> None:
        """Let time pass until nothing runs."""
        self.gate.touch()
        self._rest()
        self.gate.unlink()

    def _rest(self) -> None:
        if self.bench.pid() is not None:
            wait_for(lambda: [job["id"] for job in self.bench.jobs() if job["state"] in ACTIVE], lambda ids: not ids)

    def _type(self, command: str) -> tuple[int, str]:
        file = self.folder / ".typed"
        file.write_text(f"{command}\n")
        os.write(self.orders, f"{file}\n".encode())
        seen = bytearray()
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(rb"\001(\d+)\002", seen)):
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"`{command}` did not come back; so far: {seen.decode(errors='replace')!r}")
            seen += os.read(self.master, 65536)
        return int(found[1]), self._told(seen[: found.start()].decode())

    def _told(self, text: str) -> str:
        """Return the output as a page shows it: with a neutral home and user."""
        text = text.replace("\r\n", "\n").replace(str(self.folder), "~")
        return re.sub(rf"\b{re.escape(pwd.getpwuid(os.geteuid()).pw_name)}(?= (job|lease|waits) )", "ada", text)

    def close(self) -> None:
        """End everything that was started, and leave nothing behind."""
        os.close(self.orders)
        self.shell.kill()
        self.shell.wait()
        os.close(self.master)
        self.bench.close()
        shutil.rmtree(self.folder)


def read(page: Path, patience_s: float = PATIENCE_S) -> list[tuple[blocks.Block, list[str], list[str]]]:
    """Execute a page. Return its typed blocks, each with the output and the differences from the page."""
    typist = Typist()
    told = []
    try:
        for block in blocks.of(page):
            if block.norun:
                continue
            if block.language == "comment":
                _obey(typist, block)
            elif block.file:
                typist.put(block.file, block.text)
            elif block.is_typed:
                told.append((block, *_do(typist, block, patience_s)))
    finally:
        typist.close()
    return told


def _obey(typist: Typist, block: blocks.Block) -> None:
    word, _, command = block.text.partition(": ")
    if word == "unseen":
        code, seen = typist.type(command)
        assert code == 0, f"line {block.line}: `{command}` ended with {code}: {seen}"
    elif block.text == "later":
        typist.later()


def _do(typist: Typist, block: blocks.Block, patience_s: float) -> tuple[list[str], list[str]]:
    outputs, troubles = [], []
    for step, after in itertools.zip_longest(steps := blocks.steps(block), steps[1:]):
        is_look = step.expected is not None and LOOKS.match(step.command)
        code, seen = typist.look(step, patience_s) if is_look else typist.type(step.command)
        if step.expected is None and code != 0:
            troubles.append(f"line {step.line}: `{step.command}` ended with {code}:\n{seen}")
        elif step.expected == "" and code != 0 and not seen and not (after and after.command == "echo $?"):
            troubles.append(f"line {step.line}: `{step.command}` ended with {code} and said nothing")
        elif step.expected is not None and not blocks.is_as_expected(step.expected, seen):
            troubles.append(f"line {step.line}: `{step.command}` shows\n{seen}\nand the page says\n{step.expected}")
        else:
            seen = step.expected or ""
        outputs.append(seen)
        # To write pages, the real output is needed even after a difference.
        typist.is_astray = bool(troubles) and patience_s > BELIEF_S
    return outputs, troubles


def write(page: Path) -> None:
    """Put the real output of the commands of a page into it, where it differs."""
    text = page.read_text()
    for block, outputs, troubles in reversed(read(page, BELIEF_S)):
        if troubles and block.language == "console":
            first, last = block.span
            text = text[:first] + blocks.with_outputs(block, outputs) + text[last:]
        print("".join(f"{page.name} {trouble}\n" for trouble in troubles), end="")
    page.write_text(text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(Path(name))
