-- Where the environment of a job comes from, for submissions that bring none of their own.

-- submitter, job 12, login shell or user database; empty: an older version stored the job.
ALTER TABLE jobs ADD COLUMN environ_from TEXT NOT NULL DEFAULT '';

-- The newest job of each folder whose submitter sent its environment.
CREATE TABLE folders (
    cwd TEXT PRIMARY KEY,
    job INTEGER NOT NULL UNIQUE REFERENCES jobs (id) ON DELETE CASCADE
) STRICT;
INSERT INTO folders SELECT cwd, max(id) FROM jobs WHERE environ IS NOT NULL GROUP BY cwd;
