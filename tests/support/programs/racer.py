"""Take random sets of devices many times; prove each time with marker files that nobody else has them."""

import os
import random
import sys

from dibs.leases import device_lease

folder, markers, seed, times = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
place = device_lease.Folder(folder)
chance = random.Random(seed)
print("ready", flush=True)
sys.stdin.readline()
open_before = len(os.listdir("/proc/self/fd"))
granted = 0
for _ in range(times):
    devices = chance.sample(["A", "B", "C"], chance.randint(1, 3))
    try:
        taken = device_lease.take(place, devices, device_lease.Note(f"racer {seed}"))
    except device_lease.Refused as refusal:
        if refusal.device not in devices or len(os.listdir("/proc/self/fd")) != open_before:
            sys.exit("a refused take kept something")
        continue
    granted += 1
    if sorted(lease.device for lease in taken) != sorted(devices):
        sys.exit("took something else")
    # O_EXCL: a second holder would find the file there, and this program would end with an error.
    paths = [os.path.join(markers, device) for device in devices]
    for path in paths:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    for path in paths:
        os.unlink(path)
    for lease in taken:
        lease.close()
print(granted)
