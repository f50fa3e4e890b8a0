-- Submissions with a key: the same key once more means the same jobs, whose ids follow each other. Where they are calls
-- from Python, the file `calls/KEY` in the state folder holds what they call, for as long as one of them is kept.
CREATE TABLE submissions (
    key   TEXT PRIMARY KEY CHECK (key <> ''),
    first INTEGER NOT NULL,
    last  INTEGER NOT NULL CHECK (last >= first)
) STRICT, WITHOUT ROWID;
