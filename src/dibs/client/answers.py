"""Types of the daemon's answers. The type checker reads them from the generated `client/answers.pyi`.

At run time an answer is a dictionary, so each of the types is `dict`: nobody loads what only a checker needs.
"""

from __future__ import annotations


def __getattr__(name: str) -> type:
    if not name[:1].isupper():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return dict
