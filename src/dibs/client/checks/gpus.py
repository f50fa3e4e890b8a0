"""Checks of the GPUs: as this shell sees them, and as the daemon does, whose environment is another one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dibs.client import queries
from dibs.client.answers import Gpus
from dibs.client.checks.findings import OK, PROBLEM, WARNING, Finding, Patient
from dibs.devices import probe
from dibs.leases import prepared_folder
from dibs.model.devices import Inventory
from dibs.system import locks

#: Seconds for the driver.
DRIVER_S = 8.0
#: The driver's library, by the name under which programs load it.
NVML = "libnvidia-ml.so.1"


def gpus(patient: Patient, driver_s: float = DRIVER_S) -> list[Finding]:
    """Check the GPUs as this shell sees them, through a child process, which may hang without harm; then ask the
    daemon, whose environment is another one."""
    seen = probe.Probe(patient.values, first_deadline_s=driver_s).read()
    running = queries.identity(patient.queue)
    if running is None or seen.problem:
        return _own_gpus(patient, seen)
    if running["devices"] != patient.values.devices:
        theirs, ours = running["devices"] or "all", patient.values.devices or "all"
        text = f"the daemon uses these GPUs (setting devices): {theirs}; this shell: {ours}"
        fix = "Jobs get those of the daemon. `dibs daemon restart` lets it use those of this shell."
        return [Finding("gpus", WARNING, text, fix), *_own_gpus(patient, seen)]
    answer: Gpus = patient.queue.get("/v1/gpus")
    if answer["problem"] is None and len(answer["gpus"]) == len(seen.devices):
        return [*_own_gpus(patient, seen), *_idle_leases(answer)]
    count = len(seen.devices)
    text = answer["problem"] or f"the daemon sees {len(answer['gpus']) or 'none'}"
    if not count:
        return [Finding("gpus", PROBLEM, text, "Run nvidia-smi. If the GPUs are gone: dibs config set devices none")]
    return [Finding("gpus", PROBLEM, f"{text}; this shell sees {count}", _how_to_see(patient.environ))]


def _idle_leases(answer: Gpus) -> list[Finding]:
    """Name the leases whose GPUs have not been used for a while."""
    found = []
    for gpu in (gpu for gpu in answer["gpus"] if gpu["is_idle"]):
        who = ", ".join(f"{one['user'] or 'somebody'} (pid {one['pid'] or '?'})" for one in gpu["holders"])
        text = f"GPU {gpu['index']} is leased by {who} and has not been used since {gpu['unused_since']}"
        found.append(Finding("gpus", WARNING, text, "Ask its holder to release it: dibs lease --release."))
    return found


def _how_to_see(environ: Mapping[str, str]) -> str:
    """Return how the daemon, which does not get LD_LIBRARY_PATH, comes to see what this shell sees."""
    folders = environ.get("LD_LIBRARY_PATH", "").split(":")
    found = (Path(folder, NVML) for folder in folders if folder and Path(folder, NVML).exists())
    library = next(found, None)
    if library is None:
        return "dibs daemon restart"
    return f"LD_LIBRARY_PATH does not reach the daemon: dibs config set nvml_library {library} && dibs daemon restart"


def _own_gpus(patient: Patient, seen: Inventory) -> list[Finding]:
    if seen.problem:
        return [Finding("gpus", PROBLEM, seen.problem, "Try nvidia-smi. Jobs without GPUs still run.")]
    unwell = [
        Finding("gpus", WARNING, f"GPU {d.index}: {d.fault}", "No job starts there; see nvidia-smi -q.")
        for d in seen.devices
        if d.fault
    ]
    if seen.restriction:
        unwell.append(Finding("gpus", WARNING, f"restricted: {seen.restriction}", "Unset it to use all GPUs."))
    if not seen.devices:
        text = "none found; jobs without GPUs still run"
        return [*unwell, Finding("gpus", WARNING, text, "To try dibs with pretend GPUs: export DIBS_DEVICES=fake:4")]
    unwell += [
        Finding("gpus", PROBLEM, f"{device}: {prepared_folder.MISSING}", "`sudo dibs machine init` adds it.")
        for device in prepared_folder.missing(locks.Folder(patient.place), seen.ids)
    ]
    names = ", ".join(dict.fromkeys(device.name for device in seen.devices))
    visible = patient.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        text = f"CUDA_VISIBLE_DEVICES={visible} in this shell does not reach jobs: dibs sets it for each"
        unwell.append(Finding("gpus", OK, text))
    return [Finding("gpus", OK, f"{len(seen.devices)}: {names}"), *unwell]
