"""What the documentation site shows beyond `docs/`: README and other pages of the repository, and every decision.

MkDocs loads this as a hook. Links between these pages are those of the repository; here they are changed to the place
that a page has on the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent
#: Pages of the repository and their place on the site.
MOVED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "ARCHITECTURE.md": "architecture.md",
    "SECURITY.md": "security-policy.md",
    "docs/decisions/README.md": "decisions/index.md",
}
#: What the first page of the site has after its first paragraph; the list of documents of README is left out.
WAYS = """
[Install](install.md){ .md-button .md-button--primary } [The first hour](first-hour.md){ .md-button }

<div class="ways" markdown>

- **[Your first job](first-hour.md)**: submit, follow, retry
- **[A sweep with results](sweeps.md)**: one command, many parameters
- **[Training on several GPUs](training.md)**: ports, checkpoints, metrics
- **[Share a machine](sharing.md)**: leases, fair order, good manners
- **[Why is my job waiting?](troubleshooting.md)**: reasons and what helps
- **[Slurm and Ray](engines.md)**: the same jobs on a cluster

</div>
"""
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s#]+)(#[^)\s]*)?\)")
#: `sh norun: installs` and `python train.py` are for the tests of the pages; the site wants the language alone.
FENCE = re.compile(r"^(```\w+) .*$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the repository."""
    for source, place in MOVED.items():
        text = _moved((ROOT / source).read_text(), source, place)
        files.append(File.generated(config, place, content=_landing(text) if place == "index.md" else text))
    for file in files.documentation_pages():
        if file.src_uri.startswith("decisions/") and file.src_uri != "decisions/index.md":
            file.inclusion = InclusionLevel.NOT_IN_NAV
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change the links of a page of `docs/`, and what its code blocks say to the tests."""
    if page.file.src_uri not in MOVED.values():
        markdown = _moved(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)
    return FENCE.sub(r"\1", markdown)


def _landing(readme: str) -> str:
    """Return README as the first page of the site."""
    text, _, _ = readme.partition("## Documents\n")
    head, first, rest = text.split("\n\n", 2)
    return f'{head}\n\n<p class="lead" markdown>{first}</p>\n{WAYS}\n{rest}\nMIT licence.\n'


def _moved(text: str, source: str, place: str) -> str:
    """Return the text of the file `source` of the repository with the links that it needs at `place` of the site."""

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path in MOVED or path.startswith("docs/"):
            there = MOVED.get(path, path.removeprefix("docs/"))
            return f"{label}({posixpath.relpath(there, posixpath.dirname(place) or '.')}{anchor})"
        # A file of the source: the site does not have it, so it is named only.
        return f"{label.lstrip('!')[1:-1]} (`{path}`)"

    return LINK.sub(link, text)
