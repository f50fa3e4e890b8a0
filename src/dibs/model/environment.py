"""Build the environment of a job's command from the captured and the given variables.

Pure. Only this module sets the variables that select devices; the submitter's own never reach a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from dibs.errors import UserError
from dibs.model import environment_names, serialization
from dibs.model.devices import DeviceId, Inventory, indices
from dibs.model.environment_names import DEVICE_NAMES as DEVICE_NAMES
from dibs.model.jobs import Job


def capture(environ: Mapping[bytes, bytes], exclude: Iterable[str] = ()) -> bytes:
    """Return the captured environment to store: without variables that dibs sets and those that the config excludes."""
    patterns = tuple(exclude)
    # A job that submits another job must not pass its own job id to it.
    has_ours = environ.get(b"DIBS_JOB_ID", b"") == environ.get(b"SLURM_JOB_ID")

    def is_kept(raw: bytes) -> bool:
        name = raw.decode(errors="surrogateescape")
        if has_ours and name.startswith("SLURM_"):
            return False
        return not environment_names.is_own(name) and not any(fnmatchcase(name, pattern) for pattern in patterns)

    return environment_names.pack({name: value for name, value in environ.items() if is_kept(name)})


def activated(environ: Mapping[bytes, bytes]) -> str | None:
    """Return the name of the active conda or virtual environment."""
    venv = environ.get(b"VIRTUAL_ENV", b"").rstrip(b"/").rpartition(b"/")[2]
    found = venv or environ.get(b"CONDA_DEFAULT_ENV", b"")
    return found.decode(errors="replace") or None


def check_given(name: str) -> None:
    """Refuse a variable that dibs sets: a value given by hand would name devices the job does not hold."""
    if name in DEVICE_NAMES:
        raise UserError(f"-e {name}: dibs sets it to the assigned GPUs.", "Choose GPUs with --gpu-ids or --prefer.")
    if name.startswith("DIBS_"):
        raise UserError(f"-e {name}: names that begin with DIBS_ are set by dibs itself.")
    if not name or "=" in name or "\0" in name:
        raise UserError(f'-e expected NAME=VALUE, got the name "{name}".')


def for_devices(inventory: Inventory, ids: Sequence[DeviceId], visible: str) -> dict[str, str]:
    """Return the variables that select the GPUs of a program; `visible` is uuid or index."""
    numbers = ",".join(str(index) for index in indices(inventory, ids))
    vendors = {inventory.by_id[device].vendor for device in ids if device in inventory.by_id}
    own = {"DIBS_GPU_INDICES": numbers}
    if "intel" in vendors:
        return {"ZE_AFFINITY_MASK": numbers} | own
    # CUDA does not accept an index for a MIG slice.
    is_slice = any(device.startswith("MIG-") for device in ids)
    shown = numbers if visible == "index" and not is_slice else ",".join(ids)
    if "amd" in vendors:
        # Set only this one: the other variables apply after it and would select again among the remaining devices.
        return {"ROCR_VISIBLE_DEVICES": shown} | own
    return {"CUDA_VISIBLE_DEVICES": shown, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} | own


#: Keeps frameworks from allocating all memory of a shared device.
FRUGAL = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def polite(*, is_sharing: bool = False) -> dict[str, str]:
    """Return defaults for every command: unbuffered output, and memory use on shared devices."""
    return {"PYTHONUNBUFFERED": "1"} | (FRUGAL if is_sharing else {})


def meeting(port: int) -> dict[str, str]:
    """Return defaults for a command on devices: where its processes meet. One device is enough for several of them."""
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PET_MASTER_PORT": str(port)}


def for_job(
    job: Job,
    kept: bytes,
    inventory: Inventory,
    *,
    visible: str,
    port: int,
    folder: str,
    grace_s: float = 30.0,
    own: Sequence[tuple[str, str]] = (),
) -> dict[bytes, bytes]:
    """Return the whole environment of a job's command.

    `kept` is the captured environment, `folder` the job's folder, `own` the variables that lead back to this daemon.
    """
    env = _unpacked(kept).copy()
    env.update(_encoded(dict(job.spec.env)))
    forced = {
        **for_devices(inventory, job.allocation, visible),
        "DIBS_JOB_ID": str(job.id),
        "DIBS_JOB_NAME": job.spec.name,
        "DIBS_PROJECT": job.spec.project,
        "DIBS_ATTEMPT": str(job.attempt),
        "DIBS_JOB_DIR": folder,
        "DIBS_CHECKPOINT_DIR": f"{folder}/checkpoint",
        "DIBS_REPORT": report_path(job.attempt, folder),
        "DIBS_PORT": str(port),
        "DIBS_STOP": f"TERM@{grace_s:g}",
        **dict(own),
    }
    if job.spec.warn is not None:
        forced["DIBS_WARN"] = f"{job.spec.warn.signal}@{job.spec.warn.before_s:g}"
    if job.spec.index is not None:
        forced["DIBS_INDEX"] = str(job.spec.index)
    if job.spec.sweep is not None:
        forced |= {
            "DIBS_SWEEP": job.spec.sweep,
            "DIBS_PARAMS": job.spec.params or "{}",
            "DIBS_RUN_DIR": job.spec.folder or folder,
        }
    if job.spec.script is not None and job.spec.argv:
        forced["DIBS_SCRIPT"] = job.spec.argv[0]
    if job.spec.is_slurm:
        forced |= _slurm(job)
    env.update(_encoded(forced))
    defaults = polite(is_sharing=job.spec.request.vram > 0) | (meeting(port) if job.allocation else {})
    for name, value in _encoded(defaults).items():
        env.setdefault(name, value)
    return env


def _encoded(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    """Encode variables all at once, which is much quicker than one by one; raise for a NUL, which none can contain."""
    if not variables:
        return {}
    count = len(variables)
    raw = os_bytes("\0".join([*variables, *variables.values()])).split(b"\0")
    return dict(zip(raw[:count], raw[count:], strict=True))


_unpacked = lru_cache(maxsize=8)(serialization.unpack_environ)


def _slurm(job: Job) -> dict[str, str]:
    """Return the variables that Slurm scripts read.

    The number of tasks is left out: training frameworks would assume a cluster and wait for other nodes.
    """
    seen = {"SLURM_JOB_ID": str(job.id), "SLURM_JOBID": str(job.id), "SLURM_JOB_NAME": job.spec.name}
    if job.spec.request.cpus:
        seen["SLURM_CPUS_PER_TASK"] = str(job.spec.request.cpus)
    if job.spec.index is not None:
        seen |= {"SLURM_ARRAY_JOB_ID": str(job.array_id), "SLURM_ARRAY_TASK_ID": str(job.spec.index)}
    return seen


def let_import(env: dict[bytes, bytes], folder: str) -> None:
    """Let a Python script import modules beside its original file, since it runs from a copy elsewhere."""
    old = env.get(b"PYTHONPATH")
    env[b"PYTHONPATH"] = os_bytes(folder) + (b":" + old if old else b"")


def report_path(attempt: int, folder: str) -> str:
    """Return the path of the report file of an attempt."""
    return f"{folder}/{attempt}/report.jsonl"


def os_bytes(text: str) -> bytes:
    """Encode text as the bytes that a process sees."""
    return text.encode(errors="surrogateescape")
