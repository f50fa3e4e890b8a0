"""`dibs.lease`: GPUs for this very process, its threads and what it starts. No daemon is needed.

The line and the leases are those of every door. While leases are held, the variables that name visible devices name the
GPUs of all of them; a process that has started CUDA cannot be given others, and is told so.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from dibs.errors import Busy, Conflict, TimedOut, UserError
from dibs.foreground import lease_request
from dibs.leases import waiters
from dibs.model import environment
from dibs.python_api import jobs, keywords
from dibs.submission import job_options
from dibs.system import settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.leases.device_lease import Lease as OneLease

P = ParamSpec("P")
T = TypeVar("T")

#: What a lease may ask for.
OPTIONS = (
    job_options.GPUS, job_options.GPU_IDS, job_options.PREFER, job_options.GPU_TYPE, job_options.VRAM,
    job_options.IGNORE_FOREIGN, job_options.VISIBLE, job_options.TIME,
)  # fmt: skip
#: Variables with a list of devices.
LISTS = ("DIBS_GPU_INDICES", *environment.DEVICE_NAMES)
#: Files that a process has open once CUDA or ROCm has started in it; those who only look at GPUs (NVML) do not.
STARTED = ("/dev/nvidia-uvm", "/dev/kfd")


class lease:
    """GPUs held by this process: a context manager (also `async with`), a decorator, or `acquire` and `release`.

    `gpus`, `gpu_ids`, `prefer`, `gpu_type`, `vram`, `ignore_foreign` and `visible` are those of `dibs lease`. It waits
    in the line of the machine: as long as it takes, at most `timeout` seconds (then `TimedOut`), or with
    `blocking=False` not at all (then `Busy`). After `time` ("8h") the GPUs are given back; nothing is stopped. Forked
    children keep the GPUs for as long as they live; programs that are started do so only with `pass_fds=.fds`.
    """

    def __init__(
        self,
        gpus: int | str | None = None,
        *,
        gpu_ids: int | str | Sequence[int | str] | None = None,
        prefer: int | str | Sequence[int | str] | None = None,
        gpu_type: str | None = None,
        vram: str | None = None,
        ignore_foreign: bool | None = None,
        visible: str | None = None,
        time: str | timedelta | None = None,
        timeout: float | None = None,
        blocking: bool = True,
    ) -> None:
        told: dict[str, object] = {"gpus": gpus, "gpu_ids": gpu_ids, "prefer": prefer, "gpu_type": gpu_type}
        told |= {"vram": vram, "ignore_foreign": ignore_foreign, "visible": visible, "time": time}
        self._args = keywords.read(told, OPTIONS)
        self._told = told
        self._timeout = _checked(timeout, blocking)
        self._held: list[OneLease] = []
        self._timer: threading.Timer | None = None
        #: The GPUs as programs are told of them, and as `nvidia-smi` counts them; empty while none are held.
        self.ids: list[str] = []
        self.indices: list[int] = []
        #: The variables that name these GPUs alone, for a program that is to be started.
        self.environ: dict[str, str] = {}

    @property
    def is_held(self) -> bool:
        """Tell whether the GPUs are ours now."""
        return bool(self._held)

    @property
    def fds(self) -> tuple[int, ...]:
        """Return what keeps the GPUs: with `subprocess.Popen(..., pass_fds=gpus.fds)` the child keeps them too."""
        return tuple(fd for one in self._held for fd in one.fds())

    def acquire(self) -> Self:
        """Wait for the GPUs, take them, and make them the visible ones of this process."""
        return self._acquire(None)

    def _acquire(self, wake_fd: int | None) -> Self:
        if self._held:
            raise Conflict(f"this lease has GPU {_listed(self.indices)} already.", "Make another one: dibs.lease(...).")
        _refuse_if_started()
        with keywords.spoken(OPTIONS):
            values = settings.load(os.environ)
            inventory = lease_request.inventory_now(values)
            request = lease_request.request(self._args, inventory)
            visible = self._args.get(job_options.VISIBLE) or values.visible
            wanted = lease_request.Wanted(request, inventory, values, visible, self._timeout)
            try:
                held = lease_request.acquire(wanted, f"python {os.getpid()}", wake_fd, jobs.note)
            except Busy as error:
                if not self._timeout:
                    raise
                raise TimedOut(error.message, error.hint) from None
        ids = wanted.ordered([one.device for one in held])
        self.environ = wanted.environ(ids)
        self.ids, self.indices = [*ids], [int(number) for number in self.environ["DIBS_GPU_INDICES"].split(",")]
        self._held = held
        try:
            # Looked at again: it may have been started while we waited, on GPUs that are not ours.
            _refuse_if_started()
            _shown.add(self)
        except BaseException:
            self.release()
            raise
        if (limit_s := self._args.get(job_options.TIME)) is not None:
            self._timer = threading.Timer(limit_s, self._expire, [held])
            # It keeps no program from ending.
            self._timer.daemon = True
            self._timer.start()
        return self

    def _expire(self, held: list[OneLease]) -> None:
        """Give back what has been held for as long as it may; what came after it has a time of its own."""
        if self._held is held:
            jobs.note(f"the time of a lease is over: GPU {_listed(self.indices)} given back. Nothing was stopped.")
            self.release()

    def release(self) -> None:
        """Give the GPUs back; twice is harmless. Forked children that still live keep them until they end."""
        held: list[OneLease] = []
        with suppress(IndexError):
            # One by one, because the end of the time may come just now, and nobody may close what another has closed.
            while True:
                held.append(self._held.pop())
        if self._timer is not None:
            self._timer.cancel()
        if held and (why := started()):
            jobs.note(f"GPU {_listed(self.indices)} given back, but {why}: others will see them in use until it ends.")
        _shown.remove(self)
        for one in held:
            one.close()
        self.ids, self.indices, self.environ = [], [], {}

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    async def __aenter__(self) -> Self:
        """Wait without holding up the event loop; who is cancelled meanwhile leaves the line."""
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function with GPUs of its own for each call; one that is `async` waits as such."""
        if asyncio.iscoroutinefunction(function):
            return self._around_coroutine(function)  # type: ignore[return-value]

        @functools.wraps(function)
        def leased(*args: P.args, **kwargs: P.kwargs) -> T:
            with self._again():
                return function(*args, **kwargs)

        return leased

    def _around_coroutine(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        @functools.wraps(function)
        async def leased(*args: P.args, **kwargs: P.kwargs) -> T:
            async with self._again():
                return await function(*args, **kwargs)

        return leased

    def _again(self) -> lease:
        """Return another lease that asks for the same."""
        fresh = lease()
        fresh._args, fresh._told, fresh._timeout = self._args, self._told, self._timeout
        return fresh

    def __repr__(self) -> str:
        asked = ", ".join(f"{name}={value!r}" for name, value in self._told.items() if value is not None)
        return f"<dibs.lease({asked}){f' of GPU {_listed(self.indices)}' if self._held else ''}>"


def _checked(timeout: float | None, blocking: bool) -> float | None:
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout < 0):
        raise UserError(f"timeout expected seconds from 0 up, got {timeout!r}.")
    if not isinstance(blocking, bool):
        raise UserError(f"blocking expected True or False, got {blocking!r}.")
    if timeout is not None and not blocking:
        raise UserError("timeout means nothing with blocking=False.", "Leave one of them out.")
    return timeout if blocking else 0


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in numbers)


