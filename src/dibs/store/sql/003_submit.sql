-- What a submission may say: scripts, arrays, warnings, metrics.

-- Texts of scripts, each distinct content once.
CREATE TABLE scripts (
    id     INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    body   BLOB NOT NULL
) STRICT;

ALTER TABLE jobs ADD COLUMN script INTEGER REFERENCES scripts (id) CHECK (script IS NULL OR argv IS NOT NULL);
-- The number in an array or among equal jobs, and how many of them came before it.
ALTER TABLE jobs ADD COLUMN number INTEGER CHECK (number >= 0);
ALTER TABLE jobs ADD COLUMN place INTEGER CHECK (place >= 0 AND place < id);
ALTER TABLE jobs ADD COLUMN is_slurm INTEGER NOT NULL DEFAULT 0 CHECK (is_slurm IN (0, 1));
-- [name of a signal, seconds before the limit]
ALTER TABLE jobs ADD COLUMN warn TEXT CHECK (warn LIKE '[%]');
ALTER TABLE jobs ADD COLUMN wait_tree INTEGER NOT NULL DEFAULT 0 CHECK (wait_tree IN (0, 1));
-- [[name, regular expression], ...]
ALTER TABLE jobs ADD COLUMN metrics TEXT NOT NULL DEFAULT '[]' CHECK (metrics LIKE '[%]');
