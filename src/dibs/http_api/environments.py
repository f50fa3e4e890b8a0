"""`GET /v1/environments`, and the environment and folder of submissions that bring none: those from the page, say.

In this order: those of the job that `environ_of` or "like" names, of the last submission from a shell in the folder,
of a login shell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dibs.daemon.service import Daemon
from dibs.errors import UserError
from dibs.http_api.schemas import machine_answers
from dibs.jobqueue.validation import Submission
from dibs.model import environment, serialization
from dibs.model.jobs import JobId
from dibs.store.writer import Reader

#: The folders that are offered.
MOST_FOLDERS = 20


@dataclass(frozen=True, slots=True)
class Base:
    """What a submission without an environment starts from."""

    cwd: str
    environ: bytes
    source: str
    #: Variables that were given with `environ_of`'s job and that nobody can see to give them again.
    secrets: tuple[tuple[str, str], ...] = ()


async def complete(daemon: Daemon, submissions: Sequence[Submission]) -> list[Submission]:
    """Return the submissions, each with an environment and a folder."""
    wanted = {(one.spec.cwd, one.environ_of) for one in submissions if one.environ is None or not one.spec.cwd}
    bases = {(cwd, source): await _base(daemon, cwd, source) for cwd, source in wanted}
    return [_completed(one, bases.get((one.spec.cwd, one.environ_of))) for one in submissions]


async def _base(daemon: Daemon, cwd: str, named: JobId | None) -> Base:
    found = await daemon.ask(lambda reader: _stored(reader, cwd, named))
    if found is not None:
        return found
    variables, source = await daemon.login_environment()
    home = variables[b"HOME"].decode(errors="surrogateescape")
    return Base(cwd or home, environment.capture(variables, daemon.settings.env_exclude), source)


def _stored(reader: Reader, cwd: str, named: JobId | None) -> Base | None:
    folders = reader.folders(1, cwd or None) if named is None else [(reader.job(named).spec.cwd, named)]
    for folder, job_id in folders:
        spec = reader.job(job_id).spec
        if spec.environ_id is None:
            raise UserError(f"job {job_id} has no stored environment.", "Name another job.")
        secrets = tuple(pair for pair in spec.env if serialization.is_secret(pair[0])) if named is not None else ()
        return Base(cwd or folder, reader.environ(spec.environ_id), f"job {job_id}", secrets)
    return None


def _completed(submission: Submission, base: Base | None) -> Submission:
    if base is None:
        return submission
    spec = replace(submission.spec, cwd=base.cwd)
    if submission.environ is not None:
        return replace(submission, spec=spec)
    spec = replace(spec, env=tuple(dict((*base.secrets, *spec.env)).items()), environ_from=base.source)
    return replace(submission, spec=spec, environ=base.environ)


def get_environments(reader: Reader) -> machine_answers.Environments:
    """Return the folders last used from a shell, each with its newest job, whose environment `environ_of` takes."""
    return machine_answers.Environments([_shown(reader, *found) for found in reader.folders(MOST_FOLDERS)])


def _shown(reader: Reader, folder: str, job_id: JobId) -> machine_answers.Environment:
    job = reader.job(job_id)
    variables = serialization.unpack_environ(reader.environ(job.spec.environ_id))
    return machine_answers.Environment(
        job=job.id,
        name=job.spec.name,
        cwd=folder,
        activated=environment.activated(variables),
        submitted_at=serialization.moment(job.submitted_at),
    )
