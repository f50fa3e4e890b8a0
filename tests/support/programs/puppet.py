"""A process that holds leases and tickets as commanded on stdin, one answer per line. First argument: the folder."""

import fcntl
import json  # noqa: F401  (what is loaded late must be loaded before `uid`: afterwards we may not reach the interpreter)
import os
import pwd  # noqa: F401
import resource
import signal
import socket
import subprocess
import sys
from typing import Any

from dibs.leases import blockers, device_lease, own_ticket, tickets, waiters

place = device_lease.Folder(sys.argv[1])
held: list[device_lease.Lease] = []
own: list[own_ticket.OwnTicket] = []
#: What keeps others away: files and sockets.
kept: list[Any] = []
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def take(devices: str, job: str = "") -> str:
    held.extend(device_lease.take(place, devices.split(","), device_lease.Note(job, tool="puppet")))
    return "took"


def broken(device: str) -> str:
    """Return why a device cannot be taken."""
    try:
        device_lease.take(place, [device], device_lease.Note())
    except device_lease.Broken as error:
        return error.line()
    return "took"


def share(device: str, mib: str, capacity_mib: str, max_slots: str, job: str = "") -> str:
    held.append(
        device_lease.take_shared(place, device, int(mib), int(capacity_mib), int(max_slots), device_lease.Note(job))
    )
    return "took"


def release() -> str:
    while held:
        held.pop().close()
    return "released"


def spawn() -> str:
    fds = [fd for lease in held for fd in lease.fds()]
    child = subprocess.Popen(["sleep", "1000"], pass_fds=fds, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return str(child.pid)


def ticket(count: str, devices: str) -> str:
    own.append(own_ticket.queue_up(place, int(count), devices.split(",")))
    return own[-1].ticket.name


def renew() -> str:
    own[-1].renew()
    return own[-1].ticket.name


def update(count: str, devices: str) -> str:
    own[-1].update(int(count), devices.split(","))
    return own[-1].ticket.name


def drop() -> str:
    own.pop().close()
    return "dropped"


def acquire(count: str, devices: str, job: str = "") -> str:
    def waits(_: tickets.Ticket) -> None:
        print("waits", flush=True)

    held.extend(waiters.acquire(place, int(count), devices.split(","), device_lease.Note(job), on_wait=waits))
    return "took " + ",".join(lease.device for lease in held)


def lock(path: str) -> str:
    file = open(path)  # noqa: SIM115 - held until the end
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    kept.append(file)
    return "locked"


def unlock() -> str:
    while kept:
        kept.pop().close()
    return "unlocked"


def bind(name: str) -> str:
    """Bind an abstract name without listening; `%0A` in it is a line break."""
    made = socket.socket(socket.AF_UNIX)
    made.bind("\0" + name.replace("%0A", "\n").replace("%20", " "))
    kept.append(made)
    return str(os.fstat(made.fileno()).st_ino)


def listen(name: str) -> str:
    inode = bind(name)
    kept[-1].listen()
    return inode


def fill(name: str) -> str:
    """Connect to a socket until its backlog is full."""
    while True:
        made = socket.socket(socket.AF_UNIX)
        made.setblocking(False)
        try:
            made.connect("\0" + name)
        except BlockingIOError:
            made.close()
            return "full"
        kept.append(made)


def tickets_of(count: str, devices: str) -> str:
    own.extend(own_ticket.queue_up(place, 1, devices.split(",")) for _ in range(int(count)))
    return "queued"


def fork() -> str:
    """Leave a child that has everything open that we have."""
    child = os.fork()
    while child == 0:
        signal.pause()
    return str(child)


def blocked(device: str) -> str:
    """Return who blocks a device as this user sees it."""
    found = blockers.find(place, [device]).get(device)
    return "free" if found is None else f"{found.uid} {found.pid} {found.how}"


def uid(number: str) -> str:
    os.setresuid(int(number), int(number), int(number))
    return "changed"


ORDERS = {
    order.__name__: order
    for order in (
        take,
        share,
        release,
        spawn,
        ticket,
        renew,
        update,
        drop,
        acquire,
        broken,
        fork,
        blocked,
        uid,
        lock,
        unlock,
        bind,
        listen,
        fill,
        tickets_of,
    )
}

for line in sys.stdin:
    name, *words = line.split()
    try:
        print(ORDERS[name](*words), flush=True)
    except device_lease.Refused as refusal:
        print("refused", refusal.device, refusal.why, flush=True)
