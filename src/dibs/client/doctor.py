"""`dibs doctor`: runs all checks, each with a deadline, so that a dead disk blocks nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Mapping

from dibs.client.checks import account, gpus, leases, storage
from dibs.client.checks.findings import OK, PROBLEM, Finding, Patient
from dibs.errors import DibsError, UserError
from dibs.system import locks, paths, settings
from dibs.system.settings import Settings
from dibs.version import __version__

#: Seconds for one check; longer than `gpus.DRIVER_S`, the probe's own deadline for the GPUs.
DEADLINE_S = 15.0


def run(environ: Mapping[str, str], but_for: Collection[str] = ()) -> list[Finding]:
    """Run all checks except `but_for`; if the settings or folders are unusable, report only these."""
    found = [python()]
    try:
        values = settings.load(environ)
        home = paths.home(environ)
    except UserError as error:
        return [*found, Finding("settings", PROBLEM, error.message, error.hint or "Correct the file or the variable.")]
    found.append(_sources(values))
    place = str(values.lease_dir) if values.lease_dir else locks.standard_path()
    patient = Patient(environ, home.path, home.note, values, place)
    for name, check in CHECKS.items():
        if name in but_for:
            continue
        found += within(name, lambda check=check: check(patient))  # type: ignore[misc]
    return found


def within(name: str, check: Callable[[], list[Finding]], deadline_s: float = DEADLINE_S) -> list[Finding]:
    """Return the findings of a check; a check that hangs, as on a dead network disk, is itself a finding."""
    found: list[Finding] = []
    failed: list[Exception] = []

    def work() -> None:
        try:
            found.extend(check())
        except Exception as error:  # noqa: BLE001 - handed over to the thread that asked
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(deadline_s)
    if thread.is_alive():
        return [Finding(name, PROBLEM, f"no answer within {deadline_s:g} s", "Is a disk or the driver stuck?")]
    match failed:
        case [DibsError() as error]:
            return [Finding(name, PROBLEM, error.message, error.hint)]
        case [OSError() as error]:
            return [Finding(name, PROBLEM, f"{error.filename or name}: {error.strerror or error}", "")]
        case [error]:
            raise error
    return found


def python() -> Finding:
    """Return the versions of Python and dibs."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("python", OK, f"dibs {__version__} on Python {version} ({sys.executable})")


def _sources(values: Settings) -> Finding:
    changed = [f"{name} ({source})" for name, source in values.sources.items() if source != "default"]
    return Finding("settings", OK, f"set: {', '.join(changed)}" if changed else "all at their defaults")


#: In the order of the report.
CHECKS: dict[str, Callable[[Patient], list[Finding]]] = {
    "interpreter": account.interpreter,
    "gpus": gpus.gpus,
    "state": storage.state,
    "files": storage.files,
    "database": storage.database,
    "use": storage.use,
    "leases": leases.lease_folder,
    "lease disk": leases.lease_disk,
    "limits": account.limits,
    "daemon": account.service,
    "logout": account.logout,
    "reboot": account.reboot,
    "clock": account.clock,
    "cgroup": account.group,
}
