-- Lists of a million jobs in pages: those in one state by id, newest or oldest first, without looking at the others.

CREATE INDEX jobs_ended ON jobs (outcome, id) WHERE outcome IS NOT NULL;
CREATE INDEX jobs_held_or_queued ON jobs (state, id) WHERE state IN ('held', 'queued');
CREATE INDEX jobs_of_project ON jobs (project, id);
