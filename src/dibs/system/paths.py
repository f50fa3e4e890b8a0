"""Paths on this machine: the state folder, the sockets, and the files of a job.

Decides names and checks owners; other modules handle the contents of the files. Every client imports this module on
every call, so it imports little.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dibs import errors

#: The folder for sockets whose name would be too long in the state folder.
TMP = Path("/tmp")

#: sun_path holds 108 bytes including NUL; the rest is for the suffix of a temporary name.
SOCKET_BYTES = 100

MACHINE_ID_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")

#: File systems that other machines may write to: no SQLite WAL, no reliable flock. autofs is included because it nearly
#: always mounts one of the others.
NETWORK_TYPES = frozenset(
    {
        *("9p", "acfs", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "drvfs", "dvs", "fuse", "gfs2", "glusterfs"),
        *("gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2", "smb2", "smb3"),
        *("smbfs", "vboxsf", "virtiofs", "vmhgfs", "wekafs"),
    }
)

#: FUSE file systems that are known to use a local disk. Every other `fuse.*` counts as a network.
LOCAL_FUSE_TYPES = frozenset({"fuse.encfs", "fuse.fuse-overlayfs", "fuse.gocryptfs"})

ELSEWHERE = "Set DIBS_HOME to another folder."


@dataclass(frozen=True)
class Home:
    """The state folder, and a note for the user about how it was chosen."""

    path: Path
    note: str | None = None


@dataclass(frozen=True)
class Machine:
    """What the choice of a state folder depends on, apart from the environment."""

    id: str
    uid: int
    #: The text of /proc/self/mountinfo.
    mounts: str
    #: Local, and not emptied at boot.
    var_tmp: Path = Path("/var/tmp")


def home(environ: Mapping[str, str]) -> Home:
    """Return the state folder of this user on this machine, without creating it."""
    explicit = environ.get("DIBS_HOME")
    base = None if explicit else _xdg(environ, "XDG_STATE_HOME", ".local/state")
    # An automounted folder appears in the mount table only after an access.
    _touch(explicit or os.fspath(base or "/"))
    return choose_home(environ, Machine(machine_id(), os.geteuid(), read_text("/proc/self/mountinfo")))


def choose_home(environ: Mapping[str, str], machine: Machine) -> Home:
    """Return the state folder: the one in `environ`, else the default, else one on a local disk."""
    if environ.get("DIBS_HOME"):
        path = _from_variable("DIBS_HOME", environ)
        if kind := network_type(path, machine.mounts):
            raise errors.UserError(
                f'DIBS_HOME: expected a folder on a local disk, got "{path}" on a network file system ({kind}).',
                "Leave DIBS_HOME unset, or name a local folder; logs may go to the network with DIBS_FILES.",
            )
        return Home(path)
    path = _xdg(environ, "XDG_STATE_HOME", ".local/state") / "dibs" / machine.id
    kind = network_type(path, machine.mounts)
    return Home(path) if kind is None else _local_home(path, kind, machine)


def _local_home(path: Path, kind: str, machine: Machine) -> Home:
    local = machine.var_tmp / f"dibs-{machine.uid}" / machine.id
    if network_type(local, machine.mounts):
        raise errors.UserError(
            f"expected a local disk for the state of dibs, but {path} and {local} are both on a network file system.",
            "Set DIBS_HOME to a folder on a local disk.",
        )
    return Home(local, f"{path} is on a network file system ({kind}), so dibs keeps its state in {local}")


def prepare(home: Path, tmp: Path = TMP) -> None:
    """Create the state folder (0700) and its socket's folder; raise an error if one is not private to us."""
    _make_parents(home)
    make_private(home)
    folder = socket_path(home, tmp).parent
    if folder != home:
        make_private(folder)


def _make_parents(path: Path) -> None:
    """Create the missing parents of `path`, after checking the existing ones."""
    missing = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    nearest = next(folder for folder in (path, *path.parents) if folder not in missing)
    if missing and os.geteuid() == 0 and os.lstat(nearest).st_uid != 0:
        # sudo often keeps HOME: root would create folders in a user's home that the user cannot write to.
        raise errors.UserError(
            f"expected {nearest} to belong to root, but it belongs to {_owner(nearest)}.",
            "Run dibs without sudo, or set DIBS_HOME.",
        )
    for parent in path.parents:
        _check_unplanted(parent)
    for folder in reversed(missing):
        if folder != path:
            _mkdir(folder, 0o700 if _is_shared(folder.parent) else 0o755)


