"""The rules that root sets for all users of a machine: shares of GPU time, quotas, and bounds of reservations.

They are the tables [shares] and [quotas] of /etc/dibs/config.toml. A user's own file may have quotas of projects only.
Every way to a GPU reads them. They bind dibs as it is; a program that was changed need not obey.

Lean.
"""

from __future__ import annotations

from dibs import errors
from dibs.model import units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

#: The file of root, below / or below the folder in which the lease folder was prepared (`dibs machine init --root`).
SITE_FILE = "/etc/dibs/config.toml"
PREPARED = "/run/dibs"
#: The tables of the file that are rules, and the settings of it that all users must agree on.
TABLES = ("shares", "quotas")
HALF_LIFE, UNUSED_FOR, IDLE_AFTER = "fair_half_life", "reserve_unused_for", "idle_after"
#: Seconds after which GPU time counts half, for which a reservation may be unused, and after which a lease is idle.
HALF_LIFE_S, UNUSED_FOR_S, IDLE_AFTER_S = 3 * 86400.0, 900.0, 1800.0
#: The setting of it that says for what idle leases may be used, and its values.
IDLE_GPUS = "idle_gpus"
NO_USE, LENT = "no", "evictable"
#: The largest share.
MOST_SHARE = 1e6


class Quota:
    """What somebody may use; None: no limit."""

    def __init__(
        self,
        gpus: int | None = None,
        gpu_hours_per_week: float | None = None,
        time: float | None = None,
        vram: int | None = None,
        reserve_gpus: int | None = None,
    ) -> None:
        #: GPUs at once.
        self.gpus = gpus
        self.gpu_hours_per_week = gpu_hours_per_week
        #: The longest time limit in seconds; jobs without one get it.
        self.time = time
        #: The most bytes of each GPU: everything must be asked for with --vram.
        self.vram = vram
        #: GPUs in reservations at once.
        self.reserve_gpus = reserve_gpus


NO_QUOTA = Quota()


class Person:
    """A user, with the names of the Unix groups that the user is in."""

    def __init__(self, uid: int, name: str, groups: tuple[str, ...] = ()) -> None:
        self.uid = uid
        self.name = name
        self.groups = groups


class Rules:
    """The rules of a machine, by name of user, Unix group or project."""

    def __init__(self) -> None:
        self.user_shares: dict[str, float] = {}
        self.group_shares: dict[str, float] = {}
        self.default = NO_QUOTA
        self.user: dict[str, Quota] = {}
        #: Of all members of a group together, and of each member.
        self.group: dict[str, Quota] = {}
        self.each: dict[str, Quota] = {}
        self.project: dict[str, Quota] = {}
        #: Those of `project` that the user set; root's may change at any time.
        self.own_project: dict[str, Quota] = {}
        self.half_life_s = HALF_LIFE_S
        self.unused_for_s = UNUSED_FOR_S
        self.idle_after_s = IDLE_AFTER_S
        #: Whether evictable jobs may use GPUs whose leases are idle.
        self.lends_idle = False

    @property
    def has_quotas(self) -> bool:
        """Return whether anybody's use of devices is limited."""
        return bool(self.default is not NO_QUOTA or self.user or self.group or self.each)

    @property
    def names_groups(self) -> bool:
        """Return whether it matters which groups a user is in."""
        return bool(self.group_shares or self.group or self.each)

    def share(self, who: Person) -> float:
        """Return the share of a user: the user's own, else the largest of a group of the user, else 1."""
        if who.name in self.user_shares:
            return self.user_shares[who.name]
        return max((self.group_shares[group] for group in who.groups if group in self.group_shares), default=1.0)

    def quota(self, who: Person) -> Quota:
        """Return the quota of a user: each value is the user's own, else the most generous of a group, else common."""
        own = self.user.get(who.name, NO_QUOTA)
        classes = [self.each[group] for group in who.groups if group in self.each]
        return Quota(**{name: _first(name, own, classes, self.default) for name in KEYS})

    def shared_quotas(self, who: Person) -> dict[str, Quota]:
        """Return the quotas that a user shares with all members of a group, by group."""
        return {group: self.group[group] for group in who.groups if group in self.group}


def _first(name: str, own: Quota, classes: Iterable[Quota], default: Quota) -> Any:
    value = getattr(own, name)
    if value is not None:
        return value
    generous = [each for quota in classes if (each := getattr(quota, name)) is not None]
    return max(generous, default=getattr(default, name))


def site_file(lease_dir: str | None) -> str:
    """Return root's file for a lease folder: the one of the tree in which the folder was prepared."""
    return f"{tree_of(lease_dir) or ''}{SITE_FILE}"


