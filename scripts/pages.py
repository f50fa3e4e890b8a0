"""The pages of `docs/` that are written from tables in the code: run `scripts/write-docs` after changing one of them.

Words after it name the pages to write; without any it writes all.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dibs import cli, errors, lifecycle
from dibs import settings as tables
from dibs.cli import help as helping

DOCS = Path(__file__).parent.parent / "docs"


def lifecycle_page() -> str:
    """Return the states of a job and what leads from one to the other."""
    return f"""# The life of a job

Drawn from the table in `lifecycle` by `scripts/draw-lifecycle`; do not edit.
A job that is `finished` shows its outcome instead: `done`, `failed`, `cancelled`, `timeout` or `lost`.
The verbs that pause and resume single jobs are not there yet; the table has their place.

```mermaid
{lifecycle.diagram()}
```
"""


def settings_page() -> str:
    """Return every setting with its default, its variable and its meaning."""
    rows = [
        f"| `{row.name}` | {f'`{row.default}`' if row.default else ''} | `{row.variable}` | {row.meaning} |"
        for row in tables.SETTINGS
    ]
    return "\n".join(
        [
            "# Settings",
            "",
            "Written from the table in `settings` by `scripts/write-docs`; do not edit.",
            "",
            "A value comes from the last of these that has one: the default, `/etc/dibs/config.toml`, your own",
            "`config.toml` (in `$XDG_CONFIG_HOME/dibs` or `~/.config/dibs`; `$DIBS_CONFIG` names another file), the",
            "environment, an option of the command. An empty variable counts as unset. The daemon reads its settings",
            "when it starts: after a change type `dibs daemon restart`; running jobs go on.",
            "",
            "| name | default | variable | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            "`lease_dir` cannot be set in a file, because all users of a machine must share one folder.",
            "A time is written `90m`, `2h` or `1d12h`; a bare number is an error.",
            "",
            "```toml",
            "# ~/.config/dibs/config.toml",
            'devices = "0,1"                    # leave the other GPUs alone',
            'grace = "2m"                       # our checkpoints take a while',
            'env_exclude = ["AWS_*", "*_TOKEN"]',
            "```",
            "",
            "Two more variables say where things are and have no place in a file:",
            "",
            "| variable | meaning |",
            "|---|---|",
            "| `DIBS_HOME` | The state folder: queue, logs, socket. Default `~/.local/state/dibs/<machine-id>`. |",
            "| `DIBS_CONFIG` | Your configuration file. |",
            "",
        ]
    )


def verbs_page() -> str:
    """Return the help of every verb."""
    lines = [
        "# The command line",
        "",
        "Written from the tables of the verbs by `scripts/write-docs`; do not edit. `dibs help VERB` shows the same.",
        "Exit codes are in [errors.md](errors.md).",
        "",
        "```text",
        helping.overview(),
        "```",
    ]
    for name in cli.VERBS:
        if name != "help":
            lines += ["", f"## dibs {name}", "", "```text", helping.page(name), "```"]
    return "\n".join([*lines, ""])


def errors_page() -> str:
    """Return every kind of error with its exit code and HTTP status."""
    rows = [
        f"| `{kind}` | {error.exit_code} | {error.http_status} | {(error.__doc__ or '').strip()} |"
        for kind, error in errors.KINDS.items()
        if error is not errors.DibsError
    ]
    return "\n".join(
        [
            "# Errors and exit codes",
            "",
            "Written from the classes in `errors` by `scripts/write-docs`; do not edit.",
            "",
            "An error is one line on stderr: `dibs: ` what was expected, what came, what to do next. Wrong input",
            "changes nothing. `--debug` shows where it came from.",
            "",
            "| kind | exit code | HTTP | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            "Other exit codes of `dibs` itself:",
            "",
            "| code | meaning |",
            "|---|---|",
            "| 0 | It worked; of `wait`: all jobs are done. |",
            "| 1 | Of `wait`: a job did not succeed. |",
            "| 124 | Of `wait --timeout`: the time is over. |",
            "| 130 | Interrupted with Ctrl-C. |",
            "",
            "`run`, `follow` and `log -f` exit with the code of the job's command, and otherwise as a shell would:",
            "",
            "| code | meaning |",
            "|---|---|",
            "| 128 + n | Ended by signal n. |",
            "| 124 | Ended by its time limit. |",
            "| 125 | Lost, or a failure of dibs. |",
            "| 126, 127 | The command could not be started, or was not found. |",
            "| 130 | Cancelled before it started. |",
            "",
        ]
    )


PAGES = {"lifecycle": lifecycle_page, "settings": settings_page, "verbs": verbs_page, "errors": errors_page}


def main(names: list[str]) -> None:
    """Write the pages that are named, or all."""
    for name in names or PAGES:
        path = DOCS / f"{name}.md"
        path.write_text(PAGES[name]())
        print(f"wrote docs/{path.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
