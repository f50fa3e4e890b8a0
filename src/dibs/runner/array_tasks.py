"""The tasks of an engine's array, in the folder of its links: a task that ends soon carries out further starts.

    ARRAY/N          the folder of the start of task N
    ARRAY/taken/N    made by task A when it carries out the start of task N as its M-th further one: a link to A.M

An engine needs longer to start a task than many jobs run. All starts of an array need the same resources, so a task
that has finished its own start can use its allocation for starts that have not begun. As always, the claim of a start
decides which process runs it. The link tells the daemon, and is made after the claim: whatever dies in between, no
start seems to be carried out by a task that did not claim it.

Only a task that has carried out its own start takes others: the daemon may end one whose start was given up, or was
claimed by another task, at any moment.

Python 3.9.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: The folder of the links that say which task carried out another one's start.
TAKEN = "taken"
#: A large prime: neighbours begin to look at places that are far apart.
STRIDE = 7919


class ArrayTask:
    """One task, which takes starts of other tasks until `reuse_s` after it began."""

    __slots__ = ("_array", "_count", "_number", "_order", "_other", "_others", "_spec", "_until")

    def __init__(self, spec_path: str, reuse_s: float, count: int) -> None:
        folder, self._spec = os.path.split(spec_path)
        self._array, number = os.path.split(folder)
        self._number = int(number)
        self._count = count
        self._until = time.monotonic() + reuse_s
        self._others = self._later()
        #: The task whose start was chosen last, and how many were chosen.
        self._other = self._number
        self._order = 0

    @property
    def is_taken(self) -> bool:
        """Return whether another task carries out, or carried out, the start of this one."""
        return os.path.lexists(f"{self._array}/{TAKEN}/{self._number}")

    def choose(self) -> str | None:
        """Choose another start that seems not to have begun, and return its spec file; None: there is none, or no time.

        The claim of the start says whether that is true.
        """
        claim = self._spec.replace("spec.", "started.", 1)
        for number in self._others:
            if time.monotonic() >= self._until:
                return None
            folder = f"{self._array}/{number}"
            if os.path.lexists(f"{self._array}/{TAKEN}/{number}") or os.path.lexists(f"{folder}/{claim}"):
                continue
            self._other = number
            self._order += 1
            return f"{folder}/{self._spec}"
        return None

    def note_claim(self) -> None:
        """Record that this task has claimed the start that was chosen last."""
        try:
            os.symlink(f"{self._number}.{self._order}", f"{self._array}/{TAKEN}/{self._other}")
        except OSError:
            # The result is in a file of its own, which the daemon reads when the engine gets to that task.
            sys.excepthook(*sys.exc_info())

    def _later(self) -> Iterator[int]:
        """Yield each later task once. Engines begin with the first ones, so those have begun."""
        count = self._count - self._number - 1
        for step in range(count):
            yield self._number + 1 + (self._number * STRIDE - step) % count
