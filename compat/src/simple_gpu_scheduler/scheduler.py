"""`simple_gpu_scheduler`: commands from stdin, one GPU each, as the old tool did it; `pipe_loop` does the work.

What the old tool promised stays to the byte: the line before each start, the last id first, `/bin/sh`, exit code 0.
What was wrong with it is not kept: jobs no longer read our stdin, lines come at once, a command that cannot be started
frees its GPU, and a signal lets what runs finish instead of abandoning it.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dibs import errors
from dibs.foreground import command_lines, inherited, pipe_loop, pipe_values, slot_kinds, slots
from dibs.leases import device_lease, waiters
from dibs.model import devices
from dibs_compat import ids

if TYPE_CHECKING:
    import argparse

#: The variable by which a command sees its GPU: the text of the list, whatever it is.
VISIBLE = "CUDA_VISIBLE_DEVICES"


class GPU:
    """One id of the list while it is in use."""

    def __init__(self, nr: str, manager: GPUManager) -> None:
        self.nr = nr
        self._manager = manager

    def release(self) -> None:
        """Give it back."""
        self._manager.release_gpu(self)

    def __str__(self) -> str:
        return str(self.nr)


class GPUManager:
    """Hands out the ids of a list, the last one first, each with the lease of its device."""

    def __init__(self, available_gpus: Iterable[str]) -> None:
        self.available_gpus = [str(gpu) for gpu in available_gpus]
        self._free = list(self.available_gpus)
        self._changed = threading.Condition()
        #: How often each device is in use, and the lease that all of them share.
        self._held: dict[str, tuple[int, device_lease.Lease]] = {}

    def get_gpu(self) -> GPU:
        """Return the id that was freed last, when there is one and its device is ours."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._free))
            nr = self._free.pop()
            for device in self._leased(nr):
                count, lease = self._held.get(device) or (0, self._acquire(device))
                self._held[device] = count + 1, lease
        return GPU(nr, self)

    def release_gpu(self, gpu: GPU) -> None:
        """Take an id back; the last user of a device releases its lease."""
        with self._changed:
            for device in self._leased(gpu.nr):
                count, lease = self._held.pop(device)
                if count > 1:
                    self._held[device] = count - 1, lease
                else:
                    device_lease.release(device_lease.folder(), [lease])
            self._free.append(gpu.nr)
            self._changed.notify()

    def _leased(self, nr: str) -> list[str]:
        """Return what has to be leased for an id."""
        return [device for device in ids.keys(nr, self._inventory) if device not in self._granted]

    def _acquire(self, device: str) -> device_lease.Lease:
        # Refuse what a quota never allows; how long the caller keeps it nobody can know.
        ids.time_limit_s(self._inventory)
        vet = ids.vet(self._inventory, complain)
        return waiters.acquire(device_lease.folder(), 1, [device], note(), vet=vet, on_limit=complain)[0]

    @functools.cached_property
    def _inventory(self) -> devices.Inventory:
        # Once: what is given back must be what was taken.
        return ids.inventory()

    @functools.cached_property
    def _granted(self) -> frozenset[str]:
        # Once, before the first lease: those of our own would look the same later.
        return frozenset(inherited.devices(device_lease.folder(), self._inventory))


def complain(text: str) -> None:
    """Print a line about a GPU that is not used."""
    print(text, file=sys.stderr, flush=True)


