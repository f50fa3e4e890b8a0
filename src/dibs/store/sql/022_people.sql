-- Device time of all users on each day, as the lease folder shows it; that folder is empty after a reboot.
CREATE TABLE people_days (
    -- Days since 1970 in UTC.
    day INTEGER NOT NULL,
    uid INTEGER NOT NULL,
    ms  REAL NOT NULL CHECK (ms >= 0),
    PRIMARY KEY (day, uid)
) STRICT, WITHOUT ROWID;
