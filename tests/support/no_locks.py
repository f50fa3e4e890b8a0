"""Run a program on a machine whose file locks do not work: `no_locks.py ERRNO COMMAND...`.

ENOLCK is what a network file system without a lock service answers. With 0 every lock seems to be ours at once, as
where locks are kept to one machine. The kernel answers flock(2), and the locks of fcntl(2), by a filter of seccomp.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys

#: Numbers of flock and fcntl.
SYSCALLS = {"x86_64": (73, 72), "aarch64": (32, 25)}
#: F_SETLK, F_SETLKW, and those of open file descriptions.
LOCKS = (fcntl.F_SETLK, fcntl.F_SETLKW, 37, 38)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
LOAD, IS_EQUAL, RETURN = 0x20, 0x15, 0x06
#: Where the filter finds the number of a call and its second argument.
NUMBER_AT, SECOND_AT = 0, 24


def program(flock: int, fcntl_: int, error: int) -> bytes:
    """Return the filter, as instructions of BPF."""
    refuse = (RETURN, 0, 0, ERRNO | error)
    allow = (RETURN, 0, 0, ALLOW)
    words = [
        (LOAD, 0, 0, NUMBER_AT),
        (IS_EQUAL, 0, 1, flock),
        refuse,
        (IS_EQUAL, 1, 0, fcntl_),
        allow,
        (LOAD, 0, 0, SECOND_AT),
        *(one for lock in LOCKS for one in ((IS_EQUAL, 0, 1, lock), refuse)),
        allow,
    ]
    return b"".join(struct.pack("=HBBI", *word) for word in words)


def main() -> None:
    """Install the filter, and become the program."""
    error, *command = sys.argv[1:]
    code = program(*SYSCALLS[os.uname().machine], int(error))
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code)
    head = struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(buffer))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, MODE_FILTER, head, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
