"""The words of the project: phrases that readers stumble over are not used in anything a person reads.

`docs/glossary.md` has the chosen terms. Decisions are history; comments of applied migrations are part of schemas.
"""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: What is banned, and what to write instead.
BANNED = {
    r"so many|so often|so long before": "a number, a time, or N",
    r"is told|being told|are told": "is notified, gets, reads",
    r"goes on|going on|go on\b(?!-)": "continues, keeps running",
    r"mends?|mended": "fix, repair, correct",
    r"a moment to come": "a future time",
    r"is its alone|has it alone": "exclusive use",
    r"they all have the same end": "they end together",
    r"run on without": "keep running without",
    r"for ever": "forever",
    r"(?:can|could|to) be had|cannot be had": "is available, can be leased",
    r"so that none": "so that no job, no process, ...",
    r"(?:is|are) to be (?!a\b|like\b)": "should be, has to be, or a direct verb",
    r"it is said": "a message says",
    r"doors?": "a command, a tool, a way to get GPUs",
    r"by chance": "at random",
    r"nevertheless|whereby|therein|thereof": "anyway, and",
    r"what came out|what is not there": "the results, what is missing",
    r"(?:has|have|had) no hope|has hope": "cannot catch up, cannot become the best",
    r"made anew": "rebuilt, made again",
    r"if not said|where nothing else is said": "default:",
    r"left alone by": "not changed by",
    r"as it is good|is good once|still good": "valid",
    r"whoever|whomever|whosoever": "the user, the process, or a noun",
    r"times? to come": "a future time",
    r"lets? go|letting go|is let in|are let in": "release, allow",
    r"leaves? (?:it|them|others|the rest|other \w+) alone|left alone": "do not change, avoid",
    r"once more": "again",
    r"all the same": "anyway, still",
    r"in vain": "for nothing",
    r"speaks? of|told of": "uses, names, is notified",
    r"in the same words": "with the same options",
    r"wants? the \w+ to be": "asks for a reset, ...",
}
READ = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "SECURITY.md",
    "docs",
    "src",
    "compat",
    "plugins",
    "scripts",
)
NOT_READ = re.compile(r"docs/decisions/|/vendor/|/sql/0\d\d_|\.(png|svg|lock|xz|tar)$")


@functools.cache
def texts() -> dict[str, str]:
    """Return every text that somebody reads, by the name of its file."""
    listed = subprocess.run(["git", "ls-files", *READ], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.splitlines() if not NOT_READ.search(name) and (ROOT / name).is_file()]
    return {name: (ROOT / name).read_text(errors="replace") for name in names}


@pytest.mark.parametrize("pattern", BANNED)
def test_a_banned_phrase_is_not_used(pattern: str) -> None:
    # A phrase may continue in the next line, also of a comment or of a string in two parts.
    gap = r"(?:\s|\n\s*(?:#|//|\*|f?\")\s*|\s\"\n\s*f?\")+"
    phrase = re.compile(rf"\b(?:{pattern.replace(' ', gap)})\b", re.IGNORECASE)
    found = [
        f"{name}:{text.count(chr(10), 0, hit.start()) + 1}: {hit.group()}"
        for name, text in texts().items()
        for hit in phrase.finditer(text)
    ]
    assert not found, f"write {BANNED[pattern]}:\n" + "\n".join(found)
