"""The spec of a start, as far as it is the same on every engine: command, environment, folders, limits."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from dibs.engines.job_files import JobFiles
from dibs.model import environment, scripts
from dibs.model.devices import Inventory
from dibs.model.jobs import Job
from dibs.runner import records
from dibs.store import call_files
from dibs.system import commands
from dibs.system.settings import Settings

#: A search path without programs: what another machine has is not known here, so its shell looks.
NOWHERE = "/nonexistent"


def build(
    job: Job,
    captured: bytes,
    script: bytes | None,
    files: JobFiles,
    settings: Settings,
    inventory: Inventory,
    folder: str,
    *,
    port: int = 0,
    own: Sequence[tuple[str, str]] = (),
) -> records.Spec:
    """Return a spec without devices; `folder` is that of the attempt, `own` the variables that lead to the queue.

    On another machine programs are not looked up here, and a port is drawn there (0).
    """
    spec, home = job.spec, files.folder(job)
    env = environment.for_job(
        job,
        captured,
        inventory,
        visible=spec.visible or settings.visible,
        port=port,
        folder=home,
        grace_s=settings.grace,
        own=own,
    )
    if script is not None and spec.argv is not None:
        argv = _script_words(script, spec.argv, env, folder, settings.shell)
    else:
        path = env.get(b"PATH", os.defpath.encode()).decode(errors="surrogateescape")
        words = spec.argv and call_files.current(spec.argv)
        argv = commands.words(spec.command, words, settings.shell, path if job.is_local else NOWHERE, spec.cwd)
    return records.Spec(
        job=job.id,
        attempt=job.attempt,
        start=job.start,
        folder=folder,
        argv=tuple(environment.os_bytes(word) for word in argv),
        env=tuple(map(b"=".join, env.items())),
        cwd=environment.os_bytes(spec.cwd),
        output=environment.os_bytes(files.log(job)),
        output_mode=None if spec.output is None else 0o666 & ~spec.umask,
        stderr=None if spec.stderr is None else environment.os_bytes(files.stderr(job) or ""),
        umask=spec.umask,
        folders=(environment.os_bytes(f"{home}/checkpoint"),),
        run_folder=None if spec.folder is None else environment.os_bytes(spec.folder),
        latest=None if spec.output is not None else environment.os_bytes(f"{home}/log"),
        note_job=str(job.id),
        time_limit_s=spec.time_limit_s,
        grace_s=settings.grace,
        wait_tree=spec.wait_tree,
        warn_signal=int(signal.Signals[f"SIG{spec.warn.signal}"]) if spec.warn else 0,
        warn_s=spec.warn.before_s if spec.warn else 0.0,
    )


def _script_words(
    script: bytes, argv: Sequence[str], env: dict[bytes, bytes], folder: str, shell: str
) -> tuple[str, ...]:
    """Write the text of a script into the attempt's folder; return the command that runs it.

    The script has its own subfolder, because it may have any name. The command names the interpreter, as the kernel
    would, so the file needs neither execute permission nor a disk that allows execution.
    """
    origin, *args = argv
    copy = f"{folder}/script/{os.path.basename(origin)}"
    os.makedirs(os.path.dirname(copy), mode=0o700, exist_ok=True)
    fd = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        file.write(script)
    words = scripts.interpreter(script, shell)
    if scripts.is_python(words):
        environment.let_import(env, os.path.dirname(origin))
    return (*words, copy, *args)


def own_names(files: JobFiles) -> list[tuple[str, str]]:
    """Return the variables by which `dibs` inside a job finds its queue."""
    return [("DIBS_HOME", str(files.home)), ("DIBS_PYTHON", sys.executable)]
