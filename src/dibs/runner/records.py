"""The data that daemon and runner exchange: the spec of a start, and the records of its run.

Values and their encoding, readable by older and newer versions. `attempts` and `runner` decide when to write them.
"""

from __future__ import annotations

import os
import zlib

from dibs.system.lean import record
from dibs.system.process_tree import LEFTOVER_GRACE_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SPEC_HEAD = b"dibs-spec 1"
STATUS_HEAD = b"dibs-status 1"

#: Bytes of a claimed `started` file, all allocated before the claim: a full disk cannot lose the result.
SIZE = 4096
#: The claim has the first sector, the running record the second, the final record the rest: no write can tear another.
RUNNING_AT = 512
FINAL_AT = 1024
#: Bytes kept of a free text in a final record; all texts together must fit.
TEXT_MAX = 600


@record
class Spec:
    """What a runner needs to know. Arguments, variables and paths are bytes: everything but NUL is preserved."""

    job: int
    attempt: int
    start: int
    #: The folder of this attempt, in the local state folder; created if missing.
    folder: str
    argv: tuple[bytes, ...]
    #: Each `K=V`.
    env: tuple[bytes, ...]
    cwd: bytes
    #: Path for stdout, and for stderr unless it has its own path.
    output: bytes
    stderr: bytes | None = None
    #: None: our own log, private and never opened through a link. Otherwise the mode of a file the user chose.
    output_mode: int | None = None
    umask: int = 0o077
    #: Created, with their parents, before the command starts.
    folders: tuple[bytes, ...] = ()
    #: The folder of a sweep's run, which belongs to the user and is not private.
    run_folder: bytes | None = None
    #: A link that is made to point to the output; None: no link.
    latest: bytes | None = None
    #: Devices to lease exclusively; and those to share, each `UUID MIB CAPACITY_MIB SLOTS`.
    devices: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    lease_dir: str = ""
    note_job: str = ""
    #: Whether others see that it gives its devices up to ordinary jobs, and the user for whom it did so last.
    evictable: bool = False
    evicted_by: str = ""
    time_limit_s: float | None = None
    grace_s: float = 30.0
    leftover_grace_s: float = LEFTOVER_GRACE_S
    wait_tree: bool = False
    #: A signal to send `warn_s` before the time limit; 0: none.
    warn_signal: int = 0
    warn_s: float = 0.0
    #: Path of a datagram socket that gets a message for each step; None: no listener.
    notify: bytes | None = None
    #: A folder that was created in advance for this start (`spares`); empty: none.
    spare: str = ""
    #: The engine whose node this runs on, with all files in a folder that its nodes share; empty: the daemon's machine.
    engine: str = ""
    #: How many devices the engine was asked for; its variables say which ones.
    gpus: int = 0
    #: The machine of the daemon, and its devices, each `INDEX UUID`: there an engine's devices are leased too.
    machine: str = ""
    machine_devices: tuple[str, ...] = ()
    #: Not sent: the node of the engine, known only there.
    node: str = ""


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _words(raw: bytes) -> str:
    """Decode display text, which may be cut in the middle of a character."""
    return raw.decode("utf-8", "replace")


def _octal(raw: bytes) -> int:
    return int(raw, 8)


def _flag(raw: bytes) -> bool:
    return raw == b"1"


