"""Types for the OpenAPI document: queries of several routes, and a submission of many jobs.

Other routes define their query beside the handler.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(description="Seconds, at most 60, for which an answer may be waited for.")]


class WaitQuery(Struct, kw_only=True):
    """The jobs to wait for."""

    select: Annotated[list[str], Meta(description="Selectors; without any, all that are unfinished now.")] = []
    seen: Annotated[int, Meta(description="Answer when another number than this has finished.")] = -1
    mark: Annotated[str, Meta(description="What the answer before said: the same jobs again.")] = ""
    wait_s: Seconds = 0.0


class ChangesQuery(Struct, kw_only=True):
    """The changes to return."""

    select: Annotated[list[str], Meta(description="These jobs, at once.")] = []
    since: Annotated[int, Meta(description="What happened after this event: what `cursor` said.")] = 0
    wait_s: Seconds = 0.0


class JobQuery(Struct, kw_only=True):
    """When to return a job."""

    until: Annotated[str, Meta(description="When it has started or finished.", pattern="^(started|finished)?$")] = ""
    wait_s: Seconds = 0.0


class MostQuery(Struct, kw_only=True):
    """The size of the answer."""

    most: Annotated[int, Meta(description="At most so many.")] = 5


class DryRunQuery(Struct, kw_only=True):
    """Whether to only check the request."""

    dry_run: Annotated[str, Meta(description="Anything: check and tell everything, and change nothing.")] = ""


class SweepsQuery(Struct, kw_only=True):
    """The sweeps to return."""

    name: Annotated[str | None, Meta(description="Those that this name or glob means; without counts.")] = None


class ResultsQuery(Struct, kw_only=True):
    """The runs to return."""

    most: Annotated[int, Meta(description="At most so many; 0: all.")] = 0
    after: Annotated[str, Meta(description="What `next` said.")] = ""


class HistoryQuery(Struct, kw_only=True):
    """The length of the history."""

    minutes: Annotated[int, Meta(description="For how many minutes one mean a minute is told.")] = 60


class Batch(Struct, forbid_unknown_fields=True):
    """Many jobs, submitted all or none: `jobs` or `commands`, common defaults, and rules for the batch."""

    jobs: list[dict[str, Any]] = []
    commands: list[str] = []
    defaults: dict[str, Any] = {}
    at_once: int | None = None
    halt_after: int | None = None
    array: str | None = None
    repeat: int | None = None
    batch: int | None = None
    key: str | None = None
