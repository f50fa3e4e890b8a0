"""Take devices that nobody ever took, at the same moment as others do, and print the inodes of their files."""

import json  # noqa: F401  (loaded late by `survey`, when as another user we may not reach the interpreter)
import os
import pwd  # noqa: F401
import sys

from dibs.leases import holders, leases

place, count, number = leases.Folder(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
if os.geteuid() == 0:
    os.setresuid(61000 + number, 61000 + number, 61000 + number)
inodes = []
for index in range(count):
    try:
        for lease in leases.take(place, [f"NEW-{index}"], leases.Note()):
            lease.close()
    except leases.Refused:
        pass
    inodes.append(str(os.stat(holders.file(place, f"NEW-{index}")).st_ino))
print(" ".join(inodes))
