"""Every setting: its name, type, kind, default and meaning in one place, and where its value comes from.

Defaults < /etc/dibs/config.toml < the user's config.toml < environment. Command options are handled by the callers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from dibs import errors
from dibs.model import lab_rules, suggestions
from dibs.model.lab_rules import Rules
from dibs.system import paths
from dibs.system.configuration import engines as engine_settings
from dibs.system.configuration import kinds, texts
from dibs.system.configuration import presets as preset_settings
from dibs.system.configuration import tables as setting_tables
from dibs.system.configuration.engines import EngineSettings, ProjectSettings
from dibs.system.configuration.kinds import Bytes, Kind
from dibs.system.configuration.presets import Preset

SITE_CONFIG = Path(lab_rules.SITE_FILE)
#: The key of the rules among the values of a file.
RULES = "rules"
#: What comes as tables with names: `[engines.lab]`.
TABLES = (engine_settings.ENGINES, engine_settings.PROJECTS, preset_settings.PRESETS)


@dataclass(frozen=True)
class Setting:
    """One setting, as its field in `Settings` declares it."""

    name: str
    kind: Kind
    #: As written in the file; "" if it is empty or detected on the machine.
    default: str
    meaning: str
    #: False if it must not be stored in a file.
    is_in_files: bool = True
    #: True if a running daemon cannot change it.
    needs_restart: bool = False
    #: True if only root's file can set it, because it is about the leases of all users.
    is_roots: bool = False

    @cached_property
    def variable(self) -> str:
        """Return the environment variable that sets it."""
        return f"DIBS_{self.name.upper()}"

    @property
    def keys(self) -> tuple[str, ...]:
        """Return its place in a file."""
        return (self.name,)


def _setting(
    kind: Kind, meaning: str, default: str = "", find: Callable[[], object] | None = None, **more: bool
) -> Any:
    """Return the field of a setting; `find` detects its default on the machine."""
    row = {"row": {"kind": kind, "default": default, "meaning": meaning, **more}}
    if find is not None:
        return field(default_factory=find, metadata=row)
    if not default:
        return field(default="" if kind is kinds.ANY_TEXT else None, metadata=row)
    return field(default=kind.check([] if default == "[]" else kind.from_text(default), {}), metadata=row)


def _fixed(kind: Kind, meaning: str, default: str = "", *, is_in_files: bool = True) -> Any:
    """Return the field of a setting that a running daemon cannot change."""
    return _setting(kind, meaning, default, is_in_files=is_in_files, needs_restart=True)


@dataclass
class Settings:
    """All settings of one call, or of a daemon, whose parts share one object; only `adopt` changes it.

    Times are seconds; None: not set.
    """

    devices: str = _fixed(
        kinds.ANY_TEXT,
        "GPUs to use: empty for all, a list of indices or UUIDs, none, or fake:4 for four pretend GPUs.",
    )
    files: Path | None = _fixed(
        kinds.PATH, "Folder for logs and checkpoints; may be on a network disk. Empty: the state folder."
    )
    lease_dir: Path | None = _fixed(
        kinds.PATH,
        "Folder of the lease files. For tests only: all users of a machine must share one folder.",
        is_in_files=False,
    )
    cpu_slots: int = _setting(
        kinds.COUNT,
        "How many jobs without GPUs run at a time. Default: one per usable core.",
        find=lambda: usable_cores(),
    )
    shell: str = _setting(
        kinds.TEXT,
        "Shell for commands given as one string. Default: bash if installed, else /bin/sh.",
        find=lambda: find_shell(os.environ),
    )
    visible: str = _setting(kinds.VISIBLE, "Format of CUDA_VISIBLE_DEVICES: uuid, or index for old frameworks.", "uuid")
    grace: float = _setting(kinds.DURATION, "Time between SIGTERM and SIGKILL when a job is stopped.", "30s")
    collect_for: float = _setting(
        kinds.DURATION, "How long a multi-GPU job may hold free GPUs while it waits for the rest.", "1h"
    )
    assumed_time: float = _setting(
        kinds.DURATION,
        "Expected run time, for planning, of a job without a time limit and without similar jobs.",
        "24h",
    )
    pass_for: float = _setting(
        kinds.DURATION, "How long later jobs may start before a job that waits for GPUs, per GPU it requests.", "7d"
    )
    max_gpus: int | None = _setting(kinds.COUNT, "Maximum number of GPUs your jobs use at a time. Empty: all.")
    keep_free: int = _setting(kinds.SPARE, "Number of GPUs your jobs leave free for other users.", "0")
    fair_half_life: float = _setting(
        kinds.DURATION,
        "Half-life of used GPU time in the order between users. Set only in root's file.",
        "3d",
    )
    fair_projects: bool = _setting(
        kinds.SWITCH, "Order your waiting jobs by the GPU time of their projects, the least first.", "false"
    )
    reserve_unused_for: float = _setting(
        kinds.DURATION,
        "Time after which the unused GPUs of a reservation are released. Set only in root's file.",
        "15m",
    )
    evictable: str = _setting(
        kinds.EVICTABLE, "Whether jobs submitted without --evictable are evictable: no, yes or auto.", "no"
    )
    evict_min_run: float = _setting(
        kinds.DURATION, "Minimum run time of an evictable job before it can be evicted.", "10m"
    )
    evict_grace: float = _setting(kinds.DURATION, "Time between the warning of an eviction and SIGKILL.", "1m")
    max_evictions: int = _setting(
        kinds.COUNT,
        "Maximum number of evictions of a job; after that it counts as an ordinary job and runs to its end.",
        "100",
    )
    evictable_wait: float = _setting(
        kinds.DURATION,
        "Time after submission when a waiting evictable job starts to count as an ordinary job and runs to its end.",
        "28d",
    )
    idle_after: float = _setting(
        kinds.DURATION, "Time without use after which a leased GPU counts as idle and its holder is warned.", "30m"
    )
    idle_gpus: str = _setting(
        kinds.IDLE_GPUS,
        "Lend leased GPUs that are idle: no, or evictable (to evictable jobs). Set only in root's file.",
        lab_rules.NO_USE,
        is_roots=True,
    )
    max_jobs_per_gpu: int = _setting(
        kinds.COUNT, "Maximum number of --vram jobs per GPU, including those of other users.", "4"
    )
    keep_for: float | None = _setting(
        kinds.DURATION, "Delete finished jobs and their logs after this time. Empty: never. Checkpoints are kept."
    )
    keep_jobs: int = _setting(
        kinds.COUNT,
        "Maximum number of finished jobs to keep; older ones and their logs are deleted. Checkpoints are kept.",
        "1000000",
    )
    env_exclude: tuple[str, ...] = _setting(
        kinds.NAMES, "Environment variables (globs) that are not captured at submission.", "[]"
    )
    notify: str = _setting(
        kinds.ANY_TEXT,
        "Command to run when a job finishes, a batch has its first failure, or the queue is empty.",
    )
    foreign_memory: Bytes = _setting(
        kinds.SIZE,
        "GPU memory in use without a lease above which a GPU counts as in use by foreign processes.",
        "1G",
    )
    foreign_process: Bytes = _setting(
        kinds.SIZE,
        "GPU memory above which a process without a lease blocks a GPU. Desktops use less.",
        "200M",
    )
    foreign_ignore: tuple[str, ...] = _setting(
        kinds.GPU_NAMES, "GPUs (index or UUID) on which jobs start even if foreign processes use them.", "[]"
    )
    nvml_library: Path | None = _fixed(kinds.PATH, "Path of libnvidia-ml.so.1 if the system does not find it.")
    web_port: int = _fixed(kinds.PORT, "Port of the web page. 0: choose a free port and keep it.", "0")
    web_bind: str = _fixed(
        kinds.ANY_TEXT,
        "Address of the web page. Other than loopback needs web_cert and web_key. Empty: loopback.",
    )
    web_names: tuple[str, ...] = _fixed(
        kinds.HOSTS, "Host names that browsers on other machines may use, with web_bind.", "[]"
    )
    web_cert: Path | None = _fixed(kinds.PATH, "TLS certificate for web_bind, with its chain (PEM file).")
    web_key: Path | None = _fixed(kinds.PATH, "Key of web_cert: a PEM file that only you can read.")
    status_socket: Path | None = _fixed(
        kinds.PATH, "Path of a second, read-only socket for containers and monitoring. Empty: none."
    )
    command_server: bool = _fixed(
        kinds.SWITCH, "Keep a helper process that makes verbs such as `dibs status` fast. It uses about 30 MB.", "true"
    )
    prepared_folders: int = _fixed(
        kinds.SPARE, "Number of job folders that are created in advance. Each takes 16 kB. 0: none.", "512"
    )
    engine: str = _setting(
        kinds.TEXT,
        "Engine of jobs that name none: local, or the NAME of [engines.NAME].",
        engine_settings.LOCAL,
    )
    #: The clusters by their names; a running daemon keeps those it began with.
    engines: dict[str, EngineSettings] = field(default_factory=dict)
    projects: dict[str, ProjectSettings] = field(default_factory=dict)
    #: Options of jobs by name; `submission.presets` checks their values.
    presets: dict[str, Preset] = field(default_factory=dict)
    #: The quotas and shares of root's file, and the quotas of own projects.
    rules: Rules = field(default_factory=Rules, compare=False)
    #: Where each value came from: "default", a file, or an environment variable. A table has its own.
    sources: dict[str, str] = field(default_factory=dict, compare=False)

    def adopt(self, fresh: Settings) -> list[str]:
        """Take the values of `fresh`, except those that need a restart; return the names of these if they differ."""
        differ = [each for each in SETTINGS if getattr(self, each.name) != getattr(fresh, each.name)]
        for setting in differ:
            if not setting.needs_restart:
                setattr(self, setting.name, getattr(fresh, setting.name))
                self.sources[setting.name] = fresh.sources[setting.name]
        self.projects, self.presets = fresh.projects, fresh.presets
        self.rules = fresh.rules
        waiting = [setting.name for setting in differ if setting.needs_restart]
        return waiting if self.engines == fresh.engines else [*waiting, engine_settings.ENGINES.name]

    def engine_for(self, project: str) -> str:
        """Return the engine of a job that names none."""
        own = self.projects.get(project)
        return own.engine if own is not None and own.engine else self.engine


#: Every setting, in the order of its field.
SETTINGS = tuple(Setting(each.name, **each.metadata["row"]) for each in fields(Settings) if each.metadata)
_NAMES = tuple(setting.name for setting in SETTINGS)


def load(environ: Mapping[str, str], site: Path | None = None) -> Settings:
    """Return the settings for `environ`; raise an error that names the first invalid value."""
    values: dict[str, object] = {"cpu_slots": usable_cores(), "shell": find_shell(environ)}
    sources = dict.fromkeys(_NAMES, "default")
    site = Path(lab_rules.site_file(environ.get("DIBS_LEASE_DIR"))) if site is None else site
    for path, is_required in ((site, False), (paths.config_file(environ), bool(environ.get("DIBS_CONFIG")))):
        if path is not None and (text := texts.read(path, is_required)) is not None:
            for name, value in check_text(path, text, environ).items():
                if name == RULES:
                    # What root says about a project counts.
                    values[name] = lab_rules.merged(values.get(name), value)
                elif isinstance(value, dict):
                    # A user's table replaces that of the same name for the whole machine.
                    values[name] = {**values.get(name, {}), **value}  # type: ignore[dict-item]
                    sources |= {f"{name}.{own}": str(path) for own in value}
                else:
                    values[name], sources[name] = value, str(path)
    for setting in SETTINGS:
        # An empty variable counts as unset, as in the XDG standard.
        if text := environ.get(setting.variable):
            if setting.is_roots:
                raise only_root(setting, setting.variable)
            values[setting.name] = setting.kind.checked(setting.kind.from_text(text), setting.variable, environ)
            sources[setting.name] = setting.variable
    # Each kind returns the type of its field; a test checks all of them.
    return Settings(**values, sources=sources)  # type: ignore[arg-type]


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


def check_text(path: Path, text: str, environ: Mapping[str, str]) -> dict[str, object]:
    """Return the checked values of the text of a configuration file; errors name `path` and the line."""
    table = texts.parsed(path, text)
    known = {setting.name: setting for setting in SETTINGS}
    rules = _rules(table, path)
    named = {kind.name: setting_tables.read(kind, table.pop(kind.name, {}), str(path), environ) for kind in TABLES}
    wheres = {name: f"{path}{texts.line_of(name, text)}" for name in table}
    for name, where in wheres.items():
        if name not in known:
            raise _unknown(where, name, list(known))
        if not known[name].is_in_files:
            raise errors.UserError(f"{where}: {not_in_files(known[name])}", f"Set {known[name].variable} instead.")
        if known[name].is_roots and not _is_site(path):
            raise only_root(known[name], where)
    single = {
        name: known[name].kind.checked(value, f"{wheres[name]}: {name}", environ) for name, value in table.items()
    }
    return single | {name: values for name, values in named.items() if values} | rules


def _rules(table: dict[str, object], path: Path) -> dict[str, object]:
    """Return the rules for all users, or for the projects of one, that a file has; take them out of its table."""
    own = {name: table.pop(name) for name in lab_rules.TABLES if name in table}
    if not own:
        return {}
    return {RULES: lab_rules.parse(own, str(path), is_site=_is_site(path))}


def _is_site(path: Path) -> bool:
    """Tell whether a file has the rules of a machine."""
    return str(path).endswith(lab_rules.SITE_FILE)


def only_root(setting: Setting, where: str) -> errors.UserError:
    """Return the error for a setting that counts for all users and was set by one."""
    text = f"{where}: {setting.name} can be set only in {SITE_CONFIG}."
    return errors.UserError(text, "It affects all users: ask the administrator of this machine.")


def not_in_files(setting: Setting) -> str:
    """Return the error text for a setting that only its variable can set."""
    return f"{setting.name} cannot be set in a file."


def _unknown(where: str, name: str, known: list[str]) -> errors.UserError:
    hint = suggestions.did_you_mean(name, known) or f"The settings are: {', '.join(known)}."
    return errors.UserError(f'{where}: there is no setting "{name}".', hint)
