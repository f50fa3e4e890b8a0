"""`dibs log`: print a job's output so far, or follow it."""

from __future__ import annotations

import os

from dibs.cli import log_follower, log_output, screen, status_view
from dibs.client import connection, job_state, queries, stand_in
from dibs.client.answers import WholeJob
from dibs.foreground import signals
from dibs.model import units
from dibs.submission import options
from dibs.submission.options import Args, Option

SUMMARY = "Print a job's output; -f follows it and exits with the job's code."
USAGE = ("[OPTIONS] SELECTOR",)
FOLLOW: Option[bool] = Option(("-f", "--follow"), "Follow the output until the job ends.")
LINES = Option(("-n", "--lines"), "Print only the last N lines.", options.whole(0), "N")
ATTEMPT = Option(("--attempt",), "Print attempt K instead of the latest.", options.whole(1), "K")
OPTIONS: tuple[Option[object], ...] = (FOLLOW, LINES, ATTEMPT)
EXAMPLES = ("dibs log 12", "dibs log -f @", "dibs log -n 20 name:vit")

#: Bytes per line that -n prints: more than any line that is meant to be read.
LONGEST_LINE = 64 * 1024


def main(args: Args) -> int:
    """Print the output so far, and follow it if requested."""
    # What follows needs the daemon; what was printed so far does not.
    queue = connection.connect(os.environ) if args.has(FOLLOW) else stand_in.connect(os.environ)
    job = queries.find_one(queue, "log", args.words)
    return show(queue, job, args.get(ATTEMPT), args.get(LINES), is_followed=args.has(FOLLOW))


def show(queue: connection.Client, job: WholeJob, attempt: int | None, lines: int | None, *, is_followed: bool) -> int:
    """Print the output of one attempt; if followed, return the exit code of its command."""
    attempt = attempt or job["attempt"]
    path = job_state.log_path(job, attempt)
    tail = log_output.Tail(path, log_output.Sink(1), 0 if lines is None else _start_of_last(path, lines))
    if is_followed:
        return _follow(queue, job, attempt, tail)
    tail.drain()
    if not tail.is_found:
        screen.say(_nothing(job, attempt))
    return 0


def _start_of_last(path: str, lines: int) -> int:
    """Return where the last lines begin; leave out most of very long ones, and say so."""
    start = log_output.start_of_last(path, lines)
    nearest = (os.path.getsize(path) if os.path.isfile(path) else 0) - lines * LONGEST_LINE
    if start >= nearest:
        return start
    screen.say(f"long lines: {units.format_size(nearest - start)} before this are omitted; see {path}")
    return nearest


def _nothing(job: WholeJob, attempt: int) -> str:
    why = status_view.remark(job)
    return f"job {job['id']} has no output{'' if job_state.is_finished(job) else ' yet'}: it is {job['state']}" + (
        f" ({why})" if why else ""
    )


def _follow(queue: connection.Client, job: WholeJob, attempt: int, tail: log_output.Tail) -> int:
    with signals.leaving(), signals.Signals() as coming:
        follower = log_follower.Follower(queue, coming, on_news=log_follower.WaitingNotes(), tails=[tail])
        try:
            if job["attempt"] == attempt:
                job, attempt = follower.to_the_last_end(job)
            else:
                tail.drain()
        except KeyboardInterrupt:
            # The prompt that follows must not have the job's colours.
            tail.leave()
            raise
    return job_state.attempt_code(job, attempt)
