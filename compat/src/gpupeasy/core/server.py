"""`GPUPeasyServer`, as a start script makes and runs it."""

from __future__ import annotations

from collections.abc import Sequence

from dibs_compat.gpupeasy import servers

__all__ = ["GPUPeasyServer"]


class GPUPeasyServer:
    """The queue of a start script: each text of `gpuList` runs one job at a time and is its CUDA_VISIBLE_DEVICES.

    `wakesec` is accepted and not needed: nobody polls.
    """

    def __init__(
        self,
        gpuList: Sequence[str],
        logdir: str | None = None,
        debug: bool = False,
        wakesec: float = 5,
        *,
        insecure_bind: bool = False,
    ) -> None:
        self._gpus = [str(gpu) for gpu in gpuList]
        self._logdir = logdir
        self._is_debug = debug
        self._is_open = insecure_bind

    def run(self, host: str = "127.0.0.1", port: int = servers.CORE_PORT, *, insecure_bind: bool = False) -> None:
        """Serve until Ctrl-C. Running jobs then continue, and waiting ones too, if dibs can choose their GPU."""
        address = servers.Address(host, int(port), is_open=self._is_open or insecure_bind)
        servers.run_core(self._gpus, address, self._logdir, is_loud=self._is_debug)
