"""Runs one call of `dibs.Executor` inside its job, and writes the value or the exception as the result.

The exit code is 0 for a value and 1 for an exception (or the code of `sys.exit`), so that states, retries and
notifications work as for any job. Imports here slow down every call.
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


#: The name of a returned number in a report.
RESULT = "result"
#: Numbers of a returned mapping that are reported.
MOST_NUMBERS = 100


class ChunkError(Exception):
    """A call of a chunk raised: its exception, and the values of the calls before it."""

    def __init__(self, values: list[object], error: BaseException) -> None:
        self.values = values
        self.error = error


def run_all(function: Callable[..., Any], many: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call a function with each tuple of arguments; stop at the first exception."""
    values: list[Any] = []
    for args in many:
        try:
            values.append(function(*args))
        except BaseException as error:  # noqa: BLE001 (raised again, with the values before it)
            raise ChunkError(values, error) from None
    return values


def main() -> NoReturn:
    """Run the call that the command line names, as part of the job that the environment names."""
    key, number = sys.argv[1:]
    path = call_files.result_path(os.environ["DIBS_JOB_DIR"], os.environ["DIBS_ATTEMPT"])
    # The function must not see our arguments.
    sys.argv[1:] = []
    values: list[object] = []
    try:
        # On a cluster the calls lie in the folder that all nodes see.
        home = os.environ.get("DIBS_CALLS") or os.environ["DIBS_HOME"]
        value = _call(home, key, int(number))
        body = pickling.dump(value, "the result of the call")
    except ChunkError as chunk:
        values, error = chunk.values, chunk.error
    except BaseException as raised:  # noqa: BLE001 (also SystemExit: every end becomes a result)
        error = raised
    else:
        if "DIBS_SWEEP" in os.environ:
            _report(value)
        call_files.write_result(path, call_files.VALUE, body)
        sys.exit(0)
    text = _format(error)
    sys.stderr.write(text)
    call_files.write_result(path, call_files.ERROR, _dump_error(values, error), text)
    sys.exit(_exit_code(error))


def _call(home: str, key: str, number: int) -> Any:
    context, call = call_files.read(home, key, number)
    path, python = pickling.loads(context)
    sys.path[:] = path
    if python != sys.version_info[:2]:
        raise RuntimeError(
            f"the call was submitted by Python {python[0]}.{python[1]}, but {sys.executable} is now "
            f"{sys.version_info[0]}.{sys.version_info[1]}; submit it again."
        )
    function, args, kwargs = pickling.loads(call)
    return function(*args, **kwargs)


def _report(value: object) -> None:
    """Report a returned number as `result`, or the numbers of a returned mapping; other values are not reported."""
    from dibs.errors import MachineError, UserError
    from dibs.python_api import inside_job

    numbers: dict[str, float] = {}
    for name, each in list(value.items() if isinstance(value, dict) else [(RESULT, value)])[:MOST_NUMBERS]:
        try:
            numbers[name] = inside_job.number(name, each)
        except (UserError, TypeError, AttributeError):
            # Not a number, or not a name.
            continue
    try:
        if numbers:
            inside_job.report(**numbers)
    except MachineError as error:
        # The call itself succeeded.
        sys.stderr.write(f"dibs: {error.line()}\n")


def _format(error: BaseException) -> str:
    """Return the traceback as text, without the frames of this module."""
    import traceback

    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _dump_error(values: list[object], error: BaseException) -> bytes:
    """Pickle an exception and the values before it; return nothing if it cannot be unpickled."""
    try:
        body = pickling.dump((values, error), "the exception of the call")
        # Some exceptions can be pickled but not unpickled.
        pickling.loads(body)
    except Exception:  # noqa: BLE001 (user code in __reduce__; the traceback is sent anyway)
        return b""
    return body


def _exit_code(error: BaseException) -> int:
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1
