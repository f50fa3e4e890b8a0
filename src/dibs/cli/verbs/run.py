"""`dibs run`: a job attached to this terminal, with its output, its exit code and Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys

from dibs.cli import dry_run, log_follower, log_output, screen, status_view
from dibs.client import connection, job_state, queries, template_job
from dibs.client.answers import Job, WholeJob
from dibs.errors import Busy, DibsError, UserError
from dibs.foreground import signals
from dibs.submission import add_command, device_hints, drafts, job_options, script_files
from dibs.submission.options import Args, Option

SUMMARY = "Submit a command, stream its output and exit with its code."
USAGE = ("[OPTIONS] COMMAND...", '[OPTIONS] "SHELL COMMAND"', "[OPTIONS] --script FILE [--] [ARGUMENTS]")
NO_WAIT: Option[bool] = Option(("--no-wait",), "Exit with code 75 if the job cannot start now; submit nothing.")
OPTIONS: tuple[Option[object], ...] = (*job_options.OPTIONS, NO_WAIT)
TAKES_COMMAND = True
EXAMPLES = ("dibs run python eval.py", "dibs run -g 2 -t 1h python test.py && echo good")

#: Signals that end us but not the job.
DETACHING = (signal.SIGTERM, signal.SIGHUP)
#: Keys of a job that name its output files, and the options that choose them.
FILES = {"log": job_options.OUTPUT, "stderr": job_options.STDERR}


def main(args: Args) -> int:
    """Submit one job and follow it to its end."""
    args = template_job.completed(args, lambda: connection.connect(os.environ), "run")
    args, body = script_files.read(args, "run", screen.say)
    for option in job_options.BATCH_OPTIONS:
        if args.has(option):
            raise UserError(f"run takes one job; {option.names[-1]} is for many.", "Submit them with dibs add.")
    if args.has(NO_WAIT):
        defaults = body["defaults"]
        assert isinstance(defaults, dict)
        defaults["no_wait"] = True
    queue = connection.connect(os.environ)
    if args.has(job_options.DRY_RUN):
        dry_run.show(queue, args, body)
        return 0
    # The job appends to an existing file: the content from before is not its output.
    old = {name: _size(args, option) for name, option in FILES.items()}
    with signals.Signals(signal.SIGINT, *DETACHING) as coming:
        answer = queue.post("/v1/jobs", body)
        screen.say(*device_hints.about_shell(queue.home, os.environ))
        screen.say(*add_command.notes(answer, is_terminal=sys.stderr.isatty()))
        if args.has(job_options.BEGIN) and sys.stderr.isatty():
            screen.say(f"job {answer['ids'][0]}{drafts.begin_note(args).removeprefix(';')}")
        attached = Attachment(queue, answer["ids"][0])
        follower = log_follower.Follower(queue, coming, attached.on_signal, attached.on_news)
        job = follower.ask(attached.job_id)
        follower.tails = attached.tails = _tails(job, old)
        job, attempt = follower.to_the_last_end(job)
    if args.has(NO_WAIT) and job["state"] == "cancelled" and job["started_at"] is None and not attached.is_interrupted:
        raise Busy(f"job {job['id']} could not start now and was cancelled.")
    _say_end(job)
    return job_state.attempt_code(job, attempt)


def _size(args: Args, option: Option[str]) -> int:
    """Return the size of the output file that an option names, 0 if it does not exist."""
    folder, path = args.get(job_options.CHDIR) or "", args.get(option)
    try:
        return 0 if path is None else os.stat(os.path.join(folder, os.path.expanduser(path))).st_size
    except OSError:
        return 0


def _tails(job: WholeJob, old: dict[str, int]) -> list[log_output.Tail]:
    tails = [log_output.Tail(job["log"], log_output.Sink(1), old["log"])]
    if errors := job.get("stderr"):
        tails.append(log_output.Tail(str(errors), log_output.Sink(2), old["stderr"]))
    return tails


class Attachment:
    """Connects the terminal and the job: forwards Ctrl-C, prints why the job waits."""

    def __init__(self, queue: connection.Client, job_id: int) -> None:
        self.queue = queue
        self.job_id = job_id
        self.tails: list[log_output.Tail] = []
        self._interrupts = 0
        self._job: Job | None = None
        self._notes = log_follower.WaitingNotes()

    @property
    def is_interrupted(self) -> bool:
        """Return whether the user pressed Ctrl-C."""
        return self._interrupts > 0

    @property
    def _has_ended(self) -> bool:
        return self._job is not None and job_state.is_finished(self._job)

    @property
    def _is_waiting(self) -> bool:
        return self._job is not None and self._job["state"] in job_state.WAITING

    def on_signal(self, number: int) -> None:
        """Cancel on the first Ctrl-C, kill on the second, leave on the third; other signals end only us."""
        if number in DETACHING:
            if not self._has_ended:
                remains = "stays queued" if self._is_waiting else "keeps running"
                screen.say_if_possible(f"job {self.job_id} {remains}: dibs follow {self.job_id}")
            raise signals.Left(number)
        self._interrupts += 1
        for tail in self.tails:
            tail.hurry()
        if self._has_ended and self._interrupts == 1:
            # The job has ended; only the rest of its output is still to be shown.
            return
        if self._has_ended:
            raise KeyboardInterrupt
        if self._interrupts == 1:
            screen.say_if_possible(f"stopping job {self.job_id}; Ctrl-C again kills it")
            self._cancel(None)
        elif self._interrupts == 2:
            screen.say_if_possible(f"killing job {self.job_id}")
            self._cancel(0)
        else:
            raise KeyboardInterrupt

    def _cancel(self, grace_s: float | None) -> None:
        try:
            queries.act(self.queue, "cancel", [str(self.job_id)], grace_s=grace_s)
        except DibsError as error:
            screen.say_if_possible(f"could not cancel job {self.job_id}: {error.line()}")

    def on_news(self, job: Job) -> None:
        """Say why the job waits; record its state."""
        self._job = job
        self._notes(job)


def _say_end(job: Job) -> None:
    """Print how the job ended, unless its output and exit code already show it."""
    if job["state"] != "done" and job["cause"] != "exit":
        why = status_view.remark(job)
        screen.say_if_possible(f"job {job['id']} {job['state']}{f': {why}' if why else ''}")
