-- How long jobs took that ended well, some of the newest of each likeness (`durations.likeness`, as a digest). It tells
-- how long others like them may take, and is kept when the jobs themselves are forgotten.
CREATE TABLE runtimes (
    likeness BLOB NOT NULL,
    -- The job's id modulo a prime: a new row takes the place of an old one, and there are never more to read.
    slot     INTEGER NOT NULL,
    took_ms  INTEGER NOT NULL CHECK (took_ms >= 0),
    PRIMARY KEY (likeness, slot)
) STRICT, WITHOUT ROWID;
