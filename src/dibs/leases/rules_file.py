"""Root's file with the rules of a machine: read again when it changes, and only if root alone can have written it."""

from __future__ import annotations

import os
import stat

from dibs import errors
from dibs.model import lab_rules
from dibs.model.lab_rules import Person, Quota, Rules
from dibs.system import users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.system.locks import Folder

#: The most bytes of the file that are read.
MOST_BYTES = 1_000_000


def rules_of_folder(place: Folder) -> RulesFile:
    """Return the file with the rules for those who use a lease folder."""
    return RulesFile(lab_rules.site_file(place.path))


def quotas(rules: Rules) -> tuple[tuple[str, Quota], ...]:
    """Return the quotas that hold for this user, each with what it is called."""
    if not rules.has_quotas:
        return ()
    who = person(os.geteuid(), rules.names_groups)
    shared = rules.shared_quotas(who).items()
    return (("your quota", rules.quota(who)), *((f"the quota of group {group}", quota) for group, quota in shared))


class RulesFile:
    """Root's file, read again when it has changed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._rules = Rules()
        self._people: dict[int, Person] = {}
        #: Inode, size and change time of what was read.
        self._seen: tuple[int, int, int] | None = None

    def now(self) -> Rules:
        """Return the rules; the last valid ones while the file is invalid, which every command then says."""
        try:
            found = os.stat(self.path)
        except OSError:
            found = None
        # Only root may set rules for others.
        is_roots = found is not None and found.st_uid == 0 and not found.st_mode & 0o022 and stat.S_ISREG(found.st_mode)
        seen = (found.st_ino, found.st_size, found.st_ctime_ns) if found is not None and is_roots else None
        if seen != self._seen:
            self._seen, self._people = seen, {}
            self._rules = Rules() if seen is None else self._read()
        return self._rules

    def _read(self) -> Rules:
        try:
            import tomllib
        except ImportError:
            # Python 3.10 or older, on a node of a cluster, which has limits of its own.
            return self._rules
        try:
            with open(self.path, "rb") as file:
                return lab_rules.parse(tomllib.loads(file.read(MOST_BYTES).decode()), self.path)
        except (OSError, ValueError, errors.UserError):
            return self._rules

    def person(self, uid: int) -> Person:
        """Return a user, with groups only if the rules name any."""
        if uid not in self._people:
            self._people[uid] = person(uid, self._rules.names_groups)
        return self._people[uid]


def person(uid: int, with_groups: bool = True) -> Person:
    """Return a user by uid. The lookup may take time."""
    name = users.name(uid)
    if not with_groups:
        return Person(uid, name, ())
    import grp
    import pwd

    try:
        gids = os.getgrouplist(name, pwd.getpwuid(uid).pw_gid)
        return Person(uid, name, tuple([grp.getgrgid(gid).gr_name for gid in gids]))
    except (KeyError, OSError):
        # A user or group without a name, as in a container.
        return Person(uid, name, ())
