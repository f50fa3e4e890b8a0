"""The process of one task: makes its GPUs the only visible ones, imports the user's code, runs it.

Constructor and `required_env` come first, with the scheduler's own output. If they ask for variables, the rest happens
in a fresh interpreter: some are read only when one starts, others when a library is imported. Without any, the process
continues as it is.
"""

from __future__ import annotations

import os
import pickle
import sys

from dibs_compat.gpu_tasks import gpu_visibility, messages, sources
from dibs_compat.gpu_tasks.sources import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import IO, NoReturn

    from dibs_compat.gpu_tasks.messages import Order, Task


def environ(task: Task, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a task, `required_env` not considered."""
    # The order in which indices are leased, and no window for a figure, unless the user has chosen.
    usual = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "MPLBACKEND": "Agg"}
    return {**usual, **given, gpu_visibility.VISIBLE: task.place.visible, gpu_visibility.WORKER: task.place.name}


def run(order: Order, task: Task) -> None:
    """Do the whole task; what it raises is how it ends."""
    os.environ.update(environ(task, os.environ))
    os.chdir(order.cwd)
    # At the end, where the old tool put it, whatever else is there.
    sys.path.append(order.cwd)
    path = os.path.join(order.temp_folder, f"{task.place.name.replace('/', '_')}_worker.pkl")
    # What the code of the task finds there: the command line by which it can be run again.
    program = os.path.join(os.path.dirname(sys.executable), "start_gpu_task")
    sys.argv = [program, path, order.source.module, order.source.path or "", order.cwd]
    log = os.open(task.log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        with open(task.config, "rb") as file:
            config = sources.load(order.source, file.read())
        made = sources.find(order.source)(config, task.work_dir)
        wanted = _checked(made.required_env())
        pickled = pickle.dumps(made)
        _leave(path, pickled)
    except BaseException:
        _write_to(log)
        raise
    if wanted:
        _start_again(order.source, task, pickled, wanted, log)
    _write_to(log)
    made.main()


def _write_to(log: int) -> None:
    """Let all output go to the log, buffered as it is for a program that was started with it."""
    _flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=False)  # type: ignore[union-attr]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _checked(wanted: Mapping[str, str] | None) -> dict[str, str]:
    for name, value in dict(wanted or {}).items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise TypeError(f"required_env expected texts, got {name!r}: {value!r}")
    return dict(wanted or {})


def _leave(path: str, pickled: bytes) -> None:
    """Leave the task where the old tool did, for people who run it again by hand; whole, and not half of two."""
    own = f"{path}.{os.getpid()}"
    with open(own, "wb") as file:
        file.write(pickled)
    os.rename(own, path)


def _start_again(source: Source, task: Task, pickled: bytes, wanted: dict[str, str], log: int) -> NoReturn:
    """Replace this process by a fresh interpreter with these variables."""
    content = pickle.dumps((source, pickled, sys.argv, log))
    words, fd = messages.fresh("workers", content)
    for number in (fd, log, *task.leases):
        os.set_inheritable(number, True)
    _flush()
    os.execve(words[0], words, {**os.environ, **wanted})


def main(file: IO[bytes]) -> None:
    """Continue a task in a fresh interpreter."""
    source, pickled, sys.argv, log = pickle.load(file)
    file.close()
    _write_to(log)
    sources.load(source, pickled).main()


def start_gpu_task() -> None:
    """Run again what a scheduler left: `start_gpu_task PKL MODULE MODULE_PATH CWD`."""
    if len(sys.argv) != 5:
        sys.exit(f"start_gpu_task: expected PKL MODULE MODULE_PATH CWD, got {len(sys.argv) - 1} words.")
    path, module, module_path, cwd = sys.argv[1:]
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            sys.exit(f"start_gpu_task: expected a file of your own, got {path}, which belongs to somebody else.")
        pickled = file.read()
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.environ[gpu_visibility.WORKER] = "start_gpu_task"
    sys.path.append(cwd)
    source = Source(module, "", module_path or None, module_path or None)
    sources.load(source, pickled).main()