# -- whether this process can still be given devices ----------------------------------------------------------------


def started() -> str | None:
    """Say by what CUDA (or ROCm) was started in this process; None if it was not.

    Without importing anything: torch tells if it is loaded, and who has started CUDA in any other way has the driver's
    memory file open.
    """
    torch = sys.modules.get("torch")
    is_initialized = getattr(getattr(torch, "cuda", None), "is_initialized", None)
    return why_started(bool(is_initialized and is_initialized()), _open_files())


def why_started(is_torch_up: bool, opened: Iterable[str]) -> str | None:
    """Say why devices can no longer be chosen, from what torch says and from the files that are open."""
    if is_torch_up:
        return "torch has started CUDA in this process"
    found = next((path for path in opened if path in STARTED), None)
    return f"this process has {found} open, as CUDA or ROCm does once it is started" if found else None


def _open_files() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        # It may be closed by another thread just now, and the one of the listing is closed already.
        with suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{name}")


def _refuse_if_started() -> None:
    if why := started():
        raise Conflict(
            f"the GPUs of this process can no longer be chosen: {why}.",
            "Lease before the first use of a GPU, or start a new process for it.",
        )


# -- the variables of this process ------------------------------------------------------------------------------------


class _Shown:
    """What the environment of this process says about devices: the GPUs of all leases that it holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: list[lease] = []
        #: As it was before the first of them; None: not set.
        self._before: dict[str, str | None] = {}
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        # Another thread may have had it when this process was forked off.
        self._lock = threading.Lock()

    def add(self, new: lease) -> None:
        with self._changing():
            self._leases.append(new)

    def remove(self, old: lease) -> None:
        with self._changing():
            self._leases = [each for each in self._leases if each is not old]

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            if not self._leases:
                self._before = {}
            yield
            shown = self._joined()
            self._before = {name: os.environ.get(name) for name in shown} | self._before
            for name, value in {**self._before, **shown}.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def _joined(self) -> dict[str, str]:
        """Return the variables for all devices that are held, in the order in which they came."""
        found: dict[str, str] = {}
        for name, value in (pair for each in self._leases for pair in each.environ.items()):
            if name in found and name in LISTS:
                # Two leases may share a device; it is one all the same.
                found[name] = ",".join(dict.fromkeys([*found[name].split(","), *value.split(",")]))
            else:
                found[name] = value
        return found


# A process has one environment, so there is one of these in it.
_shown = _Shown()