def make_private(path: Path) -> None:
    """Ensure that `path` is a folder of ours that no other user may enter (0700); create it if it is missing."""
    _mkdir(path, 0o700)
    _check_unplanted(path)
    try:
        found = os.stat(path)
        _check_folder(path, found)
        if found.st_mode & 0o077:
            _check_unused(path, found)
            os.chmod(path, 0o700)
        is_open = os.stat(path).st_mode & 0o077
    except OSError as error:
        raise errors.UserError(f"cannot make {path} private (0700): {error.strerror}.", ELSEWHERE) from error
    if is_open:
        # vfat and some mounts accept a chmod and ignore it.
        raise errors.UserError(
            f"expected {path} to become private (0700), but its file system does not store permissions.", ELSEWHERE
        )


def _check_unused(path: Path, found: os.stat_result) -> None:
    """Raise an error before making a folder private that others may enter, unless it is empty or already ours."""
    names = os.listdir(path)
    if found.st_mode & stat.S_ISVTX or (names and not {"dibs.db", "start.lock", "daemon.lock"} & set(names)):
        raise errors.UserError(
            f"{path} is open to other users and is not a folder of dibs; it was not changed.", ELSEWHERE
        )


def hold(home: Path) -> int:
    """Lock the state folder against systemd-tmpfiles while the returned descriptor is open.

    /var/tmp loses files that were not used for 30 days; folders with a flock are skipped, with everything below.
    """
    import fcntl

    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def socket_path(home: Path, tmp: Path = TMP) -> Path:
    """Return the daemon's socket: in the state folder, or in /tmp if that path is too long for a socket."""
    return _socket(home, "dibs.sock", tmp)


def notify_path(home: Path, tmp: Path = TMP) -> Path:
    """Return the socket on which runners wake the daemon."""
    return _socket(home, "notify.sock", tmp)


def commands_socket(home: Path) -> Path | None:
    """Return the socket of the command server; None if its path is too long, which its thin client does not solve."""
    path = home / "commands.sock"
    return path if len(os.fsencode(path)) <= SOCKET_BYTES else None


def _socket(home: Path, name: str, tmp: Path) -> Path:
    path = home / name
    if len(os.fsencode(path)) <= SOCKET_BYTES:
        return path
    # Imported only in this rare case: it costs as much as the rest of this module.
    import hashlib

    folder = tmp / f"dibs-{os.geteuid()}"
    if os.path.lexists(folder):
        # A folder of another user could read our commands and impersonate our daemon.
        _check_folder(folder, os.lstat(folder))
    return folder / f"{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}.{name}"


def database(home: Path) -> Path:
    """Return the database of jobs."""
    return home / "dibs.db"


def daemon_lock(home: Path) -> Path:
    """Return the file whose lock shows that a daemon is running."""
    return home / "daemon.lock"


def start_lock(home: Path) -> Path:
    """Return the file whose lock lets one client at a time start the daemon."""
    return home / "start.lock"


def daemon_log(home: Path) -> Path:
    """Return the daemon's own log."""
    return home / "daemon.log"


def web_file(home: Path) -> Path:
    """Return the file with the token for browsers."""
    return home / "web.json"


def config_file(environ: Mapping[str, str]) -> Path | None:
    """Return the user's configuration file, existing or not; None if the user has no home."""
    if environ.get("DIBS_CONFIG"):
        return _from_variable("DIBS_CONFIG", environ)
    try:
        return _xdg(environ, "XDG_CONFIG_HOME", ".config") / "dibs" / "config.toml"
    except errors.UserError:
        return None


def user_home(environ: Mapping[str, str]) -> Path:
    """Return the user's home: `$HOME`, else the entry in the user database."""
    named = environ.get("HOME", "")
    if os.path.isabs(named):
        return Path(named)
    import pwd

    try:
        entry = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        entry = ""
    if not os.path.isabs(entry):
        raise errors.UserError(
            f"expected a home folder, but HOME is not set and user {os.geteuid()} has none.", "Set HOME or DIBS_HOME."
        )
    return Path(entry)


