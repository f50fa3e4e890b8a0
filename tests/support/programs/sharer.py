"""Share one device many times, or take it exclusively; prove with marker files that its memory is never exceeded."""

import os
import random
import sys

from dibs.leases import device_lease

folder, markers, seed, times, capacity_mib = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), 1000
place = device_lease.Folder(folder)
chance = random.Random(seed)
print("ready", flush=True)
sys.stdin.readline()
granted = 0
for turn in range(times):
    mib = chance.choice((capacity_mib, *[chance.randint(100, 600)] * 4))
    # An exclusive holder leaves nothing to others.
    share = device_lease.Share(mib, {"A": capacity_mib}, 4) if mib < capacity_mib else None
    try:
        (lease,) = device_lease.take(place, ["A"], device_lease.Note(f"sharer {seed}"), share)
    except device_lease.Refused:
        continue
    granted += 1
    path = os.path.join(markers, f"{seed}-{turn}-{mib}")
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    shown = sum(int(name.rsplit("-")[-1]) for name in os.listdir(markers))
    if shown > capacity_mib:
        sys.exit(f"{shown} MiB of {capacity_mib} in use")
    os.unlink(path)
    lease.close()
print(granted)
