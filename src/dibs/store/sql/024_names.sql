-- Lists of a million jobs in the order of their names, and the jobs of one name, without looking at the others.

CREATE INDEX jobs_of_name ON jobs (name, id);
