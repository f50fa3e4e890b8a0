"""`GPUPeasyWebGUI`, as a start script makes and runs it."""

from __future__ import annotations

from dibs_compat.gpupeasy import servers

__all__ = ["GPUPeasyWebGUI"]


class GPUPeasyWebGUI:
    """The page of the server at `coreHost` and `corePort`."""

    def __init__(
        self,
        coreHost: str = "127.0.0.1",
        corePort: int = servers.CORE_PORT,
        debug: bool = False,
        *,
        insecure_bind: bool = False,
    ) -> None:
        self._core = (coreHost, int(corePort))
        self._is_open = insecure_bind

    def run(self, host: str = "127.0.0.1", port: int = servers.PAGE_PORT, *, insecure_bind: bool = False) -> None:
        """Serve until Ctrl-C."""
        servers.run_page(*self._core, servers.Address(host, int(port), is_open=self._is_open or insecure_bind))
