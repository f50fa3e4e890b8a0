"""Every setting: its name, kind, default and meaning, and where its value comes from.

Defaults < /etc/dibs/config.toml < the user's config.toml < environment. Command options are handled by the callers.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dibs import errors
from dibs.model import suggestions, units
from dibs.system import paths
from dibs.system.setting_kinds import (
    ANY_TEXT,
    COUNT,
    DURATION,
    GPU_NAMES,
    HOSTS,
    NAMES,
    PATH,
    PORT,
    SIZE,
    SPARE,
    TEXT,
    VISIBLE,
    Bytes,
    Kind,
)

SITE_CONFIG = Path("/etc/dibs/config.toml")


@dataclass
class Settings:
    """All settings of one call, or of a daemon, whose parts share one object; only `adopt` changes it."""

    devices: str = ""
    #: None: in the state folder.
    files: Path | None = None
    #: None: the folder that all users of this machine share.
    lease_dir: Path | None = None
    cpu_slots: int = field(default_factory=lambda: usable_cores())
    shell: str = field(default_factory=lambda: find_shell(os.environ))
    visible: str = "uuid"
    #: Seconds.
    grace: float = 30.0
    #: Seconds.
    collect_for: float = 3600.0
    #: Seconds.
    assumed_time: float = 86400.0
    max_gpus: int | None = None
    keep_free: int = 0
    max_jobs_per_gpu: int = 4
    #: Seconds; None: forever.
    keep_for: float | None = None
    keep_jobs: int = 1_000_000
    env_exclude: tuple[str, ...] = ()
    notify: str = ""
    foreign_memory: Bytes = field(default_factory=lambda: Bytes(2**30))
    foreign_process: Bytes = field(default_factory=lambda: Bytes(200 * 2**20))
    foreign_ignore: tuple[str, ...] = ()
    #: None: found by the system's loader.
    nvml_library: Path | None = None
    #: 0: any free port.
    web_port: int = 0
    #: Empty: loopback.
    web_bind: str = ""
    web_names: tuple[str, ...] = ()
    web_cert: Path | None = None
    web_key: Path | None = None
    #: None: no status socket.
    status_socket: Path | None = None
    #: Where each value came from: "default", a file, or an environment variable.
    sources: dict[str, str] = field(default_factory=dict, compare=False)

    def adopt(self, fresh: Settings) -> list[str]:
        """Take the values of `fresh`, except those that need a restart; return the names of these if they differ."""
        differ = [each for each in SETTINGS if getattr(self, each.name) != getattr(fresh, each.name)]
        for setting in differ:
            if not setting.needs_restart:
                setattr(self, setting.name, getattr(fresh, setting.name))
                self.sources[setting.name] = fresh.sources[setting.name]
        return [setting.name for setting in differ if setting.needs_restart]


@dataclass(frozen=True)
class Setting:
    """One row of the table below."""

    name: str
    kind: Kind
    #: As written in the file; "" if it is empty or detected on the machine.
    default: str
    variable: str
    meaning: str
    #: False if it must not be stored in a file.
    is_in_files: bool = True
    #: True if a running daemon cannot change it.
    needs_restart: bool = False


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "devices", ANY_TEXT, "", "DIBS_DEVICES",
        "Which GPUs to use: empty for all, a list of indices or UUIDs, none, or fake:4 for pretend ones.",
        needs_restart=True,
    ),
    Setting(
        "files", PATH, "", "DIBS_FILES",
        "Folder for logs and checkpoints, network disks included; empty for the state folder.",
        needs_restart=True,
    ),
    Setting(
        "lease_dir", PATH, "", "DIBS_LEASE_DIR",
        "Folder of the lease files, for tests only: all users of a machine must share one.",
        is_in_files=False, needs_restart=True,
    ),
    Setting(
        "cpu_slots", COUNT, "", "DIBS_CPU_SLOTS",
        "How many jobs without GPUs run at once; by default one per usable core.",
    ),
    Setting(
        "shell", TEXT, "", "DIBS_SHELL",
        "Shell for commands given as one string; by default bash if there is one, else /bin/sh.",
    ),
    Setting(
        "visible", VISIBLE, "uuid", "DIBS_VISIBLE",
        "How CUDA_VISIBLE_DEVICES names the GPUs: uuid, or index for old frameworks.",
    ),
    Setting(
        "grace", DURATION, "30s", "DIBS_GRACE",
        "Time between asking a job to stop (TERM) and ending it (KILL).",
    ),
    Setting(
        "collect_for", DURATION, "1h", "DIBS_COLLECT_FOR",
        "How long a job for several GPUs may keep free ones waiting for the rest.",
    ),
    Setting(
        "assumed_time", DURATION, "24h", "DIBS_ASSUMED_TIME",
        "How long a job without a time limit is expected to run when others are planned around it.",
    ),
    Setting(
        "max_gpus", COUNT, "", "DIBS_MAX_GPUS",
        "The most GPUs that your jobs use at once; empty for all.",
    ),
    Setting(
        "keep_free", SPARE, "0", "DIBS_KEEP_FREE",
        "How many GPUs your jobs leave free for others.",
    ),
    Setting(
        "max_jobs_per_gpu", COUNT, "4", "DIBS_MAX_JOBS_PER_GPU",
        "How many jobs with --vram share a GPU at most, those of other people included.",
    ),
    Setting(
        "keep_for", DURATION, "", "DIBS_KEEP_FOR",
        "Forget finished jobs, rows and logs, when they are older; empty: never. Checkpoints stay.",
    ),
    Setting(
        "keep_jobs", COUNT, "1000000", "DIBS_KEEP_JOBS",
        "Forget the oldest finished jobs, rows and logs, when there are more. Checkpoints stay.",
    ),
    Setting(
        "env_exclude", NAMES, "[]", "DIBS_ENV_EXCLUDE",
        "Names of variables (globs) that are not captured when a job is submitted.",
    ),
    Setting(
        "notify", ANY_TEXT, "", "DIBS_NOTIFY",
        "A command to be run when jobs have ended, a batch has its first failure, or the queue is empty.",
    ),
    Setting(
        "foreign_memory", SIZE, "1G", "DIBS_FOREIGN_MEMORY",
        "Memory in use on a GPU without a lease, from which on others use it, or its last job has not given it back.",
    ),
    Setting(
        "foreign_process", SIZE, "200M", "DIBS_FOREIGN_PROCESS",
        "Memory of a process without a lease, from which on it keeps jobs from a GPU; a desktop uses less.",
    ),
    Setting(
        "foreign_ignore", GPU_NAMES, "[]", "DIBS_FOREIGN_IGNORE",
        "GPUs, by index or UUID, on which jobs start whoever else uses them.",
    ),
    Setting(
        "nvml_library", PATH, "", "DIBS_NVML_LIBRARY",
        "The NVIDIA library libnvidia-ml.so.1, where the system does not find it by itself.",
        needs_restart=True,
    ),
    Setting(
        "web_port", PORT, "0", "DIBS_WEB_PORT",
        "The port on which `dibs web` lets browsers in; 0 for any that is free, which is then kept.",
        needs_restart=True,
    ),
    Setting(
        "web_bind", ANY_TEXT, "", "DIBS_WEB_BIND",
        "Another address than loopback for browsers, which needs web_cert and web_key; empty for loopback.",
        needs_restart=True,
    ),
    Setting(
        "web_names", HOSTS, "[]", "DIBS_WEB_NAMES",
        "How browsers call this machine, where web_bind lets in those of other machines.",
        needs_restart=True,
    ),
    Setting(
        "web_cert", PATH, "", "DIBS_WEB_CERT",
        "The certificate for web_bind, with its chain, in a PEM file.",
        needs_restart=True,
    ),
    Setting(
        "web_key", PATH, "", "DIBS_WEB_KEY",
        "The key of web_cert in a PEM file that only you can read.",
        needs_restart=True,
    ),
    Setting(
        "status_socket", PATH, "", "DIBS_STATUS_SOCKET",
        "A second socket that only tells how things stand, for containers and monitors; empty for none.",
        needs_restart=True,
    ),
)  # fmt: skip


def load(environ: Mapping[str, str], site: Path = SITE_CONFIG) -> Settings:
    """Return the settings for `environ`; raise an error that names the first invalid value."""
    values: dict[str, object] = {"cpu_slots": usable_cores(), "shell": find_shell(environ)}
    sources = {setting.name: "default" for setting in SETTINGS}
    for path, is_required in ((site, False), (paths.config_file(environ), bool(environ.get("DIBS_CONFIG")))):
        if path is not None:
            for name, value in _read_file(path, is_required, environ).items():
                values[name], sources[name] = value, str(path)
    for setting in SETTINGS:
        # An empty variable counts as unset, as in the XDG standard.
        if text := environ.get(setting.variable):
            values[setting.name] = checked(setting, setting.kind.from_text(text), setting.variable, environ)
            sources[setting.name] = setting.variable
    # Each kind returns the type of its field; a test checks all of them.
    return Settings(**values, sources=sources)  # type: ignore[arg-type]


def written(value: object) -> str:
    """Return a final value as written in the file, without quotes; empty if it is unset."""
    match value:
        case None:
            return ""
        case float():
            return units.write_duration(value)
        case Bytes():
            return units.format_size(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def usable_cores() -> int:
    """Return the number of cores this process may run on, which can be fewer in a container than the machine has."""
    return len(os.sched_getaffinity(0))


def find_shell(environ: Mapping[str, str]) -> str:
    """Return the path of bash, or of the shell that always exists."""
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, "bash")
        # A relative folder on PATH would mean another shell in every folder.
        if os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return "/bin/sh"


def _read_file(path: Path, is_required: bool, environ: Mapping[str, str]) -> dict[str, object]:
    """Return the checked values of a configuration file; none if it is missing."""
    text = text_of(path, is_required)
    return {} if text is None else check_text(path, text, environ)


def check_text(path: Path, text: str, environ: Mapping[str, str]) -> dict[str, object]:
    """Return the checked values of the text of a configuration file; errors name `path` and the line."""
    # The import takes several milliseconds, and most users have no file.
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _broken(path, text, str(error)) from error
    known = {setting.name: setting for setting in SETTINGS}
    wheres = {name: f"{path}{_line_of(name, text)}" for name in table}
    for name, where in wheres.items():
        if name not in known:
            raise _unknown(where, name, list(known))
        if not known[name].is_in_files:
            raise errors.UserError(f"{where}: {not_in_files(known[name])}", f"Set {known[name].variable} instead.")
    return {name: checked(known[name], value, f"{wheres[name]}: {name}", environ) for name, value in table.items()}


def not_in_files(setting: Setting) -> str:
    """Return the error text for a setting that only its variable can set."""
    return f"{setting.name} cannot be set in a file."


def _broken(path: Path, text: str, complaint: str) -> errors.UserError:
    """Return the error for a file that is not valid TOML; the parser names the line or says that it is the last."""
    what, _, place = complaint.partition(" (at ")
    words = place.replace(",", " ").split()
    number = words[1] if words[:1] == ["line"] else str(len(text.splitlines()))
    return errors.UserError(f"{path}, line {number}: expected TOML such as devices = '0,1', got an error: {what}.")


def _line_of(name: str, text: str) -> str:
    """Return ", line 3" for the line that sets `name`; empty if it is written in an unusual way."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.partition("=")[0].strip(" \t\"'[]") == name:
            return f", line {number}"
    return ""


