"""Choose the devices that are connected best.

Pure. A job on several devices is as fast as its slowest link. So the set with the better worst link wins, then the one
with the better sum of links, then the first one.

Lean.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    #: Keyed by pairs of devices, whatever type the caller uses for their ids.
    Closeness = Mapping[tuple[Any, Any], int]
    IsSpare = Callable[[Sequence[str]], bool]

#: Up to this many devices every set is considered; beyond that, one set is grown around each device.
MOST_EXACT = 16


def best(
    count: int, able: Sequence[str], first: Sequence[str], closeness: Closeness, is_spare: IsSpare
) -> tuple[str, ...] | None:
    """Return `count` of `able`, best first, those in `first` before all others; None if there are not enough.

    `is_spare` tells whether a set of devices may be taken; every subset of it may then be taken too.
    """
    if len(able) < count:
        return None
    begun = _in_order(min(count, len(first)), [device for device in able if device in first], [], is_spare)
    chosen = _completed(count, able, begun, closeness, is_spare)
    if chosen is None and begun:
        chosen = _completed(count, able, [], closeness, is_spare)
    return None if chosen is None else tuple(device for device in able if device in chosen)


def _completed(
    count: int, able: Sequence[str], begun: list[str], closeness: Closeness, is_spare: IsSpare
) -> Sequence[str] | None:
    """Return `begun` completed with the best of the others."""
    rest = [device for device in able if device not in begun]
    if not closeness or count < 2 or len(begun) == count:
        found = _in_order(count, rest, begun, is_spare)
        return found if len(found) == count else None
    if len(able) > MOST_EXACT:
        return _grown(count, rest, begun, closeness, is_spare)
    return _searched(count, rest, begun, closeness, is_spare)


def _in_order(count: int, able: Sequence[str], begun: Sequence[str], is_spare: IsSpare) -> list[str]:
    """Return `begun` extended in order by devices that may be taken with it, up to `count`."""
    chosen = list(begun)
    for device in able:
        if len(chosen) < count and is_spare([*chosen, device]):
            chosen.append(device)
    return chosen


def _links(devices: Sequence[str], closeness: Closeness) -> tuple[float, int]:
    """Return the worst link between devices, and the sum of all links."""
    links = [closeness.get((a, b), 0) for at, a in enumerate(devices) for b in devices[:at]]
    return min(links, default=float("inf")), sum(links)


def _searched(
    count: int, rest: Sequence[str], begun: list[str], closeness: Closeness, is_spare: IsSpare
) -> Sequence[str] | None:
    """Return the best set, by an exhaustive search that skips sets which cannot beat the best one so far."""
    everybody = [*begun, *rest]
    #: Upper bound on the sum of each device's links in any set.
    most = {
        one: sum(sorted(closeness.get((one, other), 0) for other in everybody if other != one)[1 - count :])
        for one in everybody
    }
    spare_most = sorted((most[one] for one in rest), reverse=True)
    score: tuple[float, int] = (float("-inf"), 0)
    found: list[str] | None = None

    def extend(chosen: list[str], start: int, worst: float, total: int) -> None:
        """Try all ways to complete `chosen` with devices from `start` on."""
        nonlocal score, found
        missing = count - len(chosen)
        if missing == 0:
            score, found = (worst, total), chosen
            return
        # Each link is counted at both ends.
        bound = (sum(most[one] for one in chosen) + sum(spare_most[:missing])) // 2
        if (worst, bound) <= score:
            return
        for at in range(start, len(rest) - missing + 1):
            device = rest[at]
            links = [closeness.get((device, other), 0) for other in chosen]
            reached = min([worst, *links]), total + sum(links)
            is_better = (reached[0], bound) > score and (missing > 1 or reached > score)
            if is_better and is_spare([*chosen, device]):
                extend([*chosen, device], at + 1, *reached)

    extend(begun, 0, *_links(begun, closeness))
    return found


def _grown(
    count: int, rest: Sequence[str], begun: Sequence[str], closeness: Closeness, is_spare: IsSpare
) -> Sequence[str] | None:
    """Return the best of the sets grown greedily around each device; it is not always optimal."""
    found: list[str] | None = None
    for seed in rest:
        grown = [*begun, seed] if is_spare([*begun, seed]) else []
        while grown and len(grown) < count:
            more = [device for device in rest if device not in grown and is_spare([*grown, device])]
            links = {device: [closeness.get((device, other), 0) for other in grown] for device in more}
            grown = [*grown, max(more, key=lambda d: (min(links[d]), sum(links[d])))] if more else []
        if grown and (found is None or _links(grown, closeness) > _links(found, closeness)):
            found = grown
    return found
