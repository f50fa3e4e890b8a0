"""`dibs.lease`: GPUs for this process, in the machine-wide line. No daemon is needed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import dibs
from bench import wait_for
from dibs import errors
from dibs.cli.verbs import lease as typed_lease
from dibs.leases import tickets
from dibs.leases.device_lease import folder
from dibs.python_api import keywords, lease, process_devices


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two pretend GPUs with a separate lease folder; CUDA is not initialized, whatever other tests have loaded."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "DIBS_GPU_INDICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DIBS_DEVICES", "fake:2")
    monkeypatch.setenv("DIBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DIBS_LEASE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def is_free(count: int) -> bool:
    """Return whether the given number of GPUs is free now."""
    try:
        with dibs.lease(count, blocking=False):
            return True
    except errors.Busy:
        return False


def line() -> list[tickets.Ticket]:
    """Return who waits."""
    return tickets.around(folder(), None)[0]


def test_gpus_are_held_and_visible_inside_the_block_and_released_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with dibs.lease(gpus=2) as gpus:
        assert (gpus.ids, gpus.indices, gpus.is_held) == (["FAKE-0", "FAKE-1"], [0, 1], True)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "FAKE-0,FAKE-1"
        assert (os.environ["CUDA_DEVICE_ORDER"], os.environ["DIBS_GPU_INDICES"]) == ("PCI_BUS_ID", "0,1")
        assert not is_free(1)
    assert (gpus.ids, gpus.is_held) == ([], False)
    assert (os.environ["CUDA_VISIBLE_DEVICES"], "DIBS_GPU_INDICES" in os.environ) == ("7", False)
    assert is_free(2)


def test_an_exception_in_the_block_releases_them_too() -> None:
    with pytest.raises(KeyError), dibs.lease():
        raise KeyError
    assert is_free(2)


def test_a_handle_can_be_released_manually_and_twice_is_harmless() -> None:
    held = dibs.lease(gpu_ids=[1], visible="index").acquire()
    assert (held.ids, os.environ["CUDA_VISIBLE_DEVICES"]) == (["FAKE-1"], "1")
    with pytest.raises(errors.Conflict, match="this lease already holds GPU 1"):
        held.acquire()
    held.release()
    held.release()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    # And may be used again.
    with held:
        assert held.ids == ["FAKE-1"]


def test_a_decorated_function_leases_gpus_for_each_call() -> None:
    @dibs.lease(gpus=1)
    def visible(depth: int) -> str:
        """Say what is visible here."""
        return visible(depth - 1) if depth else os.environ["CUDA_VISIBLE_DEVICES"]

    assert visible(0) == "FAKE-0"
    # The inner call has another one, and the process sees both.
    assert visible(1) == "FAKE-0,FAKE-1"
    assert (visible.__name__, visible.__doc__) == ("visible", "Say what is visible here.")
    assert is_free(2)


def test_the_gpus_of_two_leases_are_visible_together() -> None:
    first, second = dibs.lease().acquire(), dibs.lease().acquire()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "FAKE-0,FAKE-1"
    assert [each.environ["CUDA_VISIBLE_DEVICES"] for each in (first, second)] == ["FAKE-0", "FAKE-1"]
    first.release()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "FAKE-1"
    second.release()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_leases_with_vram_share_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIBS_DEVICES", "fake:1x24G")
    with dibs.lease(vram="10G") as first, dibs.lease(vram="10G") as second:
        assert first.ids == second.ids == ["FAKE-0"]
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "FAKE-0"
        with pytest.raises(errors.Busy):
            dibs.lease(vram="10G", blocking=False).acquire()
    assert is_free(1)


def test_without_blocking_the_error_names_the_holders() -> None:
    with dibs.lease(gpus=2):
        with pytest.raises(errors.Busy, match=rf"cannot lease 1 GPU now: GPU 0: .* python {os.getpid()}") as caught:
            dibs.lease(blocking=False).acquire()
        assert not isinstance(caught.value, TimeoutError)
        with pytest.raises(errors.TimedOut, match="cannot lease 1 GPU now"):
            dibs.lease(timeout=0.01).acquire()
    # No ticket is left in the line.
    assert not line()


def test_a_thread_waits_in_the_line_until_they_are_released() -> None:
    got: list[list[str]] = []

    def wait() -> None:
        with dibs.lease(gpus=2) as gpus:
            got.append(gpus.ids)

    held = dibs.lease(gpus=1).acquire()
    thread = threading.Thread(target=wait)
    thread.start()
    wait_for(lambda: len(line()), lambda count: count == 1)
    assert got == []
    held.release()
    thread.join()
    assert got == [["FAKE-0", "FAKE-1"]]


def test_in_an_event_loop_waiting_does_not_block() -> None:
    async def main() -> list[str]:
        @dibs.lease(gpus=2)
        async def both() -> str:
            return os.environ["CUDA_VISIBLE_DEVICES"]

        async with dibs.lease(gpus=1):
            waiting = asyncio.create_task(both())
            await asyncio.to_thread(lambda: wait_for(lambda: line()))
            cancelled = asyncio.create_task(both())
            await asyncio.to_thread(lambda: wait_for(lambda: len(line()) == 2))
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert len(line()) == 1
        return [await waiting]

    assert asyncio.run(main()) == ["FAKE-0,FAKE-1"]
    assert is_free(2)


def test_a_lease_is_released_at_its_time_limit_and_a_new_one_has_its_own(caplog: pytest.LogCaptureFixture) -> None:
    held = dibs.lease(2, time=timedelta(milliseconds=1)).acquire()
    wait_for(lambda: is_free(2))
    wait_for(
        lambda: (held.is_held, held.ids, "CUDA_VISIBLE_DEVICES" in os.environ), lambda seen: seen == (False, [], False)
    )
    assert "lease time limit reached: GPU 0, 1 released. No process was stopped." in caplog.text
    held.release()
    with dibs.lease(time="8h") as gpus:
        # The time limit of an earlier lease does not affect it.
        gpus._expire([])
        assert gpus.is_held
    assert is_free(2)


def test_variables_for_sharing_are_reset_with_the_last_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    with dibs.lease(vram="1G"):
        seen = os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"], os.environ["TF_FORCE_GPU_ALLOW_GROWTH"]
        assert seen == ("false", "false")
    assert ("XLA_PYTHON_CLIENT_PREALLOCATE" in os.environ, os.environ["TF_FORCE_GPU_ALLOW_GROWTH"]) == (False, "false")


def test_intel_gpus_use_their_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIBS_DEVICES", "intel:0,3")
    monkeypatch.delenv("ZE_AFFINITY_MASK", raising=False)
    with dibs.lease(), dibs.lease() as second:
        assert (second.indices, os.environ["ZE_AFFINITY_MASK"]) == ([3], "0,3")
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert "ZE_AFFINITY_MASK" not in os.environ


def test_lease_on_the_command_line_prints_the_variable_of_the_gpus(machine: Path) -> None:
    environ = {**os.environ, "DIBS_DEVICES": "intel:0,3"}
    shell = f"exec {sys.executable} -m dibs lease --gpu-ids 3"
    with subprocess.Popen(["sh", "-c", shell], env=environ, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None
        assert [held.stdout.readline(), held.stdout.readline()] == ["INTEL-3\n", "export ZE_AFFINITY_MASK=3\n"]
        held.terminate()
    assert held.returncode == 0


def test_every_applicable_option_of_the_command_line_is_a_keyword() -> None:
    """The others are about the shell or the calling process; `--no-wait` is `blocking=False`."""
    spoken = {keywords.name(option) for option in lease.OPTIONS}
    typed = {option.names[-1].lstrip("-").replace("-", "_") for option in typed_lease.OPTIONS}
    assert typed - spoken == {"env", "extend", "pid", "release", "shell", "no_wait"}
    assert spoken == {"gpus", *keywords.DeviceOptions.__annotations__}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"gpus": 0}, "lease expected at least one GPU, got gpus 0."),
    ({"gpus": "two"}, 'gpus expected a whole number from 0 up, got "two".'),
    ({"gpus": 3}, "the lease asks for 3 GPUs; this machine has 2"),
    ({"gpu_ids": [5]}, "gpu_ids"),
    ({"gpus": 2, "gpu_ids": [0]}, "gpus 2 contradicts gpu_ids"),
    ({"ignore_foreign": "yes"}, 'ignore_foreign expected True or False, got "yes".'),
    ({"time": 3600}, "time expected"),
    ({"visible": "both"}, "visible expected uuid or index"),
    ({"timeout": -1}, "timeout expected seconds from 0 up, got -1."),
    ({"timeout": "1h"}, "timeout expected seconds from 0 up, got '1h'."),
    ({"blocking": 1}, "blocking expected True or False, got 1."),
    ({"timeout": 1, "blocking": False}, "timeout has no effect with blocking=False."),
]


@pytest.mark.parametrize(("told", "says"), WRONG)
def test_a_mistake_is_one_clear_error(told: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.UserError) as caught:
        dibs.lease(**told).acquire()
    assert str(caught.value).startswith(says)


def test_a_process_with_initialized_cuda_cannot_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in is what torch offers: `torch.cuda.is_initialized()`."""
    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(is_initialized=lambda: True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(
        errors.Conflict,
        match=r"process: torch has initialized CUDA in this process\. Acquire",
    ):
        dibs.lease().acquire()
    torch.cuda = SimpleNamespace(is_initialized=lambda: False)  # type: ignore[attr-defined]
    with dibs.lease() as gpus:
        assert gpus.is_held


@pytest.mark.parametrize(
    ("opened", "says"),
    [
        ([], None),
        # NVML, which only reads, has these open.
        (["/dev/nvidiactl", "/dev/nvidia0", "socket:[1]"], None),
        (["/dev/nvidia-uvm"], "this process has /dev/nvidia-uvm open"),
        (["/dev/kfd"], "this process has /dev/kfd open"),
    ],
)
def test_initialized_cuda_is_detected_by_open_files(opened: list[str], says: str | None) -> None:
    why = process_devices.describe_cuda_use(False, opened)
    assert why is None if says is None else str(why).startswith(says)


def test_releasing_gpus_that_are_still_in_use_logs_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torch = ModuleType("torch")
    with dibs.lease():
        torch.cuda = SimpleNamespace(is_initialized=lambda: True)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torch", torch)
    assert "GPU 0 released, but torch has initialized CUDA in this process" in caplog.text


def test_a_forked_child_keeps_them_until_it_exits() -> None:
    """It may use them: another user must not get them while it does."""
    go, tell = os.pipe()
    with dibs.lease(gpus=2):
        child = os.fork()
        if not child:
            os.close(tell)
            os.read(go, 1)
            os._exit(0)
    os.close(go)
    assert not is_free(1)
    os.close(tell)
    os.waitpid(child, 0)
    assert is_free(2)


@pytest.mark.parametrize("keeps", [False, True])
def test_a_child_program_keeps_them_only_on_request(keeps: bool) -> None:
    with dibs.lease(gpus=2) as gpus:
        program = subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, pass_fds=gpus.fds if keeps else (), env=os.environ | gpus.environ
        )
    assert is_free(2) is not keeps
    program.communicate()
    assert is_free(2)


def test_a_killed_process_releases_them() -> None:
    program = "import dibs, time\nwith dibs.lease(gpus=2) as gpus: print(*gpus.ids, flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"FAKE-0 FAKE-1\n"
    assert not is_free(1)
    holder.kill()
    holder.communicate()
    assert is_free(2)


def test_the_repr_shows_the_request_and_the_gpus() -> None:
    held = dibs.lease(gpus=1, prefer=[1])
    assert repr(held) == "<dibs.lease(gpus=1, prefer=[1])>"
    with held:
        assert repr(held) == "<dibs.lease(gpus=1, prefer=[1]) of GPU 1>"


def test_the_decorator_preserves_types(machine: Path) -> None:
    call: Callable[[int], int] = dibs.lease()(lambda number: number + 1)
    assert call(1) == 2
