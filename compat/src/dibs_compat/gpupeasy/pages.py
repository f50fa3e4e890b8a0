"""The page as HTML: everything that comes from outside is escaped where it is written, and nothing is a script.

Pure. What is shown is given as values; what forms post goes to `gui`.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

#: The actions on a job by its state: the verb, and the text of the button.
BUTTONS: dict[str, tuple[tuple[str, str], ...]] = {
    "waiting": (("hold", "hold"), ("cancel", "cancel")),
    "held": (("unhold", "release"), ("cancel", "cancel")),
    "queued": (("hold", "hold"), ("cancel", "cancel")),
    "starting": (("cancel", "kill"),),
    "running": (("pause", "pause"), ("cancel", "kill")),
    "paused": (("resume", "resume"), ("cancel", "kill")),
    "stopping": (("cancel", "kill"),),
}
ENDED = (("rerun", "rerun"),)
#: Kinds of messages that are shown, in this order.
MESSAGES = ("errorMessage", "infoMessage", "successMessage")
#: The lists, by address: the status of their jobs, their heading, and what an empty one says.
LISTS = {
    "deviceutilization": ("Running", "Running", "No jobs running"),
    "scheduledjobs": ("Scheduled", "Scheduled", "No jobs scheduled"),
    "successfuljobs": ("Succeeded", "Successful", "No successful jobs"),
    "failedjobs": ("Failed", "Failed", "No failed jobs"),
}


def document(title: str, *parts: str) -> str:
    """Return a whole page."""
    body = "\n".join(parts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="stylesheet" href="/static/peasy.css">
<script src="/static/peasy.js" defer></script>
</head>
<body>
<nav><a href="/">GPUPeasy</a> <a href="/batchaddjobs">batch</a></nav>
{body}
</body>
</html>
"""


def messages(said: Mapping[str, Any]) -> str:
    """Return the messages, kind by kind."""
    shown = [(kind, said[kind]) for kind in MESSAGES if isinstance(said.get(kind), str) and said[kind]]
    return "".join(f'<pre class="{kind}" role="status">{escape(text)}</pre>' for kind, text in shown)


