"""`dibs.submit` and `dibs.submit_many`: commands with the options of `dibs add` as keywords."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Unpack, cast, overload

from dibs.client import template_job
from dibs.client.answers import DryRun
from dibs.errors import UserError
from dibs.python_api import jobs, keywords, signatures
from dibs.python_api.job_list import JobList
from dibs.python_api.jobs import Job
from dibs.python_api.keywords import Options
from dibs.submission import drafts, job_options, script_files
from dibs.submission.options import Args
from dibs.system import commands

if TYPE_CHECKING:
    from dibs.submission.drafts import Body

#: The options of `submit`.
OPTIONS = (*job_options.OPTIONS, *job_options.BATCH_OPTIONS)
Command = str | Sequence[str | os.PathLike[str]]


@overload
def submit(command: Command = ..., *, dry_run: Literal[True], **options: Unpack[Options]) -> DryRun: ...
@overload
def submit(command: Command = ..., *, array: str | Sequence[int], **options: Unpack[Options]) -> JobList: ...
@overload
def submit(command: Command = ..., *, repeat: int, **options: Unpack[Options]) -> JobList: ...
@overload
def submit(command: Command = ..., **options: Unpack[Options]) -> Job: ...
@signatures.describe(OPTIONS)
def submit(command: Command = (), **options: object) -> Job | JobList | DryRun:
    """Submit a command, as one string or a list of words, with the options of `dibs add` as keywords.

    With `script` the command is the script's arguments. With `array` or `repeat` return a list of jobs; with `dry_run`
    submit nothing and return what would be submitted.

    >>> job = dibs.submit("echo hello", gpus=1, name="vit", time="2h")
    >>> job.wait()
    'done'
    >>> job.log()
    'hello\\n'
    >>> dibs.submit(["printf", "%s", "$HOME"], gpus=0, after=job).wait()
    'done'
    >>> len(dibs.submit("true", gpus=0, array=range(3)))
    3
    """
    with keywords.keyword_errors():
        args, body = draft(command, options)
        if args.has(job_options.DRY_RUN):
            return cast("DryRun", jobs.client().post("/v1/jobs?dry_run=yes", body))
        found = _send(body)
    return found if args.has(job_options.ARRAY) or args.has(job_options.REPEAT) else found[0]


def draft(command: Command, options: Mapping[str, object]) -> tuple[Args, Body]:
    """Return the options and the request for these keywords."""
    args = keywords.read(options, OPTIONS)
    is_empty = args.has(job_options.SCRIPT) or args.has(job_options.LIKE)
    args = replace(args, words=words(command, may_be_empty=is_empty))
    typed = template_job.completed(args, jobs.client, "submit")
    request = script_files.read(typed, "submit", jobs.note)
    return request.args, request.body


@signatures.describe(OPTIONS)
def submit_many(lines: Iterable[str], **options: Unpack[Options]) -> JobList:
    """Submit one job per command, all or none; `jobs` and `halt` apply to the batch.

    >>> many = dibs.submit_many(["echo a", "echo b"], gpus=0, jobs=1)
    >>> [job.log() for job in many.wait()]
    ['a\\n', 'b\\n']
    """
    with keywords.keyword_errors():
        args = keywords.read(cast("Mapping[str, object]", options), OPTIONS)
        args = template_job.completed(args, jobs.client, "submit_many", takes_command=False)
        return _send(drafts.from_lines(args, (line.encode() for line in lines), "the list"))


def words(command: object, may_be_empty: bool = False) -> tuple[str, ...]:
    """Return a command as shell arguments: one string, or its words."""
    if command in ([], ()) and may_be_empty:
        return ()
    if command in ([], ()) or (isinstance(command, str) and not command.strip()):
        raise UserError("expected a command, got none.")
    if isinstance(command, str):
        commands.check_text(command, "the command")
        return (command,)
    if not isinstance(command, Sequence) or isinstance(command, bytes):
        raise UserError(f"expected a command, one string or a list of words, got {command!r}.")
    found = []
    for word in command:
        if not isinstance(word, str | os.PathLike):
            raise UserError(f"expected the words of a command to be strings, got {word!r}.")
        found.append(str(os.fspath(word)))
        commands.check_text(found[-1], "the command")
    if not may_be_empty and commands.is_string(found):
        raise UserError(f'expected the words of a command, got one string in a list: ["{found[0]}"].', "Give it alone.")
    return tuple(found)


def _send(body: Body) -> JobList:
    answer = jobs.client().post("/v1/jobs", body)
    for each in answer["notes"]:
        jobs.note(each)
    return JobList(Job(job_id) for job_id in answer["ids"])
