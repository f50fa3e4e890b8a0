"""Every error dibs raises on purpose, grouped by who has to act.

    DibsError
    ├── UserError            fix the request                      exit 2    HTTP 400
    │   ├── NotFound         there is no such job or device       exit 3    HTTP 404
    │   ├── NotAllowed       somebody else's, or not permitted    exit 4    HTTP 403
    │   ├── NotSignedIn      no valid code or token               exit 4    HTTP 401
    │   ├── Conflict         the job is in the wrong state        exit 2    HTTP 409
    │   ├── Impossible       can never be satisfied here          exit 69   HTTP 422
    │   └── Busy             cannot start now (`--no-wait`)       exit 75   HTTP 409
    ├── MachineError         driver, disk or system; transient    exit 125  HTTP 503
    │   └── NoDaemon         none could be reached or started     exit 5
    ├── JobFailed            a job did not succeed                exit 1
    ├── OnlyHeld             only held jobs remain (`wait`)       exit 6
    ├── TimedOut             the caller's timeout expired         exit 124
    └── Bug                  a defect in dibs: fail loudly        exit 125  HTTP 500

A message is one line: what was expected, what came, and what to do next. `hint` is the part that says what to type.

Pure.
Lean.
Python 3.9.
"""


class DibsError(Exception):
    """Base class of all errors of dibs; `kind` is its name in the HTTP API."""

    kind = "error"
    exit_code = 125
    http_status = 500

    def __init_subclass__(cls, **facts: "str | int") -> None:
        """Take `kind`, `exit_code` and `http_status` from the head of a class; it inherits those it does not name."""
        super().__init_subclass__()
        for name, value in facts.items():
            setattr(cls, name, value)

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.line()

    def reword(self, message: str, hint: str) -> None:
        """Replace the texts; the class and what else the error knows stay."""
        self.args = (message,)
        self.message = message
        self.hint = hint

    def line(self) -> str:
        """Return message and hint as one line."""
        return f"{self.message} {self.hint}".strip()


class UserError(DibsError, kind="usage", exit_code=2, http_status=400):
    """The request is wrong; nothing was changed."""


class NotFound(UserError, kind="not_found", exit_code=3, http_status=404):
    """No such job or GPU."""


class NotAllowed(UserError, kind="not_allowed", exit_code=4, http_status=403):
    """Not allowed."""


class NotSignedIn(UserError, kind="not_signed_in", exit_code=4, http_status=401):
    """A browser sent no token, or one that is no longer valid."""


class Conflict(UserError, kind="conflict", http_status=409):
    """The job is in a state that does not allow this."""


class Impossible(UserError, kind="impossible", exit_code=69, http_status=422):
    """The request can never be satisfied on this machine."""


class Busy(UserError, kind="busy", exit_code=75, http_status=409):
    """It cannot start now, and the caller does not want to wait."""


class MachineError(DibsError, kind="machine", http_status=503):
    """The driver, the disk or the system refused; the problem may be temporary."""


class NoDaemon(MachineError, kind="no_daemon", exit_code=5):
    """No daemon could be reached or started."""


class JobFailed(DibsError, kind="job_failed", exit_code=1):
    """A job that the caller expected to succeed did not."""


class OnlyHeld(DibsError, kind="only_held", exit_code=6):
    """Only held jobs remain; `dibs unhold` releases them."""


class TimedOut(DibsError, TimeoutError, kind="timed_out", exit_code=124):
    """The caller's timeout expired; the job or operation continues."""


class Bug(DibsError, kind="bug"):
    """A defect in dibs. It is reported loudly and the operation is abandoned."""


KINDS = {
    error.kind: error
    for error in (
        *(DibsError, UserError, NotFound, NotAllowed, NotSignedIn, Conflict, Impossible, Busy),
        *(MachineError, NoDaemon, JobFailed, OnlyHeld, TimedOut, Bug),
    )
}
