"""`dibs.lease`: GPUs for this process and its children, without a daemon.

It waits in the same machine-wide line as jobs do. While leases are held, the variables of visible devices name the GPUs
of all of them. A process that has initialized CUDA cannot change its devices: then `acquire` raises `Conflict`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Self, Unpack

from dibs.errors import Busy, Conflict, TimedOut, UserError
from dibs.foreground import lease_request
from dibs.leases import device_lease, waiters
from dibs.python_api import jobs, keywords, process_devices, signatures
from dibs.python_api.keywords import DeviceOptions
from dibs.submission import job_options
from dibs.system import settings

if TYPE_CHECKING:
    from dibs.leases.device_lease import Lease as OneLease


#: The options of a lease.
OPTIONS = tuple(
    option for option in job_options.OPTIONS if keywords.name(option) in {"gpus", *DeviceOptions.__annotations__}
)


class lease(process_devices.LeaseContext):
    """GPUs held by this process: a context manager (also `async with`), a decorator, or `acquire` and `release`.

    `gpus` and the keywords of `keywords.DeviceOptions` are options of `dibs lease`. It waits in the machine-wide line
    without limit, at most `timeout` seconds (then `TimedOut`), or with `blocking=False` not at all (then `Busy`). After
    `time` ("8h") the GPUs are released; no process is stopped. Forked children keep the GPUs until they exit; other
    child processes keep them only with `pass_fds=.fds`.

    >>> with dibs.lease(gpus=2, timeout=600) as gpus:
    ...     len(gpus.indices)
    2
    """

    @signatures.describe(OPTIONS, DeviceOptions)
    def __init__(
        self,
        gpus: int | str | None = None,
        *,
        timeout: float | None = None,
        blocking: bool = True,
        **options: Unpack[DeviceOptions],
    ) -> None:
        """Describe the GPUs; `acquire`, `with` or a call takes them."""
        given: dict[str, object] = {"gpus": gpus, **options}
        self._args = keywords.read(given, OPTIONS)
        self._given = given
        self._timeout = _check_timeout(timeout, blocking)
        self._held: list[OneLease] = []
        self._timer: threading.Timer | None = None
        #: The GPUs as the variables name them, and their `nvidia-smi` indices; empty while none are held.
        self.ids: list[str] = []
        self.indices: list[int] = []
        #: Variables that name only these GPUs, for a child process.
        self.environ: dict[str, str] = {}

    @property
    def is_held(self) -> bool:
        """Return whether the GPUs are held."""
        return bool(self._held)

    @property
    def fds(self) -> tuple[int, ...]:
        """Return the lock descriptors: with `subprocess.Popen(..., pass_fds=gpus.fds)` the child holds the GPUs too."""
        return tuple(fd for one in self._held for fd in one.fds())

    def acquire(self) -> Self:
        """Wait for the GPUs, lease them, and make them visible to this process."""
        return self._acquire(None)

    def _acquire(self, wake_fd: int | None) -> Self:
        if self._held:
            raise Conflict(f"this lease already holds GPU {_join(self.indices)}.", "Create another lease.")
        process_devices.refuse_after_cuda_use()
        with keywords.keyword_errors(OPTIONS):
            values = settings.load(os.environ)
            inventory = lease_request.inventory_now(values)
            request = lease_request.request(self._args, inventory, values.rules)
            limit_s = lease_request.longest_s(self._args.get(job_options.TIME), values.rules)
            visible = self._args.get(job_options.VISIBLE) or values.visible
            needed = lease_request.LeaseRequest(request, inventory, values, visible, self._timeout, limit_s)
            try:
                held = lease_request.acquire(needed, f"python {os.getpid()}", wake_fd, jobs.note)
            except Busy as error:
                if not self._timeout:
                    raise
                raise TimedOut(error.message, error.hint) from None
        ids = needed.ordered([one.device for one in held])
        self.environ = needed.environ(ids)
        self.ids, self.indices = [*ids], [int(number) for number in self.environ["DIBS_GPU_INDICES"].split(",")]
        self._held = held
        try:
            # Check again: another thread may have initialized CUDA while we waited.
            process_devices.refuse_after_cuda_use()
            process_devices.ENVIRONMENT.add(self)
        except BaseException:
            self.release()
            raise
        if limit_s is not None:
            self._timer = threading.Timer(limit_s, self._expire, [held])
            # Must not keep the program from exiting.
            self._timer.daemon = True
            self._timer.start()
        return self

    def _expire(self, held: list[OneLease]) -> None:
        """Release at the time limit, unless these leases were already replaced by later ones."""
        if self._held is held:
            jobs.note(f"lease time limit reached: GPU {_join(self.indices)} released. No process was stopped.")
            self.release()

    def release(self) -> None:
        """Release the GPUs; may be called twice. Forked children keep them until they exit."""
        held: list[OneLease] = []
        with suppress(IndexError):
            # `pop` is atomic: the timer may release at the same time, and each lease must be closed once.
            while True:
                held.append(self._held.pop())
        if self._timer is not None:
            self._timer.cancel()
        if held and (why := process_devices.cuda_use()):
            jobs.note(f"GPU {_join(self.indices)} released, but {why}: they appear in use until it exits.")
        process_devices.ENVIRONMENT.remove(self)
        device_lease.release(device_lease.folder(), held)
        self.ids, self.indices, self.environ = [], [], {}

    async def __aenter__(self) -> Self:
        """Wait without blocking the event loop; a cancelled task leaves the line."""
        wake = os.eventfd(0, os.EFD_CLOEXEC)
        waiter = asyncio.ensure_future(asyncio.to_thread(self._acquire, wake))
        try:
            await asyncio.shield(waiter)
        except asyncio.CancelledError:
            os.eventfd_write(wake, 1)
            with suppress(waiters.Interrupted):
                await waiter
            self.release()
            raise
        finally:
            os.close(wake)
        return self

    def _copy(self) -> Self:
        """Return a new lease with the same options."""
        fresh = type(self)()
        fresh._args, fresh._given, fresh._timeout = self._args, self._given, self._timeout
        return fresh

    def __repr__(self) -> str:
        asked = ", ".join(f"{name}={value!r}" for name, value in self._given.items() if value is not None)
        return f"<dibs.lease({asked}){f' of GPU {_join(self.indices)}' if self._held else ''}>"


def _check_timeout(timeout: float | None, blocking: bool) -> float | None:
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout < 0):
        raise UserError(f"timeout expected seconds from 0 up, got {timeout!r}.")
    if not isinstance(blocking, bool):
        raise UserError(f"blocking expected True or False, got {blocking!r}.")
    if timeout is not None and not blocking:
        raise UserError("timeout has no effect with blocking=False.", "Remove one of them.")
    return timeout if blocking else 0


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in numbers)
