-- Jobs on clusters that others operate.

-- Where a job runs is part of what it asks for: jobs of one engine have lines of their own. The table made anew, because
-- what makes requests differ is part of it; jobs and lines refer to it by its name.
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
    -- local, or the name of a cluster in the settings.
    engine   TEXT NOT NULL DEFAULT 'local' CHECK (engine <> ''),
    UNIQUE (gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, vram, ignore_foreign, evictable, engine)
) STRICT;
INSERT INTO requests_anew
SELECT id, gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, vram, ignore_foreign, evictable, 'local'
FROM requests;
DROP TABLE requests;
ALTER TABLE requests_anew RENAME TO requests;

-- What the engine calls the current start, and the node that it runs on.
ALTER TABLE jobs ADD COLUMN engine_ref TEXT;
ALTER TABLE jobs ADD COLUMN node TEXT;
-- The user's own options for the engine.
ALTER TABLE jobs ADD COLUMN engine_options TEXT NOT NULL DEFAULT '';
-- The engine that gets the job if it would wait longer here than these seconds; emptied when it is sent there.
ALTER TABLE jobs ADD COLUMN overflow TEXT;
ALTER TABLE jobs ADD COLUMN overflow_after_s REAL;
-- Where jobs wait that may overflow, those that were submitted first first.
CREATE INDEX jobs_to_overflow ON jobs (submitted_at) WHERE state = 'queued' AND overflow IS NOT NULL;

ALTER TABLE attempts ADD COLUMN engine TEXT NOT NULL DEFAULT 'local';
ALTER TABLE attempts ADD COLUMN engine_ref TEXT;
ALTER TABLE attempts ADD COLUMN node TEXT;