#: Key of a spec line, attribute, and parser. A key with a list may occur many times.
SPEC_KEYS: dict[bytes, tuple[str, Callable[[bytes], object]]] = {
    b"job": ("job", int),
    b"attempt": ("attempt", int),
    b"start": ("start", int),
    b"cwd": ("cwd", bytes),
    b"umask": ("umask", _octal),
    b"output": ("output", bytes),
    b"output_mode": ("output_mode", _octal),
    b"stderr": ("stderr", bytes),
    b"latest": ("latest", bytes),
    b"attempt_folder": ("folder", _text),
    b"folder": ("folders", bytes),
    b"run_folder": ("run_folder", bytes),
    b"lease_dir": ("lease_dir", _text),
    b"note_job": ("note_job", _text),
    b"evictable": ("evictable", _flag),
    b"evicted_by": ("evicted_by", _text),
    b"time_limit_s": ("time_limit_s", float),
    b"grace_s": ("grace_s", float),
    b"leftover_grace_s": ("leftover_grace_s", float),
    b"wait_tree": ("wait_tree", _flag),
    b"warn_signal": ("warn_signal", int),
    b"warn_s": ("warn_s", float),
    b"notify": ("notify", bytes),
    b"spare": ("spare", _text),
    b"engine": ("engine", _text),
    b"gpus": ("gpus", int),
    b"machine": ("machine", _text),
    b"machine_device": ("machine_devices", _text),
    b"argv": ("argv", bytes),
    b"env": ("env", bytes),
    b"device": ("devices", _text),
    b"share": ("shares", _text),
}
SPEC_LISTS = ("argv", "env", "folders", "devices", "shares", "machine_devices")


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return str(int(value) if isinstance(value, bool) else value).encode("utf-8", "surrogateescape")


def pack(spec: Spec) -> bytes:
    """Encode a spec, without what is empty: every reader takes that as the default."""
    items = [SPEC_HEAD]
    count = 0
    values = vars(spec)
    for key, (name, reading) in SPEC_KEYS.items():
        value = values[name]
        if value is None or value is False or value == "" or value == ():
            continue
        if name == "env":
            # The largest part, and already bytes.
            items.append(b"env=" + b"\0env=".join(value))
            count += len(value) - 1
        elif name in SPEC_LISTS:
            items += [key + b"=" + _bytes(one) for one in value]
        else:
            items.append(key + b"=" + (b"%o" % value if reading is _octal else _bytes(value)))
    packed = b"\0".join(items)
    if packed.count(b"\0") != len(items) - 1 + count:
        raise ValueError("a command, variable or path contains a NUL byte")
    return packed


def unpack(packed: bytes) -> Spec:
    """Decode a spec; ignore unknown keys, so that an old runner understands a newer daemon."""
    head, *items = packed.split(b"\0")
    if head != SPEC_HEAD:
        raise ValueError(f"a spec begins with {head[:40]!r}, expected {SPEC_HEAD!r}")
    values: dict[str, object] = {}
    lists: dict[str, list[object]] = {name: [] for name in SPEC_LISTS}
    # The largest part, and already bytes.
    lists["env"] += [item[4:] for item in items if item[:4] == b"env="]
    for item in items:
        if item[:4] == b"env=":
            continue
        key, _, raw = item.partition(b"=")
        if key not in SPEC_KEYS:
            continue
        name, reading = SPEC_KEYS[key]
        if name in lists:
            lists[name].append(raw if reading is bytes else reading(raw))
        else:
            values[name] = reading(raw)
    return Spec(**values, **{name: tuple(found) for name, found in lists.items()})  # type: ignore[arg-type]


@record
class RunningCommand:
    """The command was started: its process and the start time (wall clock)."""

    pid: int
    starttime: int
    started_at_ns: int
    #: The node of an engine, as the engine calls it; empty: this machine, or the engine does not tell its jobs.
    node: str = ""


@record
class Final:
    """How a start ended: `exited`, `signalled`, `failed` (could not be started), `nolease`, `refused` or `lost`.

    The machine, not the job, is why a start was `refused`; `scope` is that of `refusals.Refusal`. `lost`: the runner
    was killed, and its parent ended what it left.
    """

    kind: str
    #: Exit code of `exited`; for `failed` the code of a shell: 126, 127, or 125 for an internal error.
    code: int = 0
    signal: int = 0
    #: Why it could not start, or why the lease was refused: the device, and the holder's pid (0: unknown).
    why: str = ""
    device: str = ""
    holder: int = 0
    scope: str = ""
    #: Wall clock; 0 if the command never ran.
    started_at_ns: int = 0
    ended_at_ns: int = 0
    #: Of the largest process; and the sums over all processes that were reaped.
    max_rss_kib: int = 0
    utime_s: float = 0.0
    stime_s: float = 0.0
    #: The command was still running when its time limit, or a stop order, came.
    timed_out: bool = False
    stopped: bool = False
    #: The end of its output, or the kernel, reports exhausted memory.
    out_of_memory: bool = False
    #: Processes that were still running when the command ended: `4242 python, 4250 sleep`.
    leftovers: str = ""
    note: str = ""


