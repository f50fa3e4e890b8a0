"""A process on a string: holds leases and tickets as told on stdin, one answer a line. First argument: the folder."""

import json  # noqa: F401  (what is loaded late must be loaded before `uid`: afterwards we may not reach the interpreter)
import os
import pwd  # noqa: F401
import subprocess
import sys

from dibs.leases import device_lease, tickets, waiters

place = device_lease.Folder(sys.argv[1])
held: list[device_lease.Lease] = []
own: list[tickets.OwnTicket] = []


def take(devices: str, job: str = "") -> str:
    held.extend(device_lease.take(place, devices.split(","), device_lease.Note(job, tool="puppet")))
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
    own.append(tickets.queue_up(place, int(count), devices.split(","), "puppet"))
    return own[-1].ticket.name


def renew() -> str:
    own[-1].renew()
    return own[-1].ticket.name


def drop() -> str:
    own.pop().close()
    return "dropped"


def acquire(count: str, devices: str, job: str = "") -> str:
    def waits(_: tickets.Ticket) -> None:
        print("waits", flush=True)

    held.extend(waiters.acquire(place, int(count), devices.split(","), device_lease.Note(job), on_wait=waits))
    return "took " + ",".join(lease.device for lease in held)


def uid(number: str) -> str:
    os.setresuid(int(number), int(number), int(number))
    return "changed"


ORDERS = {order.__name__: order for order in (take, share, release, spawn, ticket, renew, drop, acquire, uid)}

for line in sys.stdin:
    name, *words = line.split()
    try:
        print(ORDERS[name](*words), flush=True)
    except device_lease.Refused as refusal:
        print("refused", refusal.device, refusal.why, flush=True)
