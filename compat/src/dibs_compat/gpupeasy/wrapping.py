"""A program: lease texts that name no device, say which devices the command has, and become the command.

`wrapping TEXT [KEY...] -- COMMAND...`. The command inherits the leases, so they last as long as any of its processes.
"""

from __future__ import annotations

import os
import sys

from dibs.leases import device_lease, waiters


def main() -> int:
    """Take the leases and become the command; a shell's exit codes if it cannot be started."""
    front = sys.argv[1 : sys.argv.index("--")]
    argv = sys.argv[sys.argv.index("--") + 1 :]
    text, keys = front[0], front[1:]
    note = device_lease.own_note(os.environ.get("DIBS_JOB_ID", "gpupeasy"))
    for fd in device_lease.duplicate_fds(waiters.acquire(device_lease.folder(), len(keys), keys, note) if keys else ()):
        os.set_inheritable(fd, True)
    os.environ["CUDA_VISIBLE_DEVICES"] = text
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"gpupeasy: cannot run {argv[0]!r}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main())
