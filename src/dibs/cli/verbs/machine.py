"""`dibs machine`: prepare this machine for all users, as root. Without it everything works, but less protected."""

from __future__ import annotations

import os
import sys

from dibs.cli import screen
from dibs.devices import probe
from dibs.errors import NotAllowed, UserError
from dibs.leases import holders, prepared_folder
from dibs.submission import options
from dibs.submission.options import Args, Option
from dibs.system import locks, settings

SUMMARY = "Set up the machine-wide lease folder (root)."
USAGE = ("init [--root DIR]", "status [--root DIR] [--json]", "undo [--root DIR]")
ROOT = Option(("--root",), "Use this root folder instead of /, for preparing an image.", options.TEXT, "DIR")
OPTIONS: tuple[Option[object], ...] = (ROOT, options.JSON)
EXAMPLES = ("sudo dibs machine init", "dibs machine status", "sudo dibs machine undo")

#: The exit code of `status` if something is missing.
INCOMPLETE = 1


def main(args: Args) -> int:
    """Run the action that follows `machine`."""
    word = options.action_of(args, "machine", ACTIONS)
    if args.has(options.JSON) and word != "status":
        raise UserError(f"machine {word} has no option --json.")
    root = args.get(ROOT)
    return ACTIONS[word](args, "" if root is None else os.path.abspath(root))


def init(args: Args, root: str) -> int:
    """Make the folder and the files of all GPUs, or complete them."""
    _refuse_users("init")
    devices = _devices()
    new = prepared_folder.prepare(root, devices)
    path = root + prepared_folder.FOLDER
    print(f"{path} is prepared for {len(prepared_folder.prepared_devices(path))} GPUs, {len(new)} of them new")
    print(f"{root}{prepared_folder.TMPFILES} recreates it at boot")
    screen.say("running daemons use it after `dibs daemon restart`; running jobs continue.")
    return 0


def undo(args: Args, root: str) -> int:
    """Remove what `init` made."""
    _refuse_users("undo")
    print("removed; leases are in /tmp again" if prepared_folder.undo(root) else "not prepared")
    return 0


def status(args: Args, root: str) -> int:
    """Print whether the machine is prepared for all GPUs; the exit code says it too."""
    path = root + prepared_folder.FOLDER
    is_prepared = locks.is_prepared(path)
    at_boot = (prepared_folder.read_tmpfiles(root) or "").startswith(prepared_folder.MARK)
    ready = prepared_folder.prepared_devices(path) if is_prepared else []
    missing = [device for device in _devices() if device not in ready]
    if args.has(options.JSON):
        found = {"path": path, "prepared": is_prepared, "at_boot": at_boot, "gpus": ready, "missing": missing}
        screen.print_json(found)
    else:
        _print_status(path, is_prepared, at_boot, ready, missing)
    return 0 if is_prepared and at_boot and not missing else INCOMPLETE


def _print_status(path: str, is_prepared: bool, at_boot: bool, ready: list[str], missing: list[str]) -> None:
    if not is_prepared:
        print("not prepared; sudo dibs machine init protects the lease files from other users")
        return
    print(f"{path} is prepared for {len(ready)} GPUs")
    if missing:
        print(f"{prepared_folder.MISSING}: {', '.join(missing)}; sudo dibs machine init adds it")
    if not at_boot:
        print("it will be gone after a reboot; sudo dibs machine init writes a file for systemd-tmpfiles")


def _refuse_users(word: str) -> None:
    if os.geteuid() != 0:
        raise NotAllowed(f"machine {word} needs root.", f"Type: sudo dibs machine {word}")


def _devices() -> list[str]:
    """Return the GPUs that the driver shows; say so if some are hidden from us."""
    found = probe.read(settings.load(os.environ))
    for text in (found.problem, found.restriction and f"restricted: {found.restriction}"):
        if text:
            print(f"dibs: {screen.clean(text)}", file=sys.stderr)
    # Pretend GPUs need no prepared files, but may have them.
    return [device for device in found.ids if device.startswith("FAKE-") or not holders.is_made_up(device)]


ACTIONS = {"init": init, "status": status, "undo": undo}
