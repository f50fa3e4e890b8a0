"""The order between users: least device time for their share first.

Older time counts less (`fair_half_life`), and shares are root's. It is the same order in every process: it depends on
files that all users can read, except that we add what we saw of others, which can only put them further back.
"""

from __future__ import annotations

import time

from dibs.leases import served_records, usage_records
from dibs.system.lean import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from dibs.leases.rules_file import RulesFile
    from dibs.system.locks import Folder


@record
class Position:
    """Where a user stands: seconds of device time, of which older ones count less, the share, and the last turn."""

    used_s: float = 0.0
    share: float = 1.0
    #: Boot-time ns; 0: never served since boot.
    served_ns: int = 0

    @property
    def key(self) -> tuple[float, int]:
        """Return what sorts users: device time for the share, then who was served least recently."""
        return self.used_s / self.share, self.served_ns


NEW = Position()


def of_users(place: Folder, rules: RulesFile, uids: Collection[int]) -> dict[int, Position]:
    """Return where these users stand now."""
    wall_s, now = time.time(), rules.now()
    has_shares = bool(now.user_shares or now.group_shares)
    days = usage_records.days_of_users(place, uids, wall_s)
    served = served_records.of_users(place, uids)
    return {
        uid: Position(
            usage_records.decayed_s(days[uid], now.half_life_s, wall_s),
            now.share(rules.person(uid)) if has_shares else 1.0,
            served.get(uid, 0),
        )
        for uid in uids
    }
