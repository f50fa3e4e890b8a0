"""Start a command: create its folders and outputs, and find the program as a shell would.

`runner.main` decides when. Failures are reported with the exit code of a shell.
"""

from __future__ import annotations

import errno
import os
import sys

from dibs.runner import records, spares
from dibs.system import output_files, processes, refusals, trusted_paths
from dibs.system.crash_points import crash_point
from dibs.system.lean import signal

#: Ignored by Python, by our launcher, or by tools such as nohup: a command gets the default handlers.
OFTEN_IGNORED = tuple(
    getattr(signal, f"SIG{name}")
    for name in ("HUP", "INT", "QUIT", "PIPE", "TERM", "USR1", "USR2", "CHLD", "TSTP", "TTIN", "TTOU", "XFSZ")
)

#: Errors at a log that is a link, or nothing that takes output.
PLANTED = (errno.ELOOP, errno.EINVAL)


class CannotStart(Exception):
    """The command could not be started, with the exit code of a shell: 126 or 127.

    With a `refusal` it is the machine's trouble. At files of dibs (`is_own`) it always is, unless one was planted.
    """

    def __init__(self, code: int, what: str | bytes, error: OSError, *, is_own: bool = False) -> None:
        super().__init__(f"{refusals.readable(what)}: {error.strerror or error}")
        self.code = code
        is_ours = is_own and error.errno not in PLANTED
        self.refusal = refusals.of_own(error, what) if is_ours else refusals.of_users(error, what)


def spawn(spec: records.Spec, spare: spares.Spare | None, inherited: list[int]) -> int:
    """Start the command in its own session with the given descriptors on numbers from 100 up; return its pid."""
    mask = os.umask(spec.umask)
    opened: list[int] = []
    try:
        try:
            os.chdir(spec.cwd)
        except OSError as error:
            raise CannotStart(126, spec.cwd, error) from error
        _check_trusted(spec, spare)
        _furnish(spec, spare)
        if spare is None:
            opened.append(_open_output(spec.output, spec.output_mode))
        if spec.stderr is not None:
            # A file of the user, even if the other output is our log. The umask is already set.
            opened.append(_open_output(spec.stderr, 0o666))
        outputs = [*([spare.log] if spare is not None else []), *opened]
        crash_point("runner:opened")
        first = max(processes.FIRST_FD, *(fd + 1 for fd in inherited), 0)
        copies = [(outputs[0], 1), (outputs[-1], 2), *((fd, first + place) for place, fd in enumerate(inherited))]
        actions = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in copies]
        return _execute(spec, [(os.POSIX_SPAWN_OPEN, 0, b"/dev/null", os.O_RDONLY, 0), *actions])
    finally:
        _let_go(opened, mask)


def _let_go(fds: list[int], mask: int) -> None:
    """Release the user's files and folders, which may be unmounted. An error must not hide that the command runs."""
    os.umask(mask)
    os.chdir("/")
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            # A network file system may report a late error; the command has the file open and gets it too.
            sys.excepthook(*sys.exc_info())


def _check_trusted(spec: records.Spec, spare: spares.Spare | None) -> None:
    """Refuse to write our own log where another user could redirect it: a folder may have been replaced since."""
    if spare is not None or spec.output_mode is not None:
        return
    why = trusted_paths.find_problem(os.fsdecode(os.path.dirname(spec.output)))
    if why is not None:
        # The path no longer leads to our folder; that is not the job's fault.
        raise CannotStart(126, spec.output, OSError(errno.ESTALE, why))


def _furnish(spec: records.Spec, spare: spares.Spare | None) -> None:
    """Create the job's folders and the link to its newest output. Done in the runner: they may be on a slow network."""
    try:
        for folder in spec.folders if spare is None else ():
            make_folder(os.fsdecode(folder))
        if spec.latest is not None and spare is None:
            _point(spec.latest, os.path.relpath(spec.output, os.path.dirname(spec.latest)))
    except OSError as error:
        raise CannotStart(126, error.filename or spec.output, error, is_own=True) from error
    try:
        if spec.run_folder is not None:
            os.makedirs(spec.run_folder, exist_ok=True)
    except OSError as error:
        raise CannotStart(126, error.filename or spec.run_folder or b"", error) from error


def _point(link: bytes, target: bytes) -> None:
    """Create a link, or replace it atomically."""
    try:
        os.symlink(target, link)
    except FileExistsError:
        fresh = link + b".new"
        if os.path.lexists(fresh):
            os.unlink(fresh)
        os.symlink(target, fresh)
        os.rename(fresh, link)


def _open_output(path: bytes, mode: int | None) -> int:
    """Open a log to append to, creating its folders; our own (no mode) is private and never opened through a link."""
    file_mode, folder_mode = (0o600, 0o700) if mode is None else (mode, 0o777)
    is_chosen = mode is not None
    try:
        try:
            fd = output_files.open_to_append(path, file_mode, follows_links=is_chosen)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), folder_mode, exist_ok=True)
            fd = output_files.open_to_append(path, file_mode, follows_links=is_chosen)
    except OSError as error:
        raise CannotStart(126, path, error, is_own=mode is None) from error
    return spares.above_standard(fd)


def _execute(spec: records.Spec, actions: list[tuple[object, ...]]) -> int:
    """Start the program as execvp would: by the job's own PATH, and with sh if it has no `#!`."""
    env = dict([entry.split(b"=", 1) for entry in spec.env if b"=" in entry])
    program = _find(spec.argv[0], env.get(b"PATH", os.fsencode(os.defpath)))

    def start(path: bytes, argv: tuple[bytes, ...]) -> int:
        return os.posix_spawn(
            path, argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=OFTEN_IGNORED
        )

    try:
        try:
            return start(program, spec.argv)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            return start(b"/bin/sh", (b"sh", program, *spec.argv[1:]))
    except OSError as error:
        if error.errno == errno.EBADF:
            # The number of a descriptor that the command inherits is above the limit of open files.
            error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        raise CannotStart(126, spec.argv[0], error) from error


def _find(name: bytes, path: bytes) -> bytes:
    """Return the program a shell would run; fail with 127 if not found, 126 if not executable."""
    candidates = [name] if b"/" in name else [os.path.join(part or b".", name) for part in path.split(b":")]
    for candidate in candidates:
        if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    if any(map(os.path.isfile, candidates)) or (b"/" in name and os.path.exists(name)):
        raise CannotStart(126, name, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    raise CannotStart(127, name, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))


def make_folder(path: str) -> None:
    """Create a folder, which is almost certainly new, and its missing parents."""
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        make_folder(os.path.dirname(path))
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
