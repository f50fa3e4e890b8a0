"""Start the daemon at boot: with a systemd unit if systemd answers, else with a crontab line.

Root installs a system unit, other users a user unit. A file that dibs did not write is never changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dibs.client import connection
from dibs.errors import MachineError, UserError
from dibs.system import paths

#: The first line of our units, and the end of our crontab line.
MARK = "# Written by `dibs daemon install`; removed by `dibs daemon uninstall`."
CRON_MARK = "# dibs daemon install"
UNIT = "dibs.service"
#: Timeout of systemctl and crontab, in seconds.
PATIENCE_S = 30.0


def find(environ: Mapping[str, str]) -> Systemd | Cron:
    """Return the way to start daemons at boot on this machine; raise MachineError if there is none."""
    if (way := available(environ)) is not None:
        return way
    raise MachineError(
        "neither systemd nor cron is available, so the daemon cannot be started at boot.",
        "It starts automatically with the first command. Or add `dibs daemon start` to your start-up scripts.",
    )


def available(environ: Mapping[str, str]) -> Systemd | Cron | None:
    """Return the way to start daemons at boot on this machine, or None."""
    is_root = os.geteuid() == 0
    # Run it, because the program may exist without its service, as in most containers.
    scope = [] if is_root else ["--user"]
    if shutil.which("systemctl") and _run(["systemctl", *scope, "show", "--property=Version"]).returncode == 0:
        return Systemd(environ, is_root)
    return Cron(environ) if shutil.which("crontab") else None


def _run(words: list[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, input=text, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"{words[0]} did not answer: {error}.") from None


def _must(words: list[str], text: str | None = None) -> str:
    done = _run(words, text)
    if done.returncode:
        why = " ".join((done.stderr or done.stdout).split()) or f"exit code {done.returncode}"
        raise MachineError(f"`{' '.join(words)}` failed: {why}")
    return done.stdout


def _kept(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that decide which daemon this is."""
    inherited = connection.daemon_environ(environ)
    return {name: value for name, value in inherited.items() if name.startswith(("DIBS_", "XDG_")) or name == "PATH"}


@dataclass(frozen=True)
class Systemd:
    """A unit: a system unit for root, a user unit for everybody else."""

    environ: Mapping[str, str]
    is_root: bool

    @property
    def path(self) -> Path:
        """Return the path of the unit file."""
        if self.is_root:
            return Path("/etc/systemd/system") / UNIT
        home = self.environ.get("XDG_CONFIG_HOME") or f"{self.environ.get('HOME') or os.path.expanduser('~')}/.config"
        return Path(home) / "systemd" / "user" / UNIT

    def shown(self) -> str:
        """Return the path and the text that `install` would write."""
        return f"# {self.path}\n{self.text()}"

    def text(self) -> str:
        """Return the text of the unit."""
        variables = [f"Environment={_quoted(f'{name}={value}')}" for name, value in sorted(_kept(self.environ).items())]
        return "\n".join(
            [
                MARK,
                "[Unit]",
                "Description=dibs: a queue for the GPUs of this machine",
                "",
                "[Service]",
                f"ExecStart={_quoted(sys.executable)} -P -m dibs.daemon",
                *variables,
                "# Jobs outlive the daemon: only its own process is ended with it.",
                "KillMode=process",
                "Restart=on-failure",
                "",
                "[Install]",
                f"WantedBy={'multi-user' if self.is_root else 'default'}.target",
                "",
            ]
        )

    def check(self) -> None:
        """Refuse to replace a file that dibs did not write."""
        try:
            found = self.path.read_text(errors="replace")
        except FileNotFoundError:
            return
        if not found.startswith(MARK):
            raise UserError(
                f"{self.path} was not written by dibs and was not changed.", "Move it away, then try again."
            )

    def _systemctl(self, *words: str) -> str:
        return _must(["systemctl", *([] if self.is_root else ["--user"]), *words])

    def install(self) -> list[str]:
        """Write the unit and start it; return messages for the user."""
        self.check()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.text())
        self._systemctl("daemon-reload")
        self._systemctl("enable", "--now", UNIT)
        messages = [
            f"wrote {self.path}; the daemon starts with {'the machine' if self.is_root else 'your first login'}"
        ]
        return messages if self.is_root or self._lingers() else [*messages, LINGER]

    def _lingers(self) -> bool:
        if not shutil.which("loginctl"):
            return False
        user = self.environ.get("USER") or str(os.geteuid())
        return "Linger=yes" in _run(["loginctl", "show-user", user, "--property=Linger"]).stdout

    def uninstall(self) -> list[str]:
        """Disable and remove the unit; running jobs are not affected."""
        if not self.path.exists():
            return ["not installed"]
        self.check()
        self._systemctl("disable", "--now", UNIT)
        self.path.unlink()
        self._systemctl("daemon-reload")
        return [f"removed {self.path}; the daemon starts with the first command that needs it"]


LINGER = "To start it at boot and keep it after logout, run once: loginctl enable-linger"


def _quoted(text: str) -> str:
    """Quote for a unit: systemd interprets %, $, quotes and backslashes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


@dataclass(frozen=True)
class Cron:
    """A line in the user's crontab."""

    environ: Mapping[str, str]

    def shown(self) -> str:
        """Return the line that would be added."""
        return f"{self.line()}\n"

    def line(self) -> str:
        """Return the crontab line."""
        import shlex

        variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(_kept(self.environ).items())]
        command = f"{' '.join(variables)} {shlex.quote(sys.executable)} -m dibs daemon start >/dev/null 2>&1"
        # An unescaped percent sign ends the command for cron.
        return f"@reboot {command.replace('%', chr(92) + '%')} {CRON_MARK} {paths.home(self.environ).path}"

    def check(self) -> None:
        """Do nothing: only our own line is ever replaced."""

    def _lines(self) -> list[str]:
        done = _run(["crontab", "-l"])
        # A crontab that cannot be read must not be treated as empty and overwritten.
        if done.returncode and "no crontab" not in done.stderr.lower():
            raise MachineError(f"`crontab -l` failed: {' '.join(done.stderr.split())}")
        return done.stdout.splitlines() if done.returncode == 0 else []

    def _others(self) -> list[str]:
        mine = f"{CRON_MARK} {paths.home(self.environ).path}"
        return [line for line in self._lines() if not line.endswith(mine)]

    def install(self) -> list[str]:
        """Add our line; return messages for the user."""
        _must(["crontab", "-"], "\n".join([*self._others(), self.line()]) + "\n")
        return ["added a line to your crontab; the daemon starts with the machine"]

    def uninstall(self) -> list[str]:
        """Remove our line; all others stay as they are."""
        others = self._others()
        if len(others) == len(self._lines()):
            return ["not installed"]
        _must(["crontab", "-"], "".join(f"{line}\n" for line in others))
        return ["removed the line from your crontab; the daemon starts with the first command that needs it"]
