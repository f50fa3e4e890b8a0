"""The GPUs that this process sees: whether it can still change them, the variables that name them, and their leases.

Python 3.9.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from dibs.errors import Conflict
from dibs.model.environment_names import DEVICE_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, Protocol, Self

    P = ParamSpec("P")

    class Held(Protocol):
        """A lease, with the variables that name its devices."""

        environ: dict[str, str]


T = TypeVar("T")
#: Variables that hold a list of devices.
DEVICE_LISTS = ("DIBS_GPU_INDICES", *DEVICE_NAMES)
#: Files that CUDA or ROCm keeps open once initialized. NVML, which only reads GPUs, does not open them.
DRIVER_FILES = ("/dev/nvidia-uvm", "/dev/kfd")


def cuda_use() -> str | None:
    """Describe how this process uses CUDA or ROCm; None if it does not.

    Imports nothing: asks torch if it is loaded, else looks for open driver files.
    """
    torch = sys.modules.get("torch")
    is_initialized = getattr(getattr(torch, "cuda", None), "is_initialized", None)
    return describe_cuda_use(bool(is_initialized and is_initialized()), _open_files())


def describe_cuda_use(is_torch_up: bool, opened: Iterable[str]) -> str | None:
    """Describe the use of CUDA or ROCm, from the state of torch and the open files."""
    if is_torch_up:
        return "torch has initialized CUDA in this process"
    found = next((path for path in opened if path in DRIVER_FILES), None)
    return f"this process has {found} open, so CUDA or ROCm is initialized" if found else None


def _open_files() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        # Another thread may close it meanwhile, and the one of `listdir` is already closed.
        with suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{name}")


def refuse_after_cuda_use() -> None:
    if why := cuda_use():
        raise Conflict(
            f"cannot change the GPUs of this process: {why}.",
            "Acquire the lease before the first use of a GPU, or in a new process.",
        )


class DeviceEnvironment:
    """The device variables of this process, which name the GPUs of all leases that it holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: list[Held] = []
        #: Values before the first lease; None: not set.
        self._before: dict[str, str | None] = {}
        os.register_at_fork(after_in_child=self._new_lock)

    def _new_lock(self) -> None:
        # Another thread may have held it during the fork.
        self._lock = threading.Lock()

    def add(self, new: Held) -> None:
        with self._update():
            self._leases.append(new)

    def remove(self, old: Held) -> None:
        with self._update():
            self._leases = [each for each in self._leases if each is not old]

    @contextmanager
    def _update(self) -> Iterator[None]:
        with self._lock:
            if not self._leases:
                self._before = {}
            yield
            shown = self._variables()
            self._before = {**{name: os.environ.get(name) for name in shown}, **self._before}
            for name, value in {**self._before, **shown}.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def _variables(self) -> dict[str, str]:
        """Return the variables for all held devices, in the order of the leases."""
        found: dict[str, str] = {}
        for name, value in (pair for each in self._leases for pair in each.environ.items()):
            if name in found and name in DEVICE_LISTS:
                # Two leases may share a device.
                found[name] = ",".join(dict.fromkeys([*found[name].split(","), *value.split(",")]))
            else:
                found[name] = value
        return found


# One instance, as a process has one environment.
ENVIRONMENT = DeviceEnvironment()


class LeaseContext:
    """A lease as a context manager and a decorator; a subclass takes and releases the GPUs."""

    if TYPE_CHECKING:

        def acquire(self) -> Self: ...
        def release(self) -> None: ...
        async def __aenter__(self) -> Self: ...
        def _copy(self) -> Self: ...

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    async def __aexit__(self, *error: object) -> None:
        self.release()

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Wrap a function, also an `async` one, so that each call holds its own lease."""
        call: Callable[..., Any] = function

        @functools.wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            async with self._copy():
                return await call(*args, **kwargs)

        @functools.wraps(function)
        def leased(*args: P.args, **kwargs: P.kwargs) -> T:
            with self._copy():
                return function(*args, **kwargs)

        return awaited if asyncio.iscoroutinefunction(function) else leased  # type: ignore[return-value]
