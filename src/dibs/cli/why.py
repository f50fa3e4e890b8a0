"""`dibs why`: why a job is not running, and what would help."""

from __future__ import annotations

import os

from dibs import client
from dibs.cli import answers, options, screen
from dibs.cli.options import Args, Option

SUMMARY = "Say why a job is not running, or how it stands."
USAGE = ("[OPTIONS] SELECTOR...",)
OPTIONS: tuple[Option[object], ...] = (options.JSON,)
EXAMPLES = ("dibs why 12", "dibs why @")


def main(args: Args) -> int:
    """Say a sentence or two about each job."""
    answers.require_words("why", args.words)
    queue = client.connect(os.environ)
    if all(answers.is_id(word) for word in args.words):
        ids = [int(word) for word in args.words]
    else:
        ids = [job["id"] for job in answers.overview(queue, args.words)["jobs"]]
    told = [queue.get(f"/v1/jobs/{job_id}/why") for job_id in dict.fromkeys(ids)]
    if args.has(options.JSON):
        screen.print_json(told[0] if len(told) == 1 else told)
        return 0
    for each in told:
        hint = f" {each['hint']}" if each["hint"] else ""
        print(screen.clean(f"job {each['id']}: {each['reason']}.{hint}"))
    return 0
