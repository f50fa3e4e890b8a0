-- Jobs that start at once or not at all, and what is run when jobs have ended.

ALTER TABLE jobs ADD COLUMN no_wait INTEGER NOT NULL DEFAULT 0 CHECK (no_wait IN (0, 1));
-- The command to be run when it has ended; NULL: the one in the settings, if any.
ALTER TABLE jobs ADD COLUMN notify TEXT;

-- How a batch stands, kept and not counted: `bad` counts bad ends, a job that was retried may have had several.
ALTER TABLE batches ADD COLUMN size INTEGER NOT NULL DEFAULT 0 CHECK (size >= 0);
ALTER TABLE batches ADD COLUMN finished INTEGER NOT NULL DEFAULT 0 CHECK (finished >= 0);
ALTER TABLE batches ADD COLUMN done INTEGER NOT NULL DEFAULT 0 CHECK (done >= 0);
UPDATE batches SET
    size = (SELECT count(*) FROM jobs WHERE batch = batches.id),
    finished = (SELECT count(*) FROM jobs WHERE batch = batches.id AND state = 'finished'),
    done = (SELECT count(*) FROM jobs WHERE batch = batches.id AND outcome = 'done')
WHERE id <> 0;
CREATE TRIGGER batch_counts AFTER UPDATE OF state ON jobs
WHEN NEW.batch <> 0 AND (OLD.state = 'finished') <> (NEW.state = 'finished') BEGIN
    UPDATE batches SET
        finished = finished + (NEW.state = 'finished') - (OLD.state = 'finished'),
        done = done + (NEW.outcome IS 'done') - (OLD.outcome IS 'done')
    WHERE id = NEW.batch;
END;
