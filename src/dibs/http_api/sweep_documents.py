"""A whole sweep in one request: the mapping that sweep files and `dibs.Sweep` take, expanded by the daemon.

`POST /v1/sweeps` takes it; `sweeps` has the form in which a client sends expanded points in parts.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dibs.client import sweep_drafts
from dibs.client.sweep_drafts import SweepDraft
from dibs.errors import UserError
from dibs.http_api.schemas import wire
from dibs.jobqueue import validation
from dibs.submission import job_options
from dibs.submission.drafts import Body
from dibs.submission.options import Args
from dibs.sweeps import documents
from dibs.sweeps.documents import Sweep

#: Keys beside those of a sweep file.
BESIDE = ("defaults", "again")
Text = str | list[str]


class SweepDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A sweep as a file describes it, `defaults` with the job fields of all runs, and whether done points run again."""

    #: Values by parameter: a list, one value, or a text such as "loguniform(1e-5,1e-1)".
    parameters: dict[str, Any] = {}
    command: Text | None = None
    name: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    project: str | None = None
    gpus: int | str | None = None
    vram: int | str | None = None
    time: int | str | None = None
    zip: list[Any] | None = None
    when: dict[str, str] | None = None
    exclude: Text | None = None
    blocks: list[dict[str, Any]] | None = None
    sample: int | None = None
    shuffle: bool | None = None
    seed: int | None = None
    metric: str | dict[str, Any] | None = None
    goal: str | None = None
    dir: str | None = None
    jobs: int | None = None
    halt: int | None = None
    #: Choose points while it runs: tpe, cmaes or random; how many; and the rule that stops runs early.
    search: str | None = None
    trials: int | None = None
    early_stop: str | None = None
    #: Of a wandb file.
    method: str | None = None
    program: str | None = None
    early_terminate: dict[str, Any] | None = None
    run_cap: int | None = None
    defaults: dict[str, Any] = {}
    again: bool = False


def is_document(body: Any) -> bool:
    """Tell whether a request has the parameters of a sweep with their values, not only their names."""
    return isinstance(body, dict) and ("blocks" in body or isinstance(body.get("parameters"), dict))


def draft(body: dict[str, Any], cwd: str) -> SweepDraft:
    """Return the sweep of a request, as the command line makes it of a file; `cwd` is part of its default name."""
    told = wire.convert(body, SweepDocument)
    document = {key: value for key, value in body.items() if key not in BESIDE and value is not None}
    sweep = documents.read(document, "the sweep")
    sweep.check()
    count = (sweep.trials or 0) if sweep.is_adaptive else sweep.points().most
    if count > validation.MOST_AT_ONCE:
        most = f"{validation.MOST_AT_ONCE:,}"
        raise UserError(f"expected at most {most} points in one request, got {count:,}.", "Use dibs sweep.")
    args = sweep_drafts.with_file(Args(), sweep)
    name, project = sweep.name or sweep_drafts.default_name_of(sweep, cwd), sweep.project or "default"
    definition: Body = {"parameters": list(sweep.space.names), "points": count}
    made = SweepDraft(args, sweep, name, project, _fields(sweep) | told.defaults, definition)
    sweep_drafts.check_first(made)
    return made


def _fields(sweep: Sweep) -> Body:
    """Return the options of a document as job fields."""
    count = None if sweep.gpus is None else job_options.read_count(sweep.gpus)
    told: Body = {
        "gpus": count.gpus if count else None,
        "gpu_type": count.gpu_type if count else None,
        "vram": sweep.vram_bytes,
        "time_limit_s": sweep.time_s,
        "metric": None if sweep.metric_pattern is None else {sweep.metric: sweep.metric_pattern},
    }
    return {key: value for key, value in told.items() if value is not None}
