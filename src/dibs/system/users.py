"""User names: from the system, or the uid of a user without a name (for example in a container).

Lean.
"""

from __future__ import annotations

import os


def name(uid: int) -> str:
    # The lookup may load a system library, and most importers never need it.
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def own() -> str:
    """Return the name of the user this process runs as."""
    return name(os.geteuid())