def absolute(text: str, environ: Mapping[str, str]) -> Path:
    """Return the absolute path that `text` names; `~/` is the user's home."""
    if text == "~" or text.startswith("~/"):
        text = os.path.join(user_home(environ), text[2:])
    if not os.path.isabs(text) or "\0" in text:
        raise errors.UserError(f'expected an absolute path, got "{text}".', "Start it with / or ~/.")
    return Path(os.path.normpath(text))


def _from_variable(name: str, environ: Mapping[str, str]) -> Path:
    try:
        # The path is part of requests and answers, which are JSON.
        environ[name].encode()
        return absolute(environ[name], environ)
    except UnicodeEncodeError:
        raise errors.UserError(f"{name}: expected UTF-8 text, got other bytes.") from None
    except errors.UserError as error:
        raise errors.UserError(f"{name}: {error.message}", error.hint) from None


def machine_id(files: tuple[str, ...] = MACHINE_ID_FILES) -> str:
    """Return an id that distinguishes this machine from others that share the home folder."""
    for file in files:
        word = read_text(file).strip()
        # It contains "uninitialized" during the first boot.
        if len(word) == 32 and word.isalnum() and word.isascii():
            return word
    return os.uname().nodename.replace("/", "_") or "localhost"


def network_type(path: Path, mounts: str) -> str | None:
    """Return the type of the network file system that `path` is on; None if it is local.

    `mounts` is the text of /proc/self/mountinfo. Symbolic links are followed, and `path` need not exist.
    """
    kind = mount_type(os.path.realpath(path), mounts)
    is_fuse = kind.startswith("fuse.") and kind not in LOCAL_FUSE_TYPES
    return kind if is_fuse or kind in NETWORK_TYPES else None


def mount_type(path: str, mounts: str) -> str:
    """Return the file system type of the deepest mount above `path`; of stacked mounts, the newest."""
    depth, found = -1, ""
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        words = before.split()
        if not separator or len(words) < 5 or not after:
            continue
        point = _unescape(words[4]).rstrip("/")
        if (path == point or path.startswith(point + "/")) and len(point) >= depth:
            depth, found = len(point), after.split()[0]
    return found


def _unescape(text: str) -> str:
    """Decode the kernel's \\040 for a blank, and its other three escapes."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def _xdg(environ: Mapping[str, str], name: str, default: str) -> Path:
    """Return an XDG base folder; by that standard a relative value is ignored."""
    value = environ.get(name, "")
    return Path(os.path.normpath(value)) if os.path.isabs(value) else user_home(environ) / default


def _check_folder(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise errors.UserError(f"expected {path} to be a folder, but it is something else.", "Move it away.")
    if found.st_uid != os.geteuid():
        raise errors.UserError(
            f"expected {path} to belong to you (user {os.geteuid()}), but it belongs to {_owner(path)}.", ELSEWHERE
        )


def _check_unplanted(path: Path) -> None:
    """Raise an error for a link, or another user's folder, in a place that all users can write to."""
    if not _is_shared(path.parent) or not os.path.lexists(path):
        return
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()):
        raise errors.UserError(
            f"expected {path} to be a folder of yours, but it is not (it belongs to {_owner(path)}).", ELSEWHERE
        )


def _is_shared(path: Path) -> bool:
    """Return whether all users can write to `path`, such as /tmp."""
    try:
        return bool(os.stat(path).st_mode & stat.S_IWOTH)
    except OSError:
        return False


def _owner(path: Path) -> str:
    import pwd

    uid = os.lstat(path).st_uid
    try:
        return f"{pwd.getpwuid(uid).pw_name} (user {uid})"
    except KeyError:
        return f"user {uid}"


def _mkdir(path: Path, mode: int) -> None:
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        pass
    except OSError as error:
        raise errors.UserError(f"cannot create {path}: {error.strerror}.", ELSEWHERE) from error


def _touch(path: str) -> None:
    try:
        os.stat(os.path.join(path, "."))
    except OSError:
        pass


def read_text(path: str | Path) -> str:
    """Return the text of a file of the system; empty if it cannot be read."""
    try:
        return Path(path).read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
