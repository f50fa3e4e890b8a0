-- Moving, draining and forgetting.

-- Where a waiting job stands among those of its priority; `ranks` makes these texts. At first the order is that of ids.
ALTER TABLE jobs ADD COLUMN rank TEXT NOT NULL DEFAULT '';
UPDATE jobs SET rank = printf('%016x', id + 4611686018427387904);

DROP INDEX jobs_in_line;
CREATE INDEX jobs_in_line ON jobs (request, batch, priority DESC, rank, id) WHERE state = 'queued' AND is_ready = 1;
CREATE INDEX jobs_waiting ON jobs (priority, rank) WHERE state IN ('held', 'queued');

-- Devices on which this user's jobs start no more. Those of all users are files that root wrote.
CREATE TABLE drained (
    device TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Jobs that are forgotten while their files are still to be removed.
CREATE TABLE forgotten (
    id               INTEGER PRIMARY KEY,
    with_checkpoints INTEGER NOT NULL CHECK (with_checkpoints IN (0, 1))
) STRICT;
