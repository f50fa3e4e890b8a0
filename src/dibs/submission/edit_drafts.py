"""Turn the options of `dibs edit` into the fields that are sent to the daemon."""

from __future__ import annotations

from dibs.model import fields
from dibs.submission import drafts, job_options
from dibs.submission.options import Args, Option

_KEYS = {option: own.key for own in fields.EDITABLE.values() for option in job_options.setters(own)}
#: The field that each option sets, in the order of the options.
FIELDS: dict[Option[object], str] = {
    option: key for option in job_options.JOB_OPTIONS if (key := _KEYS.get(option)) is not None
} | {job_options.AT_ONCE: "at_once", job_options.HALT: "halt_after"}


def changed_by(args: Args) -> dict[str, object]:
    """Return the fields that the options change, with their new values."""
    given = [option for option in args.given if option in FIELDS]
    if not given:
        return {}
    # Leave `--retry-on` to the daemon: only it knows whether the job has retries.
    own = Args((), {option: values for option, values in args.given.items() if option != job_options.RETRY_ON})
    body: dict[str, object] = drafts.common(own, [])
    body |= {"at_once": args.get(job_options.AT_ONCE), "halt_after": args.get(job_options.HALT)}
    body |= {"retry_on": list(args.get(job_options.RETRY_ON) or ())}
    changes = {FIELDS[option]: body[FIELDS[option]] for option in given}
    count = args.get(job_options.GPUS)
    if count is not None and count.gpu_type:
        changes["gpu_type"] = count.gpu_type
    return changes
