"""The names of users: the system's, or the number of one that has none (in a container, say).

Lean.
"""

from __future__ import annotations

import os


def name(uid: int) -> str:
    """Return the name of a user."""
    # Asking may load a library of the system, and most who import us never ask.
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def own() -> str:
    """Return the name of the user this process runs as."""
    return name(os.geteuid())
