"""Many small jobs of last week, for tables that must be long: submitted by the store, ended by a few statements."""

from __future__ import annotations

from pathlib import Path

from dibs.model.fields import JobSpec
from dibs.model.jobs import Member, Request
from dibs.store.writer import Store
from dibs.system import paths
from pretend import cards, day

#: Of this many jobs, those with this remainder ended like that.
ENDS = {
    7: ("failed", "exit", 1),
    19: ("failed", "oom", 1),
    23: ("cancelled", None, None),
    31: ("timeout", "timeout", None),
}
OF = 37
LAST_WEEK_MS = 7 * 24 * 3_600_000
APART_MS = 4_000

_END = """
UPDATE jobs SET state = 'finished', start = 1, pid = 20000 + id % 9000,
    outcome = CASE id % :of {outcomes} ELSE 'done' END,
    cause = CASE id % :of {causes} END,
    exit_code = CASE id % :of {codes} ELSE 0 END,
    allocation = '["' || (SELECT value FROM json_each(:gpus) WHERE key = jobs.id % :count) || '"]',
    started_at = submitted_at + 2000, finished_at = submitted_at + 2000 + 40000 + id * 7919 % 260000
WHERE id BETWEEN :first AND :last
"""
_ATTEMPTS = """
INSERT INTO attempts (job, attempt, outcome, cause, exit_code, signal, allocation, started_at, finished_at)
SELECT id, 1, outcome, cause, exit_code, signal, allocation, started_at, finished_at
FROM jobs WHERE id BETWEEN :first AND :last
"""
_EVENTS = """
INSERT INTO events (job, at, kind, detail)
SELECT id, CASE kind WHEN 'Ended' THEN finished_at ELSE started_at END, kind, ''
FROM jobs, (SELECT 'Placed' AS kind UNION ALL SELECT 'Started' UNION ALL SELECT 'Ended')
WHERE jobs.id BETWEEN :first AND :last ORDER BY jobs.id
"""


def write(home: Path, count: int, now: int, cwd: str) -> None:
    """Write finished jobs into a store that has none yet."""
    import json

    def cases(place: int) -> str:
        found = ((rest, end[place]) for rest, end in ENDS.items())
        return " ".join(f"WHEN {rest} THEN {'NULL' if value is None else repr(value)}" for rest, value in found)

    store = Store.open(paths.database(home))
    members = [Member(f"python render.py --scene {n}", f"render-{n}", n, n) for n in range(count)]
    try:
        with store.batch(is_synced=False):
            spec = JobSpec("", None, cwd, Request(), project="render")
            ids = store.submit_alike(spec, members, now - LAST_WEEK_MS)
            names = {"first": ids[0], "last": ids[-1]}
            run = store.connection.execute
            run("UPDATE jobs SET submitted_at = submitted_at + id * ? WHERE id >= ?", (APART_MS, ids[0]))
            gpus = json.dumps([cards.uuid(index) for index in range(day.GPUS)])
            end = _END.format(outcomes=cases(0), causes=cases(1), codes=cases(2))
            run(end, names | {"of": OF, "gpus": gpus, "count": day.GPUS})
            run(_ATTEMPTS, names)
            run(_EVENTS, names)
    finally:
        store.close()