def run_command_with_gpu(command: str, gpu: GPU) -> threading.Thread:
    """Start a command on a GPU in the background, and give the GPU back when it has ended."""
    import subprocess

    def run() -> None:
        try:
            subprocess.run(["/bin/sh", "-c", command], env=os.environ | {VISIBLE: gpu.nr}, stdin=subprocess.DEVNULL)
        finally:
            gpu.release()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def read_commands_and_run(manager: GPUManager) -> pipe_loop.Pipe:
    """Run every line of stdin on the GPUs of a manager; return what became of them."""
    found = ids.inventory()
    places = [slots.Slot(ids.keys(nr, found), nr) for nr in manager.available_gpus]
    # Inside a job of dibs its own GPUs need no lease: we would wait for ourselves.
    ours = inherited.devices(device_lease.folder(), found)
    base = dict(os.environb)
    teller = Teller()
    how = slots.LeaseOptions(
        device_lease.folder(), note(), on_wait=teller.waits, vet=ids.vet(found, complain), on_limit=complain
    )
    pipe = pipe_loop.Pipe(
        0,
        command_lines.Lines(),
        slot_kinds.FixedSlots(how, places, ours),
        lambda slot: {**base, VISIBLE.encode(): os.fsencode(slot.label)},
        pipe_values.Rules("/bin/sh", ends_leftovers=False, limit_s=ids.time_limit_s(found)),
        teller,
    )
    pipe.run()
    return pipe


def note() -> device_lease.Note:
    """Return what others read about our leases."""
    return device_lease.own_note("simple_gpu_scheduler", "dibs-compat")


class Teller(pipe_values.Observer):
    """Prints the messages of the old tool on stdout, and on stderr those that it hid."""

    def starting(self, job: pipe_values.Job, slot: slots.Slot) -> None:
        """Print the line of the old tool, at once and as one."""
        line = f"Processing command `{job.text}` on gpu {slot.label}\n"
        _write(1, line.encode(errors="surrogateescape"))

    def ended(self, ended: pipe_values.Ended) -> None:
        """Report commands that could not start; the ends of others are not reported here."""
        if ended.code is None:
            self.report(f"cannot start command {ended.job.number}: {ended.trouble}")

    def waits(self, wanted: Sequence[str]) -> None:
        """Say who has the GPUs that we wait for."""
        self.report(ids.waiting_for(wanted))

    def report(self, text: str) -> None:
        """Print a line for people."""
        _write(2, f"simple_gpu_scheduler: {text}\n".encode(errors="surrogateescape"))


def _write(fd: int, data: bytes) -> None:
    """Write all of it, or drop it if nobody reads; running commands continue."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        return


def _open_closed_streams() -> None:
    """Open what the shell closed (`<&-`): a file of ours would get its number, and commands would write to it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def main() -> None:
    """Run the command line of the old tool."""
    _open_closed_streams()
    words, per_gpu, is_status_wanted = _read_words(sys.argv[1:])
    gpus = words[0].split(",") if len(words) == 1 else words
    try:
        pipe = read_commands_and_run(GPUManager(gpus * per_gpu))
    except errors.DibsError as error:
        sys.exit(f"simple_gpu_scheduler: {error.line()}")
    if not_started := pipe.not_started():
        Teller().report(f"stopped before starting {not_started}")
    if pipe.stopped_by is not None:
        # As the old tool did: our parent sees the signal.
        signal.signal(pipe.stopped_by, signal.SIG_DFL)
        os.kill(os.getpid(), pipe.stopped_by)
    is_status_wanted = is_status_wanted or os.environ.get("SGS_EXIT_STATUS") == "1"
    sys.exit(1 if is_status_wanted and pipe.failed else 0)


def _read_words(words: list[str]) -> tuple[list[str], int, bool]:
    """Return the ids, how many commands run on each at once, and whether our exit code is to tell of failures."""
    first, *gpus = words or [""]
    if first == "--gpus" and gpus and not any(word.startswith("-") for word in gpus):
        # What nearly everybody says. Loading `argparse` takes as long as a dozen commands.
        return gpus, 1, False
    asked = _options().parse_args(words)
    return asked.gpus, asked.max_process_per_gpu, asked.exit_status


def _options() -> argparse.ArgumentParser:
    """Return the options; what the old tool did not have is understood, but its help stays as it was."""
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", nargs="+", required=True)
    parser.add_argument("--max_process_per_gpu", type=_count, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--exit-status", action="store_true", help=argparse.SUPPRESS)
    return parser


def _count(text: str) -> int:
    import argparse

    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1000):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to 1000, got {text!r}")
    return int(text)


if __name__ == "__main__":
    main()