FINAL_KINDS = ("exited", "signalled", "failed", "nolease", "refused", "lost")

_RUNNING_KEYS: dict[str, Callable[[bytes], object]] = {
    "pid": int,
    "starttime": int,
    "started_at_ns": int,
    "node": _words,
}
_FINAL_KEYS: dict[str, Callable[[bytes], object]] = {
    "kind": _words,
    "code": int,
    "signal": int,
    "why": _words,
    "device": _words,
    "holder": int,
    "scope": _words,
    "started_at_ns": int,
    "ended_at_ns": int,
    "max_rss_kib": int,
    "utime_s": float,
    "stime_s": float,
    "timed_out": _flag,
    "stopped": _flag,
    "out_of_memory": _flag,
    "leftovers": _words,
    "note": _words,
}


def write_running(started: int, running: RunningCommand) -> None:
    """Record that the command runs. Not synced: after a power cut its pid means nothing."""
    values = {key: value for key in _RUNNING_KEYS if (value := getattr(running, key)) != ""}
    os.pwrite(started, _record(values), RUNNING_AT)


def write_final(started: int, final: Final) -> bytes:
    """Write the final record in place, and return it. What is empty or 0 is left out: readers take that as default."""
    record = _record({key: value for key in _FINAL_KEYS if (value := getattr(final, key))})
    os.pwrite(started, record, FINAL_AT)
    return record


def running_in(content: bytes) -> RunningCommand | None:
    """Return the running record of a `started` file, or None if none was written completely."""
    values = _record_in(content[RUNNING_AT:FINAL_AT], _RUNNING_KEYS)
    is_whole = values is not None and {"pid", "starttime", "started_at_ns"} <= values.keys()
    return RunningCommand(**values) if values and is_whole else None  # type: ignore[arg-type]


def final_in(content: bytes) -> Final | None:
    """Return the final record of a `started` file, or None if none was written completely."""
    return read_final_record(content[FINAL_AT:SIZE])


def read_final_record(record: bytes) -> Final | None:
    """Return what a final record says; None if it is not whole."""
    values = _record_in(record, _FINAL_KEYS)
    return Final(**values) if values and values.get("kind") in FINAL_KINDS else None  # type: ignore[arg-type]


def read_running(folder: str, start: int) -> RunningCommand | None:
    """Return the running record of a start; None if there is none."""
    return running_in(_read(folder, start))


def read_final(folder: str, start: int) -> Final | None:
    """Return the final record of a start; None if there is none."""
    return final_in(_read(folder, start))


def _read(folder: str, start: int) -> bytes:
    try:
        with open(f"{folder}/started.{start}", "rb", buffering=0) as file:
            return file.read(SIZE)
    except (FileNotFoundError, NotADirectoryError):
        return b""


def _record(values: dict[str, object]) -> bytes:
    """Encode `head NUL key=value NUL ... NUL crc newline`. A newline in a value would end the record too early."""
    items = [STATUS_HEAD]
    for key, value in values.items():
        items.append(key.encode() + b"=" + _bytes(value).translate(_ONE_LINE)[:TEXT_MAX])
    body = b"\0".join(items) + b"\0"
    return body + b"%08x\n" % zlib.crc32(body)


_ONE_LINE = bytes(range(256)).translate(bytes.maketrans(b"\0\n", b"  "))


def _record_in(part: bytes, keys: dict[str, Callable[[bytes], object]]) -> dict[str, object] | None:
    record = part.partition(b"\n")[0]
    body, crc = record[:-8], record[-8:]
    if crc != b"%08x" % zlib.crc32(body) or not body.startswith(STATUS_HEAD + b"\0"):
        return None
    pairs = (item.partition(b"=") for item in body.split(b"\0"))
    try:
        return {name: keys[name](raw) for key, _, raw in pairs if (name := _text(key)) in keys}
    except ValueError:
        return None
