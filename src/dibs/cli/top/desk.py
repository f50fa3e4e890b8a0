"""What `dibs top` talks to: the feed of snapshots, and requests for actions, new jobs and changes of waiting ones.

Apart: It is loaded after the first screen was drawn: `feed`, which draws it, needs none of this.
"""

from __future__ import annotations

from dibs.cli.top import actions
from dibs.cli.top.actions import Request
from dibs.cli.top.feed import Feed
from dibs.cli.verbs import edit
from dibs.client import queries, template_job
from dibs.errors import UserError
from dibs.submission import add_command, job_options, options


class Desk(Feed):
    """The feed, and the requests of the user. Each waits for its answer."""

    def act(self, request: Request) -> str:
        """Apply a verb to a job; return the result."""
        return actions.told(request, queries.act(self.client, request.verb, [str(request.job)], **request.more))

    def submit(self, text: str) -> str:
        """Submit the words after `dibs add`; return the receipt."""
        words = actions.typed(text)
        args = options.parse("add", add_command.OPTIONS, words, takes_command=True)
        if words in ([], ["-"]) or args.has(job_options.DRY_RUN) or args.has(options.HELP) or _reads_stdin(args):
            raise UserError("expected a command such as -g 2 python train.py.")
        notes: list[str] = []
        args = template_job.completed(args, lambda: self.client, "add")
        _, body = add_command.draft(args, notes.append)
        answer = self.client.post("/v1/jobs", body)
        return "; ".join([str(answer["receipt"]), *notes, *answer["notes"]])

    def change(self, job_id: int, text: str) -> str:
        """Apply the options of `dibs edit` to a job; return the result."""
        args = options.parse("edit", edit.OPTIONS, actions.typed(text))
        changes = {} if args.words else edit.changed_by(args)
        if not changes:
            raise UserError(f'expected options such as --priority 10 -t 4h, got "{options.shown(text)}".')
        return self.act(Request("edit", job_id, more={"changes": changes}))


def _reads_stdin(args: options.Args) -> bool:
    return "-" in (args.get(add_command.FILE), args.get(job_options.SCRIPT))
