"""Whether jobs survive a logout: what systemd-logind does to the cgroup of the daemon.

Reads files only; logind itself could hang, and is often not installed.
"""

from __future__ import annotations

from pathlib import Path

from dibs.system import users

LOGIND_CONFIG = Path("/etc/systemd/logind.conf")
LINGERING = Path("/var/lib/systemd/linger")

REMEDY = "`dibs daemon install` keeps them running."


def logout_kills(pid: int | str = "self", config: Path = LOGIND_CONFIG, lingering: Path = LINGERING) -> str | None:
    """Return why children of this process would end with the user's last session; None if they would not."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return None
    user = users.own()
    return judge(groups, (lingering / user).exists(), kills_processes(_texts(config), user))


def judge(groups: str, lingers: bool, kills: bool) -> str | None:
    """Judge the text of /proc/PID/cgroup with the two relevant settings of logind."""
    parts = {part for line in groups.splitlines() for part in line.rpartition(":")[2].split("/")}
    if any(part.startswith("user@") for part in parts) and not lingers:
        return "jobs run below your systemd user manager, which ends with your last session"
    if kills and any(part.startswith("session-") and part.endswith(".scope") for part in parts):
        return "KillUserProcesses=yes in logind.conf ends what you started when you log out"
    return None


def kills_processes(texts: list[str], user: str) -> bool:
    """Return whether logind's configuration kills a user's processes after the session; later files win."""
    values = {"KillUserProcesses": "no", "KillOnlyUsers": "", "KillExcludeUsers": "root"}
    for line in "\n".join(texts).splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name.strip() in values:
            values[name.strip()] = value.strip()
    only, spared = values["KillOnlyUsers"].split(), values["KillExcludeUsers"].split()
    is_meant = user in only if only else user not in spared
    return values["KillUserProcesses"].lower() in ("yes", "true", "on", "1") and is_meant


def _texts(config: Path) -> list[str]:
    extra = sorted(Path(f"{config}.d").glob("*.conf"))
    return [text for text in (_read(path) for path in (config, *extra)) if text]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
