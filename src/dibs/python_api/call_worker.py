"""The inside of a job that is a call from Python: run one function, and leave its value or exception as the result.

The exit code tells the queue how it went: 0 for a value, 1 for an exception (or what `sys.exit` was given), so that
`failed`, retries and notices mean the same as for any other job. Every call pays for what is imported here.
"""

from __future__ import annotations

import os
import sys

from dibs.python_api import pickling
from dibs.store import call_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn


class Failed(Exception):
    """One of several calls in a row raised: what the calls before it returned, and what it raised."""

    def __init__(self, values: list[object], error: BaseException) -> None:
        self.values = values
        self.error = error


def run_all(function: Callable[..., Any], many: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call a function with each of these arguments; the first exception ends it."""
    values: list[Any] = []
    for args in many:
        try:
            values.append(function(*args))
        except BaseException as error:  # noqa: BLE001 (it is raised again, with what came before it)
            raise Failed(values, error) from None
    return values


def main() -> NoReturn:
    """Run the call that the command line names, as part of the job that the environment names."""
    key, number = sys.argv[1:]
    path = call_files.result_path(os.environ["DIBS_JOB_DIR"], os.environ["DIBS_ATTEMPT"])
    # What the function sees is a program without arguments, and no more of ours than there must be.
    sys.argv[1:] = []
    values: list[object] = []
    try:
        value = _call(os.environ["DIBS_HOME"], key, int(number))
        body = pickling.dump(value, "the result of the call")
    except Failed as failed:
        values, error = failed.values, failed.error
    except BaseException as raised:  # noqa: BLE001 (also sys.exit: the caller is told, whatever it was)
        error = raised
    else:
        call_files.write_result(path, call_files.VALUE, body)
        sys.exit(0)
    told = _told(error)
    sys.stderr.write(told)
    call_files.write_result(path, call_files.ERROR, _dump_error(values, error), told)
    sys.exit(_exit_code(error))


def _call(home: str, key: str, number: int) -> Any:
    context, call = call_files.read(home, key, number)
    path, python = pickling.loads(context)
    sys.path[:] = path
    if python != sys.version_info[:2]:
        raise RuntimeError(
            f"the call was made by Python {python[0]}.{python[1]}, but {sys.executable} is "
            f"{sys.version_info[0]}.{sys.version_info[1]} now; make it again."
        )
    function, args, kwargs = pickling.loads(call)
    return function(*args, **kwargs)


def _told(error: BaseException) -> str:
    """Return the traceback as people read it, without the frames that are ours."""
    import traceback

    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _dump_error(values: list[object], error: BaseException) -> bytes:
    """Return an exception, and the values before it, as bytes; empty where it would not come out again."""
    try:
        body = pickling.dump((values, error), "the exception of the call")
        # Some exceptions can be taken apart but not put together.
        pickling.loads(body)
    except Exception:  # noqa: BLE001 (whatever a stranger's __reduce__ raises; its text is told all the same)
        return b""
    return body


def _exit_code(error: BaseException) -> int:
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1
