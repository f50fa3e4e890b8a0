-- The store of dibs, version 1. A row that makes no sense is refused here, whatever the program believes.

-- What jobs ask of the machine, each distinct request once: jobs with equal requests are alike to the scheduler.
CREATE TABLE requests (
    id       INTEGER PRIMARY KEY,
    gpus     INTEGER NOT NULL CHECK (gpus >= 0),
    gpu_ids  TEXT NOT NULL CHECK (gpu_ids LIKE '[%]'),
    prefer   TEXT NOT NULL CHECK (prefer LIKE '[%]'),
    gpu_type TEXT NOT NULL,
    cpus     INTEGER NOT NULL CHECK (cpus >= 0),
    mem      INTEGER NOT NULL CHECK (mem >= 0),
    -- Seconds; 0 means no limit.
    limit_s  REAL NOT NULL CHECK (limit_s >= 0),
    UNIQUE (gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s)
) STRICT;

-- Jobs that were submitted together under rules of their own. Batch 0 is that of all others and has none.
CREATE TABLE batches (
    id           INTEGER PRIMARY KEY,
    -- How many may be under way at once; NULL: any number.
    at_once      INTEGER CHECK (at_once >= 1),
    -- After so many bad ends the rest is held; NULL: never.
    halt_after   INTEGER CHECK (halt_after >= 1),
    bad          INTEGER NOT NULL DEFAULT 0,
    active       INTEGER NOT NULL DEFAULT 0 CHECK (active >= 0)
) STRICT;
INSERT INTO batches (id) VALUES (0);

-- The lines of those who can start: one for each request and batch. Kept by triggers, so that the scheduler finds
-- the head of each line without looking at the rest of it.
CREATE TABLE lines (
    request INTEGER NOT NULL REFERENCES requests (id),
    batch   INTEGER NOT NULL REFERENCES batches (id),
    queued  INTEGER NOT NULL CHECK (queued >= 0),
    PRIMARY KEY (request, batch)
) STRICT, WITHOUT ROWID;

-- Captured environments (NUL-separated), each distinct content once.
CREATE TABLE environs (
    id     INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    body   BLOB NOT NULL
) STRICT;

-- What was asked, and what became of it. AUTOINCREMENT: an id is never used again.
CREATE TABLE jobs (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    command      TEXT NOT NULL,
    argv         TEXT CHECK (argv LIKE '[%]'),
    cwd          TEXT NOT NULL,
    request      INTEGER NOT NULL REFERENCES requests (id),
    name         TEXT NOT NULL,
    project      TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    env          TEXT NOT NULL CHECK (env LIKE '[%]'),
    umask        INTEGER NOT NULL,
    output       TEXT,
    stderr       TEXT,
    tags         TEXT NOT NULL CHECK (tags LIKE '[%]'),
    visible      TEXT CHECK (visible IN ('uuid', 'index')),
    environ      INTEGER REFERENCES environs (id),
    begin_at     INTEGER,
    retries      INTEGER NOT NULL DEFAULT 0 CHECK (retries >= 0),
    retry_on     TEXT NOT NULL DEFAULT '',
    batch        INTEGER NOT NULL DEFAULT 0 REFERENCES batches (id),
    submitted_at INTEGER NOT NULL,
    state        TEXT NOT NULL DEFAULT 'queued' CHECK (
        state IN ('held', 'queued', 'starting', 'running', 'paused', 'stopping', 'finished')),
    outcome      TEXT CHECK (outcome IN ('done', 'failed', 'cancelled', 'timeout', 'lost')),
    cause        TEXT CHECK (
        cause IN ('exit', 'oom', 'gpu', 'signal', 'timeout', 'start', 'dependency', 'lost')),
    attempt      INTEGER NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    start        INTEGER NOT NULL DEFAULT 0 CHECK (start >= 0),
    dead_starts  INTEGER NOT NULL DEFAULT 0 CHECK (dead_starts >= 0),
    retried      INTEGER NOT NULL DEFAULT 0 CHECK (retried >= 0),
    is_ready     INTEGER NOT NULL DEFAULT 1 CHECK (is_ready IN (0, 1)),
    allocation   TEXT NOT NULL DEFAULT '[]' CHECK (allocation LIKE '[%]'),
    pid          INTEGER,
    exit_code    INTEGER,
    signal       INTEGER,
    started_at   INTEGER,
    finished_at  INTEGER,
    remark       TEXT,
    CHECK ((state = 'finished') = (outcome IS NOT NULL)),
    CHECK ((state = 'finished') = (finished_at IS NOT NULL)),
    CHECK (state NOT IN ('starting', 'running', 'paused', 'stopping') OR start >= 1),
    CHECK (state NOT IN ('held', 'queued') OR (allocation = '[]' AND pid IS NULL AND started_at IS NULL)),
    CHECK (outcome IS NOT 'done' OR (exit_code IS 0 AND cause IS NULL)),
    CHECK (outcome IS NULL OR outcome NOT IN ('failed', 'timeout', 'lost') OR cause IS NOT NULL)
) STRICT;

