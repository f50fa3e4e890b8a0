"""The paths of a job's logs, reports and checkpoints: in the folder for output, or in an engine's shared folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dibs.model import environment, path_templates
from dibs.model.jobs import Job, JobId
from dibs.sweeps.values import write as written


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Computes paths below two folders, which are usually the same one."""

    #: The state folder, always on a local disk.
    home: Path
    #: Where logs and checkpoints go: the setting `files`, else `home`. May be on a network file system.
    output_home: Path
    #: By engine: the folder of this queue in the folder that its nodes share.
    shared: Mapping[str, Path] = field(default_factory=dict)

    @property
    def roots(self) -> list[Path]:
        """Return every folder that holds one subfolder per job."""
        return list(dict.fromkeys(base / "jobs" for base in (self.home, self.output_home, *self.shared.values())))

    def highest_id(self) -> int:
        """Return the highest job id that has a folder in the state folder; 0 if there is none."""
        try:
            names = os.listdir(self.home / "jobs")
        except FileNotFoundError:
            return 0
        return max((int(name) for name in names if name.isdecimal() and name.isascii()), default=0)

    def folder(self, job: Job) -> str:
        """Return the folder of a job's logs and checkpoints."""
        return f"{self.shared.get(job.engine, self.output_home)}/jobs/{job.id}"

    def log(self, job: Job, attempt: int | None = None) -> str:
        """Return the path of an attempt's output; default: the current attempt."""
        if job.spec.output is not None:
            return self._user_path(job, job.spec.output, attempt)
        return f"{self.folder(job)}/{attempt or job.attempt}/log"

    def stderr(self, job: Job, attempt: int | None = None) -> str | None:
        """Return the path of an attempt's error output; default: the current attempt. None: it is in the log."""
        return None if job.spec.stderr is None else self._user_path(job, job.spec.stderr, attempt)

    def write_times(self, job: Job, attempt: int | None, stream: str) -> str:
        """Return the file that says when the output of an attempt was written; always on a local disk."""
        return f"{self.home}/jobs/{job.id}/{attempt or job.attempt}/{stream}.times"

    def report(self, job: Job, attempt: int | None = None) -> str:
        """Return the file with the numbers that an attempt reports; default: the current attempt."""
        return environment.report_path(attempt or job.attempt, self.folder(job))

    def report_of(self, job_id: JobId, attempt: int) -> str:
        """Return the file with the numbers that an attempt of a job reported, wherever the job ran."""
        homes = (self.output_home, *self.shared.values())
        paths = [environment.report_path(attempt, f"{home}/jobs/{job_id}") for home in homes]
        return next((path for path in paths if os.path.exists(path)), paths[0])

    def _user_path(self, job: Job, template: str, attempt: int | None = None) -> str:
        values: dict[str, object] = {
            "id": job.id,
            "name": job.spec.name,
            "project": job.spec.project,
            "index": job.spec.index or 0,
            "attempt": attempt or job.attempt,
            "array": job.array_id,
        }
        if job.spec.params is not None:
            # A sweep parameter of the same name takes precedence.
            values |= {name: written(value) for name, value in json.loads(job.spec.params).items()}
        return os.path.join(job.spec.cwd, path_templates.fill(os.path.expanduser(template), values))
