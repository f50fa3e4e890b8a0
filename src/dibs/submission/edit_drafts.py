"""Changes of jobs as doors for people ask for them: from options to the fields that are sent."""

from __future__ import annotations

from dibs.submission import drafts, job_options
from dibs.submission.options import Args, Option

#: Which fields of a job an option says; a test finds options that are missing here.
FIELDS: dict[Option[object], tuple[str, ...]] = {
    job_options.GPUS: ("gpus",),
    job_options.GPU_IDS: ("gpu_ids",),
    job_options.PREFER: ("prefer",),
    job_options.GPU_TYPE: ("gpu_type",),
    job_options.VRAM: ("vram",),
    job_options.CPUS: ("cpus",),
    job_options.MEM: ("mem",),
    job_options.NAME: ("name",),
    job_options.PROJECT: ("project",),
    job_options.PRIORITY: ("priority",),
    job_options.TIME: ("time_limit_s",),
    job_options.AFTER: ("after",),
    job_options.AFTER_ANY: ("after",),
    job_options.AFTER_END: ("after",),
    job_options.DEPENDENCY: ("after",),
    job_options.BEGIN: ("begin_at",),
    job_options.RETRIES: ("retries",),
    job_options.RETRY_ON: ("retry_on",),
    job_options.ENV: ("env",),
    job_options.CHDIR: ("cwd",),
    job_options.OUTPUT: ("output",),
    job_options.STDERR: ("stderr",),
    job_options.TAG: ("tags",),
    job_options.VISIBLE: ("visible",),
    job_options.SIGNAL: ("warn",),
    job_options.WAIT_TREE: ("wait_tree",),
    job_options.IGNORE_FOREIGN: ("ignore_foreign",),
    job_options.STRICT_GPUS: ("strict_gpus",),
    job_options.VRAM_ENFORCE: ("vram_enforce",),
    job_options.METRIC: ("metric",),
    job_options.NOTIFY: ("notify",),
    job_options.AT_ONCE: ("at_once",),
    job_options.HALT: ("halt_after",),
}


def changed_by(args: Args) -> dict[str, object]:
    """Return the fields that options say, with their new values."""
    given = [option for option in args.given if option in FIELDS]
    if not given:
        return {}
    # Whether the number of tries is known here is for the daemon to say.
    own = Args((), {option: values for option, values in args.given.items() if option != job_options.RETRY_ON})
    body: dict[str, object] = drafts.common(own, [])
    body |= {"at_once": args.get(job_options.AT_ONCE), "halt_after": args.get(job_options.HALT)}
    body |= {"retry_on": list(args.get(job_options.RETRY_ON) or ())}
    changes = {field: body[field] for option in given for field in FIELDS[option]}
    count = args.get(job_options.GPUS)
    if count is not None and count.gpu_type:
        changes["gpu_type"] = count.gpu_type
    return changes
