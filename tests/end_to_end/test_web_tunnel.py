"""The page through ssh: the command that `dibs web` prints over a real ssh connection works when copied."""

from __future__ import annotations

from pathlib import Path

import ssh_server
from bench import Bench
from browsers import Browser


@ssh_server.is_needed
def test_the_command_printed_over_ssh_gives_a_browser_access(bench: Bench, tmp_path: Path) -> None:
    bench.start()
    with ssh_server.tunnel(bench, tmp_path / "ssh") as told:
        # No port was opened on the server for it.
        assert told["port"] is None
        address, _, code = told["link"].partition("#code=")
        browser = Browser(address, {"Sec-Fetch-Site": "same-origin", "Origin": address.rstrip("/")})
        assert browser.ask("GET", "/").status == 200
        assert browser.ask("GET", "/v1/jobs").status == 401
        browser.sign_in(code)
        assert browser.ask("GET", "/v1/jobs").status == 200
        # A page of another site has no access this way, not even with a host name that leads here.
        port = address.rstrip("/").rsplit(":", 1)[1]
        stranger = Browser(address, {"Host": f"evil.example:{port}"})
        assert stranger.ask("GET", "/v1/jobs").status == 403
        assert Browser(address, {"Origin": "http://evil.example"}).ask("POST", "/v1/queue", {}).status == 403
        assert Browser(address).ask("GET", "/v1/jobs").status == 401
        bench.cli("web", "--rotate")
        assert browser.ask("GET", "/v1/jobs").status == 401
