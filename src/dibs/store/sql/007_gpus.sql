-- GPUs as they really are: memory that is declared, and people who use a device without a lease.

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
    UNIQUE (gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, vram, ignore_foreign)
) STRICT;
INSERT INTO requests_anew SELECT id, gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, 0, 0 FROM requests;
DROP TABLE requests;
ALTER TABLE requests_anew RENAME TO requests;

-- Ended when it uses a device that it does not lease.
ALTER TABLE jobs ADD COLUMN strict_gpus INTEGER NOT NULL DEFAULT 0 CHECK (strict_gpus IN (0, 1));
