-- Free text that people keep with a job.

ALTER TABLE jobs ADD COLUMN comment TEXT;