def tree_of(lease_dir: str | None) -> str | None:
    """Return the folder that takes the place of / for a lease folder, mostly empty; None: it is in no such tree."""
    if lease_dir is not None and lease_dir.endswith(PREPARED):
        return lease_dir[: -len(PREPARED)]
    return "" if lease_dir in (None, "/tmp") else None


def merged(site: object, own: object) -> Rules:
    """Return root's rules with the quotas that a user sets for own projects; of the same project root's count."""
    assert isinstance(own, Rules)
    if not isinstance(site, Rules):
        return own
    site.project = {**own.project, **site.project}
    site.own_project = own.project
    return site


# -- checking ---------------------------------------------------------------------------------------------------------


def parse(table: Mapping[str, object], where: str, is_site: bool = True) -> Rules:
    """Return the rules in a table of settings; raise UserError that names the first mistake."""
    rules = Rules()
    shares, quotas = (_table(table.get(name, {}), f"{where}: [{name}]") for name in TABLES)
    if shares and not is_site:
        raise errors.UserError(f"{where}: [shares] can be set only in {SITE_FILE}.", "Ask root for another share.")
    for kind, into in (("user", rules.user_shares), ("group", rules.group_shares)):
        for name, value in _table(shares.pop(kind, {}), f"{where}: [shares.{kind}]").items():
            into[name] = _number(value, f"{where}: shares.{kind}.{name}", MOST_SHARE)
    _refuse_unknown(shares, ("user", "group"), f"{where}: [shares]")
    if not is_site and (others := quotas.keys() - {"project"}):
        hint = "Limit your own jobs with max_gpus, or with [quotas.project.NAME]."
        raise errors.UserError(f"{where}: [quotas.{min(others)}] can be set only in {SITE_FILE}.", hint)
    _read_quotas(rules, quotas, where)
    if not is_site:
        rules.own_project = rules.project
    times = (HALF_LIFE, "half_life_s"), (UNUSED_FOR, "unused_for_s"), (IDLE_AFTER, "idle_after_s")
    for name, attribute in times:
        if name in table:
            setattr(rules, attribute, _duration(table[name], f"{where}: {name}"))
    rules.lends_idle = table.get(IDLE_GPUS) == LENT
    return rules


def _read_quotas(rules: Rules, quotas: dict[str, object], where: str) -> None:
    if "default" in quotas:
        rules.default = _quota(quotas.pop("default"), f"{where}: [quotas.default]")
    for kind, into in (("user", rules.user), ("project", rules.project)):
        for name, value in _table(quotas.pop(kind, {}), f"{where}: [quotas.{kind}]").items():
            into[name] = _quota(value, f"{where}: [quotas.{kind}.{name}]")
    for name, value in _table(quotas.pop("group", {}), f"{where}: [quotas.group]").items():
        own = _table(value, f"{where}: [quotas.group.{name}]")
        if "each" in own:
            rules.each[name] = _quota(own.pop("each"), f"{where}: [quotas.group.{name}.each]")
        rules.group[name] = _quota(own, f"{where}: [quotas.group.{name}]")
    _refuse_unknown(quotas, ("default", "user", "group", "project"), f"{where}: [quotas]")


def _table(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise errors.UserError(f'{where}: expected a table, got "{value}".')
    return dict(value)


def _quota(value: object, where: str) -> Quota:
    own = _table(value, where)
    _refuse_unknown(own, KEYS, where)
    values: dict[str, Any] = {name: KEYS[name](given, f"{where}: {name}") for name, given in own.items()}
    return Quota(**values)


def _refuse_unknown(own: Mapping[str, object], known: Iterable[str], where: str) -> None:
    from dibs.model import suggestions

    for name in own:
        if name not in known:
            hint = suggestions.did_you_mean(name, list(known)) or f"Known are: {', '.join(known)}."
            raise errors.UserError(f'{where}: there is no "{name}".', hint)


def _count(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**6:
        raise errors.UserError(f'{where}: expected a whole number from 0 up, got "{value}".')
    return value


def _number(value: object, where: str, most: float = 1e9) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise errors.UserError(f'{where}: expected a number above 0, got "{value}".')
    return float(value)


def _duration(value: object, where: str) -> float:
    try:
        seconds = units.parse_duration(str(value))
    except errors.UserError as error:
        raise errors.UserError(f"{where}: {error.message}", error.hint) from None
    if seconds <= 0:
        raise errors.UserError(f'{where}: expected a time above 0, got "{value}".')
    return seconds


def _size(value: object, where: str) -> int:
    try:
        return units.parse_size(str(value))
    except errors.UserError as error:
        raise errors.UserError(f"{where}: {error.message}", error.hint) from None


#: What a quota may limit, and how each is read; in the order of `Quota`.
KEYS: dict[str, Callable[[object, str], float]] = {
    "gpus": _count,
    "gpu_hours_per_week": _number,
    "time": _duration,
    "vram": _size,
    "reserve_gpus": _count,
}
