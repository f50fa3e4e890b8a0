"""The arrays of a Slurm cluster, each with a folder in the shared folder: which task is which start, and who ran it.

    arrays/NAME/keys      the key of the start of each task, by number
    arrays/NAME/ref       the engine, and its id of the array, once it is known
    arrays/NAME/N         a link to the folder of the start of task N
    arrays/NAME/taken/N   which task carried out the start of task N instead (`runner.array_tasks`)

A start that another task claimed shares the fate of that task, and its own task is not needed any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from dibs.engines.protocol import Seen, Start
from dibs.runner.array_tasks import TAKEN

#: Seconds after which the folder of an array that nobody asks about is removed.
KEEP_S = 3600.0


@dataclass(slots=True)
class Array:
    """One array, with what is known about its tasks."""

    ref: str
    folder: Path
    asked_at: float = field(default_factory=time.monotonic)
    #: By the number of a start: the task that carried it out instead of its own, and the place in the order of that.
    _taken: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: By task: the place of its last start.
    _last: dict[str, int] = field(default_factory=dict)
    #: Tasks that were cancelled because they have nothing to do.
    _cancelled: set[str] = field(default_factory=set)

    def refresh(self) -> None:
        """Read which starts other tasks have claimed."""
        with contextlib.suppress(FileNotFoundError):
            for number in os.listdir(self.folder / TAKEN):
                if number not in self._taken:
                    task, _, place = os.readlink(self.folder / TAKEN / number).partition(".")
                    self._taken[number] = task, int(place)
                    self._last[task] = max(self._last.get(task, 0), int(place))

    def task_of(self, number: str) -> str | None:
        """Return the task that carries out a start, now or later; None: the start is over, its task has another one."""
        task, place = self._taken.get(number, (number, 0))
        return task if place == self._last.get(task, 0) else None

    def seen(self, number: str, lines: Mapping[str, Seen]) -> Seen | None:
        """Return what Slurm's answer says about a start; None: it knows nothing of its task."""
        task = self._taken.get(number, (number, 0))[0]
        said = lines.get(f"{self.ref}_{task}")
        if self.task_of(number) is not None:
            return said
        return Seen("ended", "its task continued with another job", node=said.node if said is not None else "")

    def idle(self, lines: Mapping[str, Seen]) -> list[str]:
        """Return the waiting tasks whose starts were claimed by others and that were not cancelled yet."""
        return [
            number
            for number in self._taken
            if number not in self._cancelled
            and (said := lines.get(f"{self.ref}_{number}")) is not None
            and said.phase == "waiting"
        ]

    def note_cancelled(self, numbers: Iterable[str]) -> None:
        """Note that Slurm was told to cancel tasks."""
        self._cancelled.update(numbers)


class Arrays:
    """The arrays of one cluster; those that another daemon submitted are found by their files."""

    def __init__(self, engine: str, folder: Path) -> None:
        self._engine = engine
        self._folder = folder
        self._known: dict[str, Array] = {}

    def make(self, name: str, starts: Sequence[Start]) -> Path:
        """Make the folder of a new array, before its submission: after a crash it says which task is which start."""
        folder = self._folder / name
        (folder / TAKEN).mkdir(mode=0o700, parents=True)
        for number, start in enumerate(starts):
            (folder / str(number)).symlink_to(start.folder)
        keys = {str(number): start.key for number, start in enumerate(starts)}
        (folder / "keys").write_text(json.dumps(keys))
        return folder

    def remove(self, folder: Path) -> None:
        """Remove the folder of an array that Slurm did not accept."""
        shutil.rmtree(folder, ignore_errors=True)

    def accept(self, ref: str, name: str) -> None:
        """Record the id of an array."""
        folder = self._folder / name
        if ref not in self._known or self._known[ref].folder != folder:
            self._known[ref] = Array(ref, folder)
            (folder / "ref").write_text(f"{self._engine} {ref}")

    def keys(self) -> dict[str, dict[str, str]]:
        """Return the keys of the tasks of each array, by its name."""
        found = {}
        for folder in self._folders():
            # A daemon that died before it submitted an array may have left a part of it.
            with contextlib.suppress(OSError, ValueError):
                found[folder.name] = json.loads((folder / "keys").read_text())
        return found

    def of(self, refs: Iterable[str]) -> dict[str, Array]:
        """Return the arrays of these references as they are now, by their ids; remove those that nobody asks about."""
        ids = {ref.partition("_")[0] for ref in refs if "_" in ref}
        self._load(ids - self._known.keys())
        found = {ref: self._known[ref] for ref in ids if ref in self._known}
        now = time.monotonic()
        for array in found.values():
            array.asked_at = now
            array.refresh()
        for ref in [ref for ref, array in self._known.items() if now - array.asked_at > KEEP_S]:
            self.remove(self._known.pop(ref).folder)
        return found

    def _load(self, ids: Collection[str]) -> None:
        if not ids:
            return
        # A cluster that was set up anew counts from 1 again: the newest one is meant.
        for folder in sorted(self._folders(), key=lambda folder: folder.stat().st_mtime):
            with contextlib.suppress(OSError, ValueError):
                engine, ref = (folder / "ref").read_text().split()
                if engine == self._engine and ref in ids:
                    self._known[ref] = Array(ref, folder)

    def _folders(self) -> list[Path]:
        return list(self._folder.iterdir()) if self._folder.is_dir() else []


def expression(ref: str, numbers: Sequence[str]) -> str:
    """Return tasks of an array as Slurm writes them: `12_[1,4-6]`."""
    ordered = sorted(map(int, numbers))
    breaks = [at for at, (one, other) in enumerate(pairwise(ordered), 1) if other != one + 1]
    runs = [ordered[first:end] for first, end in pairwise([0, *breaks, len(ordered)])]
    return f"{ref}_[{','.join(str(run[0]) if len(run) == 1 else f'{run[0]}-{run[-1]}' for run in runs)}]"
