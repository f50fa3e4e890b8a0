"""A thread that reads a slow disk is not taken for one that hangs."""

from __future__ import annotations

import os
import threading

from dibs.daemon import readers


def test_a_thread_that_waits_again_makes_progress() -> None:
    """It takes hardly any processor time between two waits."""
    wake, sleep = os.pipe(), os.pipe()
    told: list[int] = []

    def wait_twice() -> None:
        told.append(threading.get_native_id())
        for _ in range(2):
            os.write(sleep[1], b".")
            os.read(wake[0], 1)

    thread = threading.Thread(target=wait_twice)
    thread.start()
    seen = []
    for _ in range(2):
        os.read(sleep[0], 1)
        while (found := readers.progress(told[0]))[0] != "S":
            pass
        seen.append(found)
        os.write(wake[1], b".")
    thread.join()
    for end in (*wake, *sleep):
        os.close(end)
    first, second = seen
    assert first != second
