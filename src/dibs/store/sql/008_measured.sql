-- Numbers of jobs outside a sweep, and batches that come in parts.

-- What such jobs print (`--metric`), by attempt; the numbers of runs are in `results`.
CREATE TABLE numbers (
    job     INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    attempt INTEGER NOT NULL,
    -- {name: number}; NULL: still to be read from the files of the attempt.
    numbers TEXT CHECK (numbers LIKE '{%}'),
    PRIMARY KEY (job, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX numbers_unread ON numbers (job, attempt) WHERE numbers IS NULL;

-- Only jobs that name a metric: all others tell by their report, which is read when somebody asks.
CREATE TRIGGER measured_job_ends AFTER UPDATE OF state ON jobs
WHEN NEW.metrics <> '[]' AND NEW.sweep IS NULL AND NEW.start > 0
    AND NEW.state = 'finished' AND OLD.state <> 'finished' BEGIN
    INSERT OR REPLACE INTO numbers (job, attempt) VALUES (NEW.id, NEW.attempt);
END;

-- Since when more jobs of a batch are to come; NULL: it is whole. One whose submitter ended in between stays open.
ALTER TABLE batches ADD COLUMN open_since INTEGER;
