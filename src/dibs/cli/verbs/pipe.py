"""`dibs pipe`: run one command per line of stdin, each on its own GPUs, in the foreground. Needs no daemon."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from dibs.cli import screen
from dibs.errors import UserError
from dibs.foreground import command_lines, lease_request, pipe_loop, pipe_values, slot_choice
from dibs.foreground.slots import Slot
from dibs.model import environment, environment_names, units
from dibs.model.devices import DeviceId, Inventory
from dibs.runner import ports
from dibs.submission import job_options, options
from dibs.submission.options import Args, Option
from dibs.system import settings
from dibs.system.process_tree import NEVER

SUMMARY = "Run commands from stdin, one per line and GPU, and wait for all of them."
USAGE = ("[OPTIONS] < COMMANDS",)

LOGS = Option(("--logs",), "Write the output of command 7 to DIR/7.log.", options.PATH, "DIR")
HALT = Option(("--halt",), "Start no new commands after N failures.", options.whole(1), "N")
SUMMARIZE: Option[bool] = Option(("--summary",), "Print a summary: command, GPU, duration, exit code.")
SKIP_BLANK: Option[bool] = Option(("--skip-blank",), "Skip blank lines and comments.")
OPTIONS: tuple[Option[object], ...] = (
    slot_choice.GPU_IDS, slot_choice.GPUS, slot_choice.COUNT, job_options.GPU_TYPE, job_options.VRAM,
    job_options.IGNORE_FOREIGN, slot_choice.PER_GPU, slot_choice.AT_ONCE, job_options.VISIBLE, LOGS,
    job_options.RETRIES, HALT, SUMMARIZE, SKIP_BLANK,
)  # fmt: skip
EXAMPLES = (
    "dibs pipe < commands.txt",
    "dibs pipe --gpu-ids 0,2-4 -j 8 --per-gpu 2 --logs out --summary < commands.txt",
    "tail -f -n 0 queue | dibs pipe",
)

#: Seconds between two updates of the progress line, and between two lines of progress among the output of commands.
DRAW_S = 0.1
SAY_S = 10.0


def main(args: Args) -> int:
    """Run every command of stdin; return 1 if one of them failed."""
    named = slot_choice.groups(args)
    values = settings.load(os.environ)
    inventory = lease_request.inventory_now(values)
    teller = Teller(is_summing=args.has(SUMMARIZE), is_drawing=sys.stderr.isatty(), is_beside_output=not args.has(LOGS))
    places = slot_choice.slots(args, named, values, inventory, teller.report)
    visible = args.get(job_options.VISIBLE) or values.visible
    rules = pipe_values.Rules(
        values.shell,
        most=args.get(slot_choice.AT_ONCE),
        retries=args.get(job_options.RETRIES) or 0,
        halt=args.get(HALT),
        logs=_logs(args.get(LOGS)),
        limit_s=lease_request.longest_s(None, values.rules),
    )
    if sys.stdin.isatty():
        screen.say("type commands, one per line; Ctrl-D ends")
    source = command_lines.Lines(is_joined=True, skips_blank=args.has(SKIP_BLANK))
    environ = Environs(inventory, visible, is_sharing=args.has(job_options.VRAM))
    pipe = pipe_loop.Pipe(0, source, places, environ.of, rules, teller)
    pipe.run()
    teller.finish(pipe)
    if args.has(SUMMARIZE):
        print(teller.summary(screen.screen_of_stream(sys.stdout, args), pipe))
    if pipe.stopped_by is not None:
        return 128 + pipe.stopped_by
    return 1 if pipe.failed else 0


def _logs(folder: str | None) -> str | None:
    if folder is not None:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise UserError(f'--logs expected a folder, but "{folder}" cannot be made: {error.strerror}.') from None
    return folder


class Environs:
    """The environments of commands, built once per set of devices."""

    def __init__(self, inventory: Inventory, visible: str, *, is_sharing: bool = False) -> None:
        self._inventory = inventory
        self._is_sharing = is_sharing
        self._visible = visible
        theirs = {os.fsencode(name) for name in environment_names.DEVICE_NAMES}
        self._base = {name: value for name, value in os.environb.items() if name not in theirs}
        self._made: dict[tuple[str, ...], dict[bytes, bytes]] = {}
        #: How many commands got a port.
        self._commands = 0

    def of(self, slot: Slot) -> dict[bytes, bytes]:
        """Return the environment for a slot; each command on GPUs gets a port of its own."""
        if slot.devices not in self._made:
            self._made[slot.devices] = self._make(slot.devices)
        if not slot.devices:
            return self._made[slot.devices]
        self._commands += 1
        meeting = environment.meeting(ports.free(f"pipe {os.getpid()}", self._commands))
        return _encoded(meeting) | self._made[slot.devices]

    def _make(self, ids: Sequence[str]) -> dict[bytes, bytes]:
        own = environment.for_devices(self._inventory, [DeviceId(device) for device in ids], self._visible)
        return _encoded(environment.polite(is_sharing=self._is_sharing)) | self._base | _encoded(own)


def _encoded(environ: dict[str, str]) -> dict[bytes, bytes]:
    return {environment.os_bytes(name): environment.os_bytes(value) for name, value in environ.items()}


# -- output for the user


class Teller(pipe_values.Observer):
    """Prints failures and progress on stderr; records every attempt if a summary is requested.

    If commands write to the same terminal, progress is a whole line now and then, because their output would continue
    a line that is drawn in place.
    """

    def __init__(self, *, is_summing: bool, is_drawing: bool, is_beside_output: bool) -> None:
        self._is_summing = is_summing
        self._is_drawing = is_drawing
        self._is_beside_output = is_beside_output
        #: The number of each attempt's command, and the rest of its row in the summary.
        self._records: list[tuple[int, tuple[str, ...]]] = []
        self._drawn = ""
        self._drawn_at = time.monotonic() if is_beside_output else 0.0

    def ended(self, ended: pipe_values.Ended) -> None:
        """Print a failure, and record the attempt for the summary."""
        how = _how(ended)
        if ended.code != 0:
            again = ", retrying" if ended.is_retried else ""
            text = options.shown(ended.job.text)
            self.report(f"command {ended.job.number} failed ({how}) on {ended.label}{again}: {text}")
        if self._is_summing:
            state = "done" if ended.code == 0 else "failed"
            took = f"{ended.took_s:.1f}s" if ended.took_s < 60 else units.format_duration(ended.took_s)
            row = (ended.label, state, how, "" if ended.code is None else took, ended.job.text)
            self._records.append((ended.job.number, row))

    def report(self, text: str) -> None:
        """Print a message above the progress line."""
        self._draw("")
        try:
            screen.say(text)
        except OSError:
            # Nobody can read it (a closed terminal); running commands continue.
            return

    def changed(self, pipe: pipe_loop.Pipe, now: float) -> float:
        """Update the progress line, but not for every command that ends."""
        text = progress(pipe)
        if not self._is_drawing or text == self._drawn:
            return NEVER
        next_at = self._drawn_at + (SAY_S if self._is_beside_output else DRAW_S)
        if now < next_at:
            return next_at
        self._drawn_at = now
        self._draw(text)
        return NEVER

    def finish(self, pipe: pipe_loop.Pipe) -> None:
        """Remove the progress line, and print what was not done."""
        self._draw("")
        if not_started := pipe.not_started():
            self.report(f"{'halted' if pipe.is_halted else 'stopped'} before starting {not_started}")
        if pipe.failed and not self._is_summing:
            self.report(f"{pipe.failed} of {pipe_values.counted(pipe.failed + pipe.done)} failed")

    def summary(self, view: screen.Screen, pipe: pipe_loop.Pipe) -> str:
        """Return a table of all attempts: where they ran, for how long, and how they ended."""
        columns = (
            screen.Column("COMMAND", is_right=True), screen.Column("WHERE"), screen.Column("STATE", is_state=True),
            screen.Column("END"), screen.Column("TIME", is_right=True), screen.Column("TEXT", least=20),
        )  # fmt: skip
        rows = [(str(number), *row) for number, row in sorted(self._records, key=lambda record: record[0])]
        total = f"{pipe_values.counted(pipe.done + pipe.failed)}: {pipe.done} done, {pipe.failed} failed"
        missing = f", {pipe.dropped} not started" if pipe.dropped else ""
        return f"{screen.table(view, columns, rows)}\n{total}{missing}"

    def _draw(self, text: str) -> None:
        if text == self._drawn or not self._is_drawing:
            return
        self._drawn = text
        line = f"\r\x1b[K{text}" if not self._is_beside_output else f"{text.rstrip()}\n" if text else ""
        try:
            os.write(2, line.encode())
        except OSError:
            self._is_drawing = False


def progress(pipe: pipe_loop.Pipe) -> str:
    """Return the progress line."""
    waiting = f", {pipe.dropped}{'+' if pipe.is_cut else ''} waiting" if pipe.dropped else ""
    failed = f", {pipe.failed} failed" if pipe.failed else ""
    return f"dibs: {pipe.done} done{failed}, {pipe.running} running{waiting} "


def _how(ended: pipe_values.Ended) -> str:
    if ended.code is None:
        return f"cannot be started: {ended.trouble}"
    return f"exit {ended.code}" if ended.code >= 0 else f"signal {-ended.code}"