def text_of(path: Path, is_required: bool) -> str | None:
    """Read a file that only we or root can have written; return None if it does not exist and is not required."""
    try:
        # Non-blocking, so that a planted pipe cannot block us.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            _check_owner(path, os.fstat(file.fileno()))
            return decode(path, file.read())
    except (FileNotFoundError, NotADirectoryError):
        if is_required:
            raise errors.UserError(f"DIBS_CONFIG expected a file, but {path} does not exist.", "Unset it.") from None
        return None
    except OSError as error:
        raise errors.UserError(f"{path}: expected a file that you can read, got: {error.strerror}.") from error


def decode(path: Path, data: bytes) -> str:
    """Return the text of a configuration file."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise errors.UserError(f"{path}: expected UTF-8 text, got other bytes at offset {error.start}.") from error


def _check_owner(path: Path, found: os.stat_result) -> None:
    """Raise an error if another user could have written the file: its `shell` would run with our rights."""
    if not stat.S_ISREG(found.st_mode):
        raise errors.UserError(f"{path}: expected a regular file, it is something else.", "Move it away.")
    if found.st_uid not in (0, os.geteuid()):
        raise errors.UserError(
            f"{path}: expected a file of yours or of root, it belongs to user {found.st_uid}.", "Copy it, or remove it."
        )
    if found.st_mode & 0o022:
        raise errors.UserError(
            f"{path}: expected a file that only its owner can write, its mode is {stat.S_IMODE(found.st_mode):04o}.",
            f"Type: chmod go-w {path}",
        )


def checked(setting: Setting, value: object, where: str, environ: Mapping[str, str]) -> object:
    """Return the final value of `setting`; errors name `where` (file and key, or the variable)."""
    try:
        return setting.kind.check(value, environ)
    except errors.UserError as error:
        raise errors.UserError(f"{where}: {error.message}", error.hint) from None
    except ValueError:
        raise errors.UserError(f"{where}: expected {setting.kind.expected}, got {_shown(value)}.") from None


def _shown(value: object) -> str:
    """Return a value as TOML would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _unknown(where: str, name: str, known: list[str]) -> errors.UserError:
    hint = suggestions.did_you_mean(name, known) or f"The settings are: {', '.join(known)}."
    return errors.UserError(f'{where}: there is no setting "{name}".', hint)
