-- What evictions cost.

-- Of an evicted attempt: how much of its run time its last checkpoint kept; NULL: not looked at yet.
ALTER TABLE attempts ADD COLUMN saved_ms INTEGER CHECK (saved_ms >= 0);
CREATE INDEX attempts_evicted ON attempts (job, attempt) WHERE outcome = 'evicted' AND saved_ms IS NULL;
