"""GPUs are hidden from the scheduler's own process, so that a library imported there cannot occupy any.

What was visible before is kept in the environment: a process that is started meanwhile can show it again, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, MutableMapping

VISIBLE = "CUDA_VISIBLE_DEVICES"

#: Says that this process, or the one that started it, is a task.
WORKER = "DIBS_GPU_TASK"

#: What was visible before we hid it: `=` and the value, or nothing if there was none.
HIDDEN = "DIBS_GPU_TASK_HIDDEN"

#: The class by its name, as a script has to write it.
SCHEDULER = b"GPUTaskScheduler"

#: Opened by CUDA as soon as it is used, and not by those who merely look at GPUs.
CUDA_FILES = frozenset(("/dev/nvidia-uvm", "/dev/kfd"))


def hide(environ: MutableMapping[str, str], is_up: bool) -> None:
    """Let nothing be visible, unless this is a task, or CUDA is up and would not notice."""
    if is_up or WORKER in environ or HIDDEN in environ:
        return
    environ[HIDDEN] = f"={environ[VISIBLE]}" if VISIBLE in environ else ""
    environ[VISIBLE] = ""


def show(environ: MutableMapping[str, str]) -> None:
    """Undo `hide`, unless the variable was changed since."""
    before = environ.pop(HIDDEN, None)
    if before is None or environ.get(VISIBLE) != "":
        return
    if before:
        environ[VISIBLE] = before[1:]
    else:
        del environ[VISIBLE]


def is_scheduler_script() -> bool:
    """Tell whether the script that runs here names the scheduler; one that only reads results needs its GPUs."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    try:
        with open(path or os.devnull, "rb") as file:
            return SCHEDULER in file.read()
    except OSError:
        # It is in an archive, or gone: then the import of the scheduler itself has to do.
        return False


def is_cuda_up() -> bool:
    """Tell whether this process uses GPUs already."""
    torch = sys.modules.get("torch")
    return uses_cuda(_open_files()) or (torch is not None and bool(torch.cuda.is_initialized()))


def uses_cuda(open_files: Iterable[str]) -> bool:
    """Tell from the files that a process has open whether it uses GPUs."""
    return not CUDA_FILES.isdisjoint(open_files)


def _open_files() -> Iterable[str]:
    for name in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            # The one that was open for listing the others.
            continue