CREATE INDEX jobs_in_line ON jobs (request, batch, priority DESC, id) WHERE state = 'queued' AND is_ready = 1;
CREATE INDEX jobs_to_begin ON jobs (begin_at) WHERE state = 'queued' AND is_ready = 0;
CREATE INDEX jobs_of_batch ON jobs (batch, id) WHERE state = 'queued' AND batch <> 0;
CREATE INDEX jobs_active ON jobs (id) WHERE state IN ('starting', 'running', 'paused', 'stopping');
CREATE INDEX jobs_unfinished ON jobs (id) WHERE state <> 'finished';
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE state = 'finished';

-- Who waits for whom, and for what end.
CREATE TABLE dependencies (
    job   INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    needs INTEGER NOT NULL,
    "when" TEXT NOT NULL CHECK ("when" IN ('done', 'any', 'end')),
    PRIMARY KEY (job, needs, "when")
) STRICT, WITHOUT ROWID;
CREATE INDEX dependants ON dependencies (needs, job);

-- Finished attempts, one row each; the running one is in `jobs`.
CREATE TABLE attempts (
    job         INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    attempt     INTEGER NOT NULL,
    outcome     TEXT NOT NULL,
    cause       TEXT,
    exit_code   INTEGER,
    signal      INTEGER,
    allocation  TEXT NOT NULL,
    started_at  INTEGER,
    finished_at INTEGER NOT NULL,
    PRIMARY KEY (job, attempt)
) STRICT, WITHOUT ROWID;

-- Everything that happened, in order, with its reason. Rows are added in the transaction of the change they tell of,
-- and never altered.
CREATE TABLE events (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    job    INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE INDEX events_of_job ON events (job, id);
CREATE TRIGGER events_are_final BEFORE UPDATE ON events BEGIN
    SELECT RAISE (ABORT, 'an event is never altered');
END;

-- How many jobs show each word, kept and not counted.
CREATE TABLE counts (
    word TEXT PRIMARY KEY,
    n    INTEGER NOT NULL CHECK (n >= 0)
) STRICT, WITHOUT ROWID;
INSERT INTO counts VALUES
    ('held', 0), ('queued', 0), ('starting', 0), ('running', 0), ('paused', 0), ('stopping', 0),
    ('done', 0), ('failed', 0), ('cancelled', 0), ('timeout', 0), ('lost', 0);

CREATE TRIGGER jobs_count_in AFTER INSERT ON jobs BEGIN
    UPDATE counts SET n = n + 1 WHERE word = coalesce(NEW.outcome, NEW.state);
END;
CREATE TRIGGER jobs_count_moved AFTER UPDATE OF state, outcome ON jobs
WHEN coalesce(NEW.outcome, NEW.state) <> coalesce(OLD.outcome, OLD.state) BEGIN
    UPDATE counts SET n = n - 1 WHERE word = coalesce(OLD.outcome, OLD.state);
    UPDATE counts SET n = n + 1 WHERE word = coalesce(NEW.outcome, NEW.state);
END;
CREATE TRIGGER jobs_count_out AFTER DELETE ON jobs BEGIN
    UPDATE counts SET n = n - 1 WHERE word = coalesce(OLD.outcome, OLD.state);
END;

CREATE TRIGGER jobs_join_line AFTER INSERT ON jobs WHEN NEW.state = 'queued' AND NEW.is_ready BEGIN
    INSERT INTO lines VALUES (NEW.request, NEW.batch, 1)
    ON CONFLICT (request, batch) DO UPDATE SET queued = queued + 1;
END;
CREATE TRIGGER jobs_leave_line AFTER UPDATE OF state, is_ready, request, batch ON jobs
WHEN OLD.state = 'queued' AND OLD.is_ready BEGIN
    UPDATE lines SET queued = queued - 1 WHERE request = OLD.request AND batch = OLD.batch;
    DELETE FROM lines WHERE request = OLD.request AND batch = OLD.batch AND queued = 0;
END;
CREATE TRIGGER jobs_rejoin_line AFTER UPDATE OF state, is_ready, request, batch ON jobs
WHEN NEW.state = 'queued' AND NEW.is_ready BEGIN
    INSERT INTO lines VALUES (NEW.request, NEW.batch, 1)
    ON CONFLICT (request, batch) DO UPDATE SET queued = queued + 1;
END;
CREATE TRIGGER jobs_drop_line AFTER DELETE ON jobs WHEN OLD.state = 'queued' AND OLD.is_ready BEGIN
    UPDATE lines SET queued = queued - 1 WHERE request = OLD.request AND batch = OLD.batch;
    DELETE FROM lines WHERE request = OLD.request AND batch = OLD.batch AND queued = 0;
END;

CREATE TRIGGER batch_begins AFTER UPDATE OF state ON jobs
WHEN NEW.batch <> 0 AND OLD.state IN ('held', 'queued') AND NEW.state = 'starting' BEGIN
    UPDATE batches SET active = active + 1 WHERE id = NEW.batch;
END;
CREATE TRIGGER batch_ends AFTER UPDATE OF state ON jobs
WHEN NEW.batch <> 0 AND OLD.state IN ('starting', 'running', 'paused', 'stopping')
    AND NEW.state IN ('queued', 'held', 'finished') BEGIN
    UPDATE batches SET active = active - 1 WHERE id = NEW.batch;
END;

-- Facts about the queue as a whole.
CREATE TABLE facts (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
