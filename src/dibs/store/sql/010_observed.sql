-- What was seen on the devices: which of them are out of use, how jobs used them, and how busy they were.

-- Devices that somebody has to bring back, and why; and what was accepted of those that still work.
CREATE TABLE unwell (
    device TEXT PRIMARY KEY,
    why    TEXT NOT NULL,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE accepted (
    device TEXT PRIMARY KEY,
    why    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- How an attempt used each of its devices: the most memory seen, and the mean use over so many looks.
CREATE TABLE uses (
    job     INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    attempt INTEGER NOT NULL,
    device  TEXT NOT NULL,
    -- Bytes, and percent; NULL: the device does not tell.
    peak    INTEGER,
    mean    REAL,
    looks   INTEGER NOT NULL CHECK (looks >= 1),
    PRIMARY KEY (job, attempt, device)
) STRICT, WITHOUT ROWID;

-- One row a minute and device while somebody looked; the oldest go.
CREATE TABLE minutes (
    device      TEXT NOT NULL,
    -- Minutes since 1970.
    minute      INTEGER NOT NULL,
    memory      INTEGER,
    utilization INTEGER,
    power       REAL,
    temperature INTEGER,
    PRIMARY KEY (device, minute)
) STRICT, WITHOUT ROWID;