def index(said: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """Return the first page: a form for one job, and all lists."""
    lists = "".join(
        f'<section id="{address}" class="live" data-from="/{address}">{listed(state, address)}</section>'
        for address in LISTS
    )
    return document("GPUPeasy", messages(said), FORM, controls(state), lists)


FORM = """<form method="post" action="/addnewjob" class="job">
<h2>Add a job</h2>
<label>Name <input name="jobName" required></label>
<label>Output file <input name="outFile" required></label>
<label>Command <input name="jobCommand" required></label>
<button>add</button>
</form>"""


def controls(state: Mapping[str, Any]) -> str:
    """Return the state and the buttons of the queue."""
    paused, verb = ("1", "pause") if not state["paused"] else ("0", "continue")
    note = "<p>Paused: nothing new starts, of any job of dibs.</p>" if state["paused"] else ""
    # One a line: a text may have commas in it, or nothing at all.
    devices = escape("\n".join(state["devices"]))
    return f"""<section>
<h2>Queue</h2>{note}
<form method="post" action="/queue"><input type="hidden" name="paused" value="{paused}"><button>{verb}</button></form>
<form method="post" action="/devices">
<label>GPUs, one a line; an empty line runs jobs without one
<textarea name="devices" rows="{len(state["devices"]) + 1}">
{devices}</textarea></label>
<button>change</button>
</form>
</section>"""


def listed(state: Mapping[str, Any], address: str) -> str:
    """Return one of the lists, as a part of a page."""
    status, heading, empty = LISTS[address]
    found = state[status]
    if not found["jobs"]:
        return f"<h2>{heading}</h2><p>{empty}</p>"
    rows = "".join(_row(job) for job in found["jobs"])
    left = found["total"] - len(found["jobs"])
    more = f"<p>and {left} more</p>" if left else ""
    head = "".join(f"<th>{name}</th>" for name in ("job", "dibs", "name", "command", "GPU", "pid", "state", "", ""))
    return f"<h2>{heading} ({found['total']})</h2><table><tr>{head}</tr>{rows}</table>{more}"


def _row(job: Mapping[str, Any]) -> str:
    number = int(job["jobid"])
    code = "" if job["returnCode"] is None else f" ({job['returnCode']})"
    cells = (
        job["dibsID"], job["jobName"], job["jobCommand"], job["gpu"] if job["gpu"] is not None else "",
        job["pid"] or "", f"{job['state']}{code}",
    )  # fmt: skip
    shown = "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
    link = f'<td><a href="/jobinfo/{number}">{number}</a></td>'
    return f'<tr data-key="{number}">{link}{shown}<td>{_priority(job)}</td><td>{_buttons(job)}</td></tr>'


def _priority(job: Mapping[str, Any]) -> str:
    if job["state"] not in ("waiting", "held", "queued"):
        return ""
    value = f'<input name="value" type="number" value="{int(job["priority"])}" aria-label="priority">'
    return _form(job, "priority", "set", value)


def _buttons(job: Mapping[str, Any]) -> str:
    return "".join(_form(job, verb, text) for verb, text in BUTTONS.get(job["state"], ENDED))


def _form(job: Mapping[str, Any], verb: str, text: str, value: str = "") -> str:
    return f'<form method="post" action="/jobs/{int(job["jobid"])}/{verb}">{value}<button>{text}</button></form>'


def batch(said: Mapping[str, Any], text: str = "") -> str:
    """Return the page for many jobs; `said` is the result of testing the list, if any."""
    tested = ""
    if "errorCount" in said:
        jobs = said.get("jobList") if isinstance(said.get("jobList"), list) else []
        rows = "".join(f"<li>{escape(_written(job))}</li>" for job in jobs or ())
        tested = f"<p>{len(jobs or ())} jobs, {escape(str(said['errorCount']))} errors</p><ul>{rows}</ul>"
    return document(
        "GPUPeasy: batch",
        messages(said),
        tested,
        f"""<form method="post" action="/batchaddjobs" class="job">
<h2>Add many jobs</h2>
<p><code>NAME;;OUTPUT FILE;;COMMAND;;;</code>, repeated</p>
<textarea name="jobList" rows="20" aria-label="jobs">
{escape(text)}</textarea>
<button>add</button>
</form>
<form method="post" action="/testCommandParser" class="job">
<h2>Try a list without adding it</h2>
<textarea name="jobCommand" rows="5" aria-label="list to try"></textarea>
<button>try</button>
</form>""",
    )


def _written(job: Any) -> str:
    return " ;; ".join(str(part) for part in job.values()) if isinstance(job, dict) else str(job)


def job(said: Mapping[str, Any], number: str, found: Mapping[str, Any] | None, log: str) -> str:
    """Return the page of one job, with the end of its output."""
    if found is None:
        return document("GPUPeasy", messages(said), f"<p>Job {escape(number)} not found</p>")
    return document(
        f"GPUPeasy: job {number}",
        messages(said),
        f"<h2>Job {escape(number)}</h2>",
        f'<section class="live" data-from="/jobinfo/{escape(number)}/now">{job_now(found, log)}</section>',
        f'<form method="post" action="/loadlogfile"><input type="hidden" name="fileName" '
        f'value="{escape(found["outFile"])}"><label>Last lines <input name="lastN" type="number" value="100"></label>'
        f"<button>as JSON</button></form>",
    )


def job_now(found: Mapping[str, Any], log: str) -> str:
    """Return what changes on the page of one job."""
    facts = "".join(
        f"<dt>{name}</dt><dd>{escape(str(value))}</dd>"
        for name, value in (
            ("name", found["jobName"]),
            ("command", found["jobCommand"]),
            ("output file", found["outFile"]),
            ("status", found["status"]),
            ("return code", "" if found["returnCode"] is None else found["returnCode"]),
        )
    )
    return f"<dl>{facts}</dl><pre>{escape(log)}</pre>"
