-- Searches: sweeps whose points are chosen while they run, and runs that are stopped early.

CREATE TABLE searches (
    sweep   INTEGER PRIMARY KEY REFERENCES sweeps (id),
    sampler TEXT NOT NULL CHECK (sampler IN ('tpe', 'cmaes')),
    -- How many runs it makes in total.
    trials  INTEGER NOT NULL CHECK (trials >= 1),
    seed    INTEGER NOT NULL,
    space   TEXT NOT NULL CHECK (space LIKE '{%}'),
    -- Why it takes no more trials; empty: it does, until it has all.
    ended   TEXT NOT NULL DEFAULT ''
) STRICT;

-- The rule that stops runs of the sweep early; NULL: none.
ALTER TABLE sweeps ADD COLUMN early_stop TEXT CHECK (early_stop IN ('median', 'hyperband'));

-- Whether a run was stopped early: its cause is then `early`, which the check of `cause` does not know.
ALTER TABLE jobs ADD COLUMN is_early INTEGER NOT NULL DEFAULT 0 CHECK (is_early IN (0, 1));

-- Why a run did not succeed, as in `jobs`; a run that was stopped early is not run again.
ALTER TABLE results ADD COLUMN cause TEXT;
UPDATE results SET cause = (SELECT jobs.cause FROM jobs WHERE jobs.id = results.job AND jobs.attempt = results.attempt);
DROP TRIGGER run_ends;
CREATE TRIGGER run_ends AFTER UPDATE OF state ON jobs
WHEN NEW.sweep IS NOT NULL AND NEW.state = 'finished' AND OLD.state <> 'finished' BEGIN
    INSERT OR REPLACE INTO results
        (sweep, point, number, params, job, attempt, outcome, cause, numbers, started_at, finished_at)
    VALUES (NEW.sweep, NEW.point, coalesce(NEW.number, 0), NEW.params, NEW.id, NEW.attempt, NEW.outcome,
        CASE WHEN NEW.is_early THEN 'early' ELSE NEW.cause END, CASE WHEN NEW.start = 0 THEN '{}' END, NEW.started_at, NEW.finished_at);
END;
