-- Groups of jobs with a limit of their own; and a line for each group and project, so that jobs of one that may not start
-- never hide those of another.
CREATE TABLE groups (
    name      TEXT PRIMARY KEY,
    -- How many of its jobs may be active at once; NULL: any number.
    at_once   INTEGER CHECK (at_once >= 1),
    is_paused INTEGER NOT NULL DEFAULT 0 CHECK (is_paused IN (0, 1))
) STRICT, WITHOUT ROWID;

ALTER TABLE jobs ADD COLUMN job_group TEXT NOT NULL DEFAULT 'default';

DROP TRIGGER jobs_join_line;
DROP TRIGGER jobs_leave_line;
DROP TRIGGER jobs_rejoin_line;
DROP TRIGGER jobs_drop_line;
DROP TABLE lines;
DROP INDEX jobs_in_line;

CREATE TABLE lines (
    request   INTEGER NOT NULL REFERENCES requests (id),
    batch     INTEGER NOT NULL REFERENCES batches (id),
    job_group TEXT NOT NULL,
    project   TEXT NOT NULL,
    queued    INTEGER NOT NULL CHECK (queued >= 0),
    PRIMARY KEY (request, batch, job_group, project)
) STRICT, WITHOUT ROWID;
INSERT INTO lines SELECT request, batch, job_group, project, count(*) FROM jobs
WHERE state = 'queued' AND is_ready = 1 GROUP BY 1, 2, 3, 4;

CREATE INDEX jobs_in_line ON jobs (request, batch, job_group, project, priority DESC, rank, id)
WHERE state = 'queued' AND is_ready = 1;

CREATE TRIGGER jobs_join_line AFTER INSERT ON jobs WHEN NEW.state = 'queued' AND NEW.is_ready BEGIN
    INSERT INTO lines VALUES (NEW.request, NEW.batch, NEW.job_group, NEW.project, 1)
    ON CONFLICT (request, batch, job_group, project) DO UPDATE SET queued = queued + 1;
END;
CREATE TRIGGER jobs_leave_line AFTER UPDATE OF state, is_ready, request, batch, job_group, project ON jobs
WHEN OLD.state = 'queued' AND OLD.is_ready BEGIN
    UPDATE lines SET queued = queued - 1
    WHERE request = OLD.request AND batch = OLD.batch AND job_group = OLD.job_group AND project = OLD.project;
    DELETE FROM lines WHERE request = OLD.request AND batch = OLD.batch AND job_group = OLD.job_group
        AND project = OLD.project AND queued = 0;
END;
CREATE TRIGGER jobs_rejoin_line AFTER UPDATE OF state, is_ready, request, batch, job_group, project ON jobs
WHEN NEW.state = 'queued' AND NEW.is_ready BEGIN
    INSERT INTO lines VALUES (NEW.request, NEW.batch, NEW.job_group, NEW.project, 1)
    ON CONFLICT (request, batch, job_group, project) DO UPDATE SET queued = queued + 1;
END;
CREATE TRIGGER jobs_drop_line AFTER DELETE ON jobs WHEN OLD.state = 'queued' AND OLD.is_ready BEGIN
    UPDATE lines SET queued = queued - 1
    WHERE request = OLD.request AND batch = OLD.batch AND job_group = OLD.job_group AND project = OLD.project;
    DELETE FROM lines WHERE request = OLD.request AND batch = OLD.batch AND job_group = OLD.job_group
        AND project = OLD.project AND queued = 0;
END;
