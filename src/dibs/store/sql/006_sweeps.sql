-- Sweeps: sets of jobs from one parameter space, and what came out of each run.

CREATE TABLE sweeps (
    id         INTEGER PRIMARY KEY,
    project    TEXT NOT NULL,
    name       TEXT NOT NULL CHECK (name <> ''),
    -- As it was typed, with places for parameters; with `argv` the words it was made of.
    command    TEXT NOT NULL,
    argv       TEXT CHECK (argv LIKE '[%]'),
    folder     TEXT,
    -- The number by which runs are compared, and which end is better.
    metric     TEXT,
    goal       TEXT CHECK (goal IN ('minimize', 'maximize')),
    -- All that was said about it when it was last submitted.
    definition TEXT NOT NULL CHECK (definition LIKE '{%}'),
    batch      INTEGER NOT NULL REFERENCES batches (id),
    created_at INTEGER NOT NULL,
    UNIQUE (project, name)
) STRICT;

-- A run of a sweep: its point as a key, the parameters as a program reads them, and the folder that is made for it.
ALTER TABLE jobs ADD COLUMN sweep INTEGER REFERENCES sweeps (id);
ALTER TABLE jobs ADD COLUMN point TEXT CHECK ((point IS NULL) = (sweep IS NULL));
ALTER TABLE jobs ADD COLUMN params TEXT CHECK (params LIKE '{%}');
ALTER TABLE jobs ADD COLUMN folder TEXT;
CREATE INDEX jobs_of_sweep ON jobs (sweep, point) WHERE sweep IS NOT NULL;

-- How the latest run of a point ended, and the numbers it reported; it outlives the job.
CREATE TABLE results (
    sweep       INTEGER NOT NULL REFERENCES sweeps (id),
    point       TEXT NOT NULL,
    number      INTEGER NOT NULL,
    params      TEXT NOT NULL CHECK (params LIKE '{%}'),
    job         INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    outcome     TEXT NOT NULL,
    -- {name: number}; NULL: still to be read from the files of the attempt.
    numbers     TEXT CHECK (numbers LIKE '{%}'),
    started_at  INTEGER,
    finished_at INTEGER NOT NULL,
    PRIMARY KEY (sweep, point)
) STRICT, WITHOUT ROWID;
CREATE INDEX results_unread ON results (job, attempt) WHERE numbers IS NULL;

-- However a run ends, one by one or many at once, it is kept. One that never began has no numbers.
CREATE TRIGGER run_ends AFTER UPDATE OF state ON jobs
WHEN NEW.sweep IS NOT NULL AND NEW.state = 'finished' AND OLD.state <> 'finished' BEGIN
    INSERT OR REPLACE INTO results (sweep, point, number, params, job, attempt, outcome, numbers, started_at, finished_at)
    VALUES (NEW.sweep, NEW.point, coalesce(NEW.number, 0), NEW.params, NEW.id, NEW.attempt, NEW.outcome,
        CASE WHEN NEW.start = 0 THEN '{}' END, NEW.started_at, NEW.finished_at);
END;

-- Hold the rest of a batch if the first so many to end all ended badly; NULL: never.
ALTER TABLE batches ADD COLUMN halt_first INTEGER CHECK (halt_first >= 1);
