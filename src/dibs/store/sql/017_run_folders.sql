-- The folders of runs: two runs of one sweep must not have the same.
CREATE INDEX jobs_by_run_folder ON jobs (sweep, folder) WHERE folder IS NOT NULL;
