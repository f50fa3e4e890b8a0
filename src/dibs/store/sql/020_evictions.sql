-- Evictable jobs.

-- The table made anew, because what makes requests differ is part of it; jobs and lines refer to it by its name.
CREATE TABLE requests_anew (
    id       INTEGER PRIMARY KEY,
    gpus     INTEGER NOT NULL CHECK (gpus >= 0),
    gpu_ids  TEXT NOT NULL CHECK (gpu_ids LIKE '[%]'),
    prefer   TEXT NOT NULL CHECK (prefer LIKE '[%]'),
    gpu_type TEXT NOT NULL,
    cpus     INTEGER NOT NULL CHECK (cpus >= 0),
    mem      INTEGER NOT NULL CHECK (mem >= 0),
    -- Seconds; 0 means no limit.
    limit_s  REAL NOT NULL CHECK (limit_s >= 0),
    -- Bytes of each device; 0 means the device alone.
    vram     INTEGER NOT NULL CHECK (vram >= 0),
    ignore_foreign INTEGER NOT NULL CHECK (ignore_foreign IN (0, 1)),
    evictable TEXT NOT NULL CHECK (evictable IN ('no', 'yes', 'auto')),
    UNIQUE (gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, vram, ignore_foreign, evictable)
) STRICT;
INSERT INTO requests_anew SELECT id, gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, vram, ignore_foreign, 'no'
FROM requests;
DROP TABLE requests;
ALTER TABLE requests_anew RENAME TO requests;

ALTER TABLE jobs ADD COLUMN evictions INTEGER NOT NULL DEFAULT 0 CHECK (evictions >= 0);
-- The user for whom it was evicted last.
ALTER TABLE jobs ADD COLUMN evicted_by TEXT NOT NULL DEFAULT '';
-- While it is being evicted: when its devices are free at the latest.
ALTER TABLE jobs ADD COLUMN leaves_at INTEGER CHECK (leaves_at IS NULL OR state = 'stopping');
-- Whether this attempt writes checkpoints, so that `auto` makes it evictable.
ALTER TABLE jobs ADD COLUMN has_checkpoints INTEGER NOT NULL DEFAULT 0 CHECK (has_checkpoints IN (0, 1));
-- Run time of evicted attempts that their checkpoints kept, and that was lost.
ALTER TABLE jobs ADD COLUMN saved_ms INTEGER NOT NULL DEFAULT 0 CHECK (saved_ms >= 0);
ALTER TABLE jobs ADD COLUMN lost_ms INTEGER NOT NULL DEFAULT 0 CHECK (lost_ms >= 0);
