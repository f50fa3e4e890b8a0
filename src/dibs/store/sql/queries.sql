-- Every query of the store, by name. `:name` is a value; {columns} and {where} are filled from this file,
-- {spec} and its kin from the table of a job's fields (`rows.spec_fills`).

-- name: columns
-- What `rows.job_of` reads, in its order.
jobs.id, gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, vram, ignore_foreign, evictable, engine,
(SELECT group_concat(needs || ':' || "when") FROM dependencies WHERE job = jobs.id),
(SELECT sweeps.name FROM sweeps WHERE sweeps.id = jobs.sweep),
{jobs.spec},
submitted_at, state, outcome, CASE WHEN is_early THEN 'early' ELSE cause END, attempt, start, dead_starts, retried,
is_ready, allocation, pid, exit_code, signal, started_at, finished_at, remark, rank, evictions, evicted_by, leaves_at,
saved_ms, lost_ms, engine_ref, node

-- name: add_request
INSERT INTO requests (gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, vram, ignore_foreign, evictable, engine)
VALUES (:gpus, :gpu_ids, :prefer, :gpu_type, :cpus, :mem, :limit_s, :vram, :ignore_foreign, :evictable, :engine)
ON CONFLICT DO NOTHING

-- name: find_request
SELECT id FROM requests
WHERE gpus = :gpus AND gpu_ids = :gpu_ids AND prefer = :prefer AND gpu_type = :gpu_type
    AND cpus = :cpus AND mem = :mem AND limit_s = :limit_s AND vram = :vram AND ignore_foreign = :ignore_foreign
    AND evictable = :evictable AND engine = :engine

-- name: add_environ
INSERT INTO environs (digest, body) VALUES (:digest, :body) ON CONFLICT DO NOTHING

-- name: find_environ
SELECT id FROM environs WHERE digest = :digest

-- name: environ
SELECT body FROM environs WHERE id = :id

-- name: keep_folder
INSERT INTO folders (cwd, job) VALUES (:cwd, :job) ON CONFLICT (cwd) DO UPDATE SET job = excluded.job

-- name: folders
SELECT cwd, job FROM folders WHERE cwd = coalesce(:cwd, cwd) ORDER BY job DESC LIMIT :most

-- name: add_script
INSERT INTO scripts (digest, body) VALUES (:digest, :body) ON CONFLICT DO NOTHING

-- name: find_script
SELECT id FROM scripts WHERE digest = :digest

-- name: script
SELECT body FROM scripts WHERE id = :id

-- name: last_id
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'jobs'

-- name: forget_last_id
DELETE FROM sqlite_sequence WHERE name = 'jobs'

-- name: set_last_id
INSERT INTO sqlite_sequence (name, seq) VALUES ('jobs', :id)

-- name: add_job
INSERT INTO jobs (id, request, {spec}, submitted_at, is_ready, rank)
VALUES (:id, :request, {:spec}, :submitted_at, :is_ready, :rank)

-- name: make_arriving
-- The values in which many otherwise equal jobs differ, while they are submitted.
CREATE TEMP TABLE IF NOT EXISTS arriving (
    id INTEGER PRIMARY KEY, command TEXT NOT NULL, name TEXT NOT NULL, number INTEGER, place INTEGER,
    argv TEXT, point TEXT, params TEXT, folder TEXT
) STRICT

-- name: arrive
INSERT INTO arriving VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_arriving
INSERT INTO jobs (id, request, {spec}, submitted_at, is_ready, rank)
SELECT :first + arriving.id, :request, {arriving.spec}, :submitted_at, :is_ready,
    printf('%016x', :rank_of_0 + :first + arriving.id)
FROM arriving ORDER BY arriving.id

-- name: clear_arriving
DELETE FROM arriving

-- name: add_dependency
INSERT OR IGNORE INTO dependencies (job, needs, "when") VALUES (:job, :needs, :when)

-- name: dependants
-- All jobs that depend, or depended, on this one.
SELECT DISTINCT job FROM dependencies WHERE needs = :id ORDER BY job

-- name: first_dependants
SELECT DISTINCT job FROM dependencies WHERE needs = :id ORDER BY job LIMIT :most

-- name: outcomes
-- The outcomes of the jobs that this one depends on; a deleted job counts as unfinished forever, and a run that was
-- stopped early as done.
SELECT needs, "when", CASE WHEN is_early AND outcome IS NOT NULL THEN 'done' ELSE outcome END
FROM dependencies LEFT JOIN jobs ON jobs.id = needs WHERE job = :id

-- name: set_ready
UPDATE jobs SET is_ready = :is_ready WHERE id = :id

-- name: due
SELECT id FROM jobs WHERE state = 'queued' AND is_ready = 0 AND begin_at > :since AND begin_at <= :now
ORDER BY begin_at

-- name: to_begin
-- The jobs that wait for their begin time, the next ones first.
SELECT id, begin_at FROM jobs WHERE state = 'queued' AND is_ready = 0 AND begin_at > :now ORDER BY begin_at LIMIT :most

-- name: next_begin
SELECT min(begin_at) FROM jobs WHERE state = 'queued' AND is_ready = 0 AND begin_at > :now

-- name: add_batch
INSERT INTO batches (at_once, halt_after, size) VALUES (:at_once, :halt_after, :size)

-- name: is_batch
SELECT 1 FROM batches WHERE id = :id AND id <> 0

-- name: batch
SELECT size, finished, done, bad, open_since IS NOT NULL FROM batches WHERE id = :id

-- name: batch_limit
SELECT at_once FROM batches WHERE id = :id

-- name: batch_room
SELECT at_once - active FROM batches WHERE id = :id

-- name: batch_bad
UPDATE batches SET bad = bad + 1 WHERE id = :id
RETURNING bad, coalesce(bad = halt_after, 0), coalesce(bad = halt_first AND done = 0, 0)

-- name: tell_batch_held
INSERT INTO events (job, at, kind, detail) SELECT id, :at, 'HoldAsked', :why FROM jobs
WHERE batch = :batch AND batch <> 0 AND state = 'queued' ORDER BY id

-- name: hold_batch
UPDATE jobs SET state = 'held', remark = :why WHERE batch = :batch AND batch <> 0 AND state = 'queued'

-- name: is_any_held
SELECT EXISTS (SELECT 1 FROM jobs WHERE state = 'held' AND remark = :why)

-- name: held_of_batch
SELECT min(id), max(id) FROM jobs WHERE state = 'held' AND batch = :batch

-- name: add_submitted_events
INSERT INTO events (job, at, kind, detail) SELECT id, submitted_at, 'Submitted', '' FROM jobs
WHERE id BETWEEN :first AND :last

-- name: move
-- Store what an event changed of a job; its spec does not change.
UPDATE jobs SET {moved} WHERE id = :id AND state = :state_before

-- name: locate
-- What the engine calls a start, and where it runs; neither changes the state of the job.
UPDATE jobs SET engine_ref = :engine_ref, node = :node WHERE id = :id

-- name: rewind
-- A job as it stood before a start that this database, an older copy, does not know.
UPDATE jobs SET state = 'queued', outcome = NULL, cause = NULL, is_early = 0, attempt = :attempt, start = :start, is_ready = 1,
    allocation = '[]', pid = NULL, exit_code = NULL, signal = NULL, started_at = NULL, finished_at = NULL, remark = NULL,
    leaves_at = NULL, has_checkpoints = 0, engine_ref = NULL, node = NULL
WHERE id = :id

-- name: add_event
INSERT INTO events (job, at, kind, detail) VALUES (:job, :at, :kind, :detail)

-- name: add_attempt
INSERT OR REPLACE INTO attempts
    (job, attempt, outcome, cause, exit_code, signal, allocation, started_at, finished_at, engine, engine_ref, node)
VALUES (:id, :attempt, :outcome, :cause, :exit_code, :signal, :allocation, :started_at, :finished_at,
    :engine, :engine_ref, :node)

-- name: add_runtime
INSERT OR REPLACE INTO runtimes (likeness, slot, took_ms) VALUES (:likeness, :job % 31, :took_ms)

-- name: runtimes
SELECT took_ms FROM runtimes WHERE likeness = :likeness

-- name: job
SELECT {columns} FROM jobs JOIN requests ON requests.id = jobs.request WHERE jobs.id = :id

-- name: active
SELECT {columns} FROM jobs JOIN requests ON requests.id = jobs.request
WHERE state IN ('starting', 'running', 'paused', 'stopping') ORDER BY jobs.id

-- name: active_devices
-- Of this machine; jobs on other engines use nothing of it. A job without a runner cannot be evicted: nobody would learn how it ended.
SELECT jobs.id, allocation, cpus, mem, limit_s, started_at, batch, vram,
    (evictable = 'yes' OR (evictable = 'auto' AND has_checkpoints)) AND remark IS NULL, evicted_by, leaves_at,
    job_group, project
FROM jobs JOIN requests ON requests.id = jobs.request
WHERE state IN ('starting', 'running', 'paused', 'stopping') AND engine = 'local' ORDER BY jobs.id

-- name: active_on
SELECT jobs.id, gpus, cpus FROM jobs JOIN requests ON requests.id = jobs.request
WHERE state IN ('starting', 'running', 'paused', 'stopping') AND engine = :engine ORDER BY jobs.id

-- name: waiting_on
-- How many jobs wait for each engine, also those that are held or not ready.
SELECT engine, count(*) FROM jobs JOIN requests ON requests.id = jobs.request
WHERE state IN ('held', 'queued') GROUP BY 1

-- name: to_overflow
-- The jobs that wait on this machine and may go elsewhere before they first start, the oldest first.
SELECT {columns} FROM jobs JOIN requests ON requests.id = jobs.request
WHERE state = 'queued' AND overflow IS NOT NULL AND is_ready = 1 AND attempt = 1 ORDER BY submitted_at, jobs.id
LIMIT :most

-- name: waiting_engines
SELECT DISTINCT engine FROM lines JOIN requests ON requests.id = lines.request
WHERE lines.queued > 0 AND engine <> 'local'

-- name: lines
-- The distinct requests of waiting jobs with their batch, group and project, and how many more of the batch may start.
SELECT requests.id, gpus, gpu_ids, prefer, gpu_type, cpus, mem, limit_s, vram, ignore_foreign, evictable, engine,
    batches.id, at_once - active, job_group, project
FROM lines JOIN requests ON requests.id = lines.request JOIN batches ON batches.id = lines.batch
WHERE lines.queued > 0 AND engine = :engine

-- name: head_of_line
SELECT id, priority, rank FROM jobs WHERE state = 'queued' AND is_ready = 1 AND request = :request AND batch = :batch
    AND job_group = :group AND project = :project
ORDER BY priority DESC, rank, id LIMIT :most

-- name: groups
-- The groups that have a rule or an unfinished job: their rule, and how many of their jobs are active and wait.
SELECT name, max(at_once), max(is_paused), sum(active), sum(waiting) FROM (
    SELECT name, at_once, is_paused, 0 AS active, 0 AS waiting FROM groups
    UNION ALL
    SELECT job_group, NULL, 0, sum(state NOT IN ('held', 'queued')), sum(state IN ('held', 'queued')) FROM jobs
    WHERE state <> 'finished' GROUP BY 1
) GROUP BY 1 ORDER BY 1

-- name: group_bounds
-- The groups with a rule, and how many more of their jobs may be active.
SELECT name, at_once - (SELECT count(*) FROM jobs
    WHERE state IN ('starting', 'running', 'paused', 'stopping') AND job_group = groups.name), is_paused FROM groups

-- name: set_group_at_once
INSERT INTO groups (name, at_once) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET at_once = excluded.at_once

-- name: set_group_paused
INSERT INTO groups (name, is_paused) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET is_paused = excluded.is_paused

-- name: drop_plain_groups
DELETE FROM groups WHERE at_once IS NULL AND is_paused = 0

-- name: unfinished
SELECT {columns} FROM jobs JOIN requests ON requests.id = jobs.request
WHERE state <> 'finished' ORDER BY jobs.id LIMIT :most

-- name: groups_of_unfinished
SELECT id, sweep, batch, submitted_at FROM jobs WHERE state <> 'finished' ORDER BY id LIMIT :most

-- name: lately_finished
SELECT {columns} FROM jobs JOIN requests ON requests.id = jobs.request
WHERE state = 'finished' ORDER BY finished_at DESC, jobs.id DESC LIMIT :most

-- name: ended_last
SELECT id, sweep, batch, submitted_at FROM jobs WHERE state = 'finished' ORDER BY finished_at DESC, id DESC LIMIT :most

-- name: failed_since
SELECT outcome, count(*) FROM jobs
WHERE state = 'finished' AND finished_at >= :since AND outcome IN ('failed', 'timeout', 'lost') GROUP BY 1

-- name: tally_sweep
SELECT coalesce(outcome, state), count(*), min(id), max(id) FROM jobs WHERE sweep = :sweep GROUP BY 1

-- name: tally_submission
-- Jobs of one batch, or without one of one moment, have neighbouring ids: only these are looked at.
SELECT coalesce(outcome, state), count(*), min(id), max(id) FROM jobs
WHERE sweep IS NULL AND batch = :batch AND (batch <> 0 OR submitted_at = :at)
    AND id > coalesce((SELECT id FROM jobs WHERE id < :first
        AND (sweep IS NOT NULL OR batch <> :batch OR (batch = 0 AND submitted_at <> :at)) ORDER BY id DESC LIMIT 1), 0)
    AND id < coalesce((SELECT id FROM jobs WHERE id > :last
        AND (sweep IS NOT NULL OR batch <> :batch OR (batch = 0 AND submitted_at <> :at)) ORDER BY id LIMIT 1), 1 << 62)
GROUP BY 1

-- name: strangers
-- The nearest job on each side of `first` that is not in a group, and the last job of all. Ids only grow.
SELECT coalesce((SELECT id FROM jobs WHERE id < :first AND {stranger} ORDER BY id DESC LIMIT 1), 0),
    (SELECT id FROM jobs WHERE id > :after AND {stranger} ORDER BY id LIMIT 1),
    (SELECT max(id) FROM jobs)

-- name: stranger
(sweep IS NOT :sweep OR (:sweep IS NULL AND (batch <> :batch OR (batch = 0 AND submitted_at <> :at))))

-- name: tally_span
-- All jobs between two ids per displayed state, counted from indexes alone.
SELECT word, (SELECT count(*) FROM jobs WHERE state IN ('held', 'queued') AND state = word AND id > :low AND id < :high)
FROM (SELECT 'held' AS word UNION ALL SELECT 'queued')
UNION ALL SELECT state, count(*) FROM jobs
WHERE state IN ('starting', 'running', 'paused', 'stopping') AND id > :low AND id < :high GROUP BY 1
UNION ALL SELECT word, (SELECT count(*) FROM jobs WHERE outcome IS NOT NULL AND outcome = word AND id > :low AND id < :high)
FROM (SELECT value AS word FROM json_each('["done", "failed", "cancelled", "timeout", "lost"]'))

-- name: ends_of_span
SELECT (SELECT min(id) FROM jobs WHERE id > :low AND id < :high), (SELECT max(id) FROM jobs WHERE id > :low AND id < :high)

-- name: selected
SELECT {columns} FROM jobs JOIN requests ON requests.id = jobs.request WHERE {where} ORDER BY jobs.id LIMIT :most

-- name: selected_ids
SELECT jobs.id FROM jobs WHERE {where} ORDER BY jobs.id

-- name: selected_words
SELECT jobs.id, coalesce(outcome, state) FROM jobs WHERE {where} ORDER BY jobs.id

-- name: tally
SELECT coalesce(outcome, state), count(*) FROM jobs WHERE {where} GROUP BY 1

-- name: can_go_on
-- Whether any of these jobs runs or may start without anybody's help. One that waits for others may if one of those may;
-- one that is held may not, whatever it waits for.
WITH RECURSIVE open (id) AS (
    SELECT jobs.id FROM jobs WHERE ({where}) AND state <> 'finished'
    UNION
    SELECT need.id FROM open
    JOIN jobs AS waiter ON waiter.id = open.id AND waiter.state = 'queued' AND waiter.is_ready = 0
    JOIN dependencies ON dependencies.job = open.id
    JOIN jobs AS need ON need.id = needs AND need.state <> 'finished')
SELECT EXISTS (SELECT 1 FROM open JOIN jobs ON jobs.id = open.id WHERE state NOT IN ('held', 'queued')
    OR (state = 'queued' AND (is_ready = 1 OR NOT EXISTS (
        SELECT 1 FROM dependencies JOIN jobs AS need ON need.id = needs
        WHERE dependencies.job = open.id AND need.state <> 'finished'))))

-- name: held_among
-- The held ones of these jobs and of those that they wait for.
WITH RECURSIVE open (id) AS (
    SELECT jobs.id FROM jobs WHERE ({where}) AND state <> 'finished'
    UNION
    SELECT needs FROM open JOIN dependencies ON job = open.id)
SELECT jobs.id, remark, batch, tags FROM open JOIN jobs ON jobs.id = open.id WHERE state = 'held' ORDER BY jobs.id

-- name: counts
SELECT word, n FROM counts

-- name: events_of
SELECT at, kind, detail FROM events WHERE job = :job ORDER BY id

-- name: attempts_of
SELECT attempt, outcome, cause, exit_code, signal, allocation, started_at, finished_at, engine, node FROM attempts
WHERE job = :job ORDER BY attempt

-- name: usage
-- How long jobs had devices, by day, project, sweep and group; how many jobs that were; and how busy the devices were in
-- the sampled minutes of that time, and in how many idle. Running attempts count until now.
WITH days AS (
    SELECT key AS day, json_extract(value, '$[0]') AS since, json_extract(value, '$[1]') AS until FROM json_each(:days)
), stays AS (
    SELECT job, allocation, started_at, finished_at FROM attempts
    WHERE finished_at > :since AND started_at < :until AND allocation <> '[]'
    UNION ALL
    SELECT id, allocation, started_at, :now FROM jobs
    WHERE state IN ('starting', 'running', 'paused', 'stopping') AND started_at < :until AND allocation <> '[]'
), held AS (
    SELECT day, project, coalesce(sweep, 0) AS sweep, job_group, count(DISTINCT stays.job) AS jobs,
        sum((min(stays.finished_at, until) - max(stays.started_at, since)) * json_array_length(stays.allocation)) AS ms
    FROM stays CROSS JOIN days ON stays.started_at < until AND stays.finished_at > since
    CROSS JOIN jobs ON jobs.id = stays.job GROUP BY 1, 2, 3, 4
), watched AS (
    SELECT day, project, coalesce(sweep, 0) AS sweep, job_group, count(*) AS minutes,
        sum(minutes.utilization < :idle_below) AS idle, sum(minutes.utilization) / 100.0 AS busy
    FROM stays CROSS JOIN json_each(stays.allocation) AS device
    CROSS JOIN minutes ON minutes.device = device.value AND minutes.utilization IS NOT NULL
        AND minutes.minute >= (max(stays.started_at, :since) + 59999) / 60000
        AND minutes.minute < min(stays.finished_at, :until) / 60000
    CROSS JOIN days ON minutes.minute * 60000 >= since AND minutes.minute * 60000 < until
    CROSS JOIN jobs ON jobs.id = stays.job GROUP BY 1, 2, 3, 4
), first AS (
    SELECT job, started_at FROM attempts WHERE attempt = 1 AND finished_at > :since AND allocation <> '[]'
    UNION ALL
    SELECT id, started_at FROM jobs
    WHERE state IN ('starting', 'running', 'paused', 'stopping') AND attempt = 1 AND allocation <> '[]'
), waited AS (
    SELECT day, project, coalesce(sweep, 0) AS sweep, job_group,
        sum(max(0, first.started_at - max(submitted_at, coalesce(begin_at, 0)))) AS wait
    FROM first CROSS JOIN days ON first.started_at >= since AND first.started_at < until
    CROSS JOIN jobs ON jobs.id = first.job GROUP BY 1, 2, 3, 4
)
SELECT held.day, held.project, sweeps.name, ms, coalesce(minutes, 0), coalesce(idle, 0), held.job_group,
    coalesce(busy, 0.0), jobs, coalesce(wait, 0) FROM held
LEFT JOIN watched ON watched.day = held.day AND watched.project = held.project AND watched.sweep = held.sweep
    AND watched.job_group = held.job_group
LEFT JOIN waited ON waited.day = held.day AND waited.project = held.project AND waited.sweep = held.sweep
    AND waited.job_group = held.job_group
LEFT JOIN sweeps ON sweeps.id = held.sweep
ORDER BY ms DESC, 1, 2, 3 LIMIT :most

-- name: keep_person_day
INSERT INTO people_days (day, uid, ms) VALUES (:day, :uid, :ms)
ON CONFLICT (day, uid) DO UPDATE SET ms = excluded.ms WHERE excluded.ms > ms

-- name: people_days
SELECT day, uid, ms FROM people_days WHERE day >= :since ORDER BY day, ms DESC LIMIT :most

-- name: project_times
-- The attempts that had devices and ended since a time.
SELECT project, json_array_length(attempts.allocation), attempts.started_at, attempts.finished_at
FROM attempts JOIN jobs ON jobs.id = attempts.job
WHERE attempts.finished_at >= :since AND attempts.started_at IS NOT NULL AND attempts.allocation <> '[]'

-- name: ordinary_times
-- The same of jobs that are not evictable, the first to end first.
SELECT project, json_array_length(attempts.allocation), attempts.started_at, attempts.finished_at
FROM attempts JOIN jobs ON jobs.id = attempts.job JOIN requests ON requests.id = jobs.request
WHERE attempts.finished_at >= :since AND attempts.started_at IS NOT NULL AND attempts.allocation <> '[]'
    AND evictable <> 'yes'
ORDER BY attempts.finished_at

-- name: waits
-- How long the jobs that started in the range had waited for devices: the median, and the longest waits.
WITH first AS (
    SELECT job, started_at FROM attempts WHERE attempt = 1 AND finished_at > :since AND allocation <> '[]'
    UNION ALL
    SELECT id, started_at FROM jobs
    WHERE state IN ('starting', 'running', 'paused', 'stopping') AND attempt = 1 AND allocation <> '[]'
), waits AS (
    SELECT id, name, max(0, first.started_at - max(submitted_at, coalesce(begin_at, 0))) AS wait
    FROM first CROSS JOIN jobs ON jobs.id = first.job WHERE first.started_at >= :since AND first.started_at < :until
), ranked AS (
    SELECT id, name, wait, count(*) OVER () AS total, row_number() OVER (ORDER BY wait, id) AS place FROM waits
)
SELECT id, name, wait, total, place = (total + 1) / 2 FROM ranked
WHERE place = (total + 1) / 2 OR place > total - :most ORDER BY place DESC

-- name: attempts_between
-- The attempts that used devices at some time in the range, the last to end first.
SELECT attempts.job, name, attempts.attempt, attempts.outcome, attempts.allocation, attempts.started_at, attempts.finished_at
FROM attempts JOIN jobs ON jobs.id = attempts.job
WHERE attempts.finished_at >= :since AND attempts.started_at < :until AND attempts.allocation <> '[]'
ORDER BY attempts.finished_at DESC LIMIT :most

-- name: fact
SELECT value FROM facts WHERE name = :name

-- name: set_fact
INSERT INTO facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: where_all
1

-- name: where_ids
-- One value for any number of ranges, a list of [first, last]: SQLite limits the depth of an expression.
jobs.id IN (
    SELECT chosen.id FROM json_each(?) AS ends
    JOIN jobs AS chosen ON chosen.id BETWEEN json_extract(ends.value, '$[0]') AND json_extract(ends.value, '$[1]'))

-- name: where_last
jobs.id = (SELECT id FROM jobs ORDER BY id DESC LIMIT 1 OFFSET ?)

-- name: where_word
coalesce(jobs.outcome, jobs.state) IN (SELECT value FROM json_each(?))

-- name: where_active
jobs.state IN ('starting', 'running', 'paused', 'stopping') AND jobs.state IN (SELECT value FROM json_each(?))

-- name: where_unfinished
jobs.state <> 'finished' AND jobs.state IN (SELECT value FROM json_each(?))

-- name: where_name
-- The plus keeps the order of the page, so that the query ends when the page is full.
+jobs.name GLOB ?

-- name: where_name_is
jobs.name = ?

-- name: where_project
jobs.project GLOB ?

-- name: where_group
jobs.job_group GLOB ?

-- name: where_tag
jobs.tags <> '[]' AND EXISTS (SELECT 1 FROM json_each(jobs.tags) WHERE value GLOB ?)

-- name: where_sweep
jobs.sweep IN (SELECT value FROM json_each(?))

-- name: where_since
jobs.submitted_at >= ?

-- name: where_project_is
jobs.project = ?

-- name: where_tag_is
jobs.tags <> '[]' AND EXISTS (SELECT 1 FROM json_each(jobs.tags) WHERE value = ?)

-- name: where_sweep_is
jobs.sweep = ?

-- name: where_gpu_is
-- A list of a few ids, each in double quotes.
instr(jobs.allocation, '"' || ? || '"')

-- name: where_text
(jobs.name LIKE ? ESCAPE '\' OR jobs.command LIKE ? ESCAPE '\')

-- name: where_between
-- The plus keeps the order of the page, so that the query ends when the page is full.
+jobs.submitted_at >= ? AND +jobs.submitted_at < ?

-- name: page
-- One arm of a page: jobs by their sort key. Arms are merged; each is read in the order of an index.
SELECT {sort} AS place, jobs.id AS id FROM jobs WHERE {where}

-- name: arm_ended
jobs.outcome = ?

-- name: arm_waiting
jobs.state IN ('held', 'queued') AND jobs.state = ?

-- name: after_ascending
({sort}, jobs.id) > (?, ?)

-- name: after_descending
({sort}, jobs.id) < (?, ?)

-- name: after_id_ascending
jobs.id > ?

-- name: after_id_descending
jobs.id < ?

-- name: arm_finished
jobs.state = 'finished'

-- name: arm_unfinished
jobs.state <> 'finished'

-- name: after_unfinished_ascending
-- All of them have the value -1.
jobs.id > CASE WHEN ? > -1 THEN 4611686018427387904 ELSE ? END

-- name: after_unfinished_descending
jobs.id < CASE WHEN ? > -1 THEN 4611686018427387904 ELSE ? END

-- name: order_ascending
ORDER BY place, id LIMIT ?

-- name: order_descending
ORDER BY place DESC, id DESC LIMIT ?

-- name: sort_id
jobs.id

-- name: sort_submitted
jobs.submitted_at

-- name: sort_started
-- Jobs without this time come before all that have one.
coalesce(jobs.started_at, -1)

-- name: sort_finished
coalesce(jobs.finished_at, -1)

-- name: sort_finished_only
jobs.finished_at

-- name: sort_unfinished
-1

-- name: sort_priority
jobs.priority

-- name: sort_duration
CASE WHEN jobs.started_at IS NULL THEN -1 ELSE coalesce(jobs.finished_at, ?) - jobs.started_at END

-- name: sort_name
jobs.name

-- name: page_ids
-- The ids of a whole list as one JSON text, without a Python object for each of a million.
SELECT count(*), json_group_array(id) FROM ({page})

-- name: bundles
-- The jobs of a list that are runs of a sweep or members of a batch, in the order of the list.
SELECT jobs.id, jobs.sweep, jobs.batch, coalesce(jobs.outcome, jobs.state) FROM ({page}) AS listed
CROSS JOIN jobs ON jobs.id = listed.id WHERE jobs.sweep IS NOT NULL OR jobs.batch != 0

-- name: jobs_by_id
SELECT {columns} FROM json_each(:ids) AS wanted CROSS JOIN jobs ON jobs.id = wanted.value
JOIN requests ON requests.id = jobs.request ORDER BY wanted.key

-- name: make_crowd
-- The jobs of one bulk change, and for those that end because of a dependency, which one.
CREATE TEMP TABLE IF NOT EXISTS crowd (id INTEGER PRIMARY KEY, need INTEGER)

-- name: clear_crowd
DELETE FROM crowd

-- name: gather
INSERT INTO crowd (id) SELECT jobs.id FROM jobs WHERE ({where})

-- name: gather_doomed
-- All jobs that need one of the crowd done, directly or through others. CROSS keeps the order of these joins: a crowd is
-- usually small, and the jobs that wait are many.
WITH RECURSIVE doomed (id) AS (
    SELECT job FROM crowd CROSS JOIN dependencies ON needs = crowd.id CROSS JOIN jobs ON jobs.id = job
    WHERE "when" = 'done' AND state IN ('held', 'queued')
    UNION
    SELECT job FROM doomed CROSS JOIN dependencies ON needs = doomed.id CROSS JOIN jobs ON jobs.id = job
    WHERE "when" = 'done' AND state IN ('held', 'queued'))
INSERT OR IGNORE INTO crowd (id, need)
SELECT id, (SELECT min(needs) FROM dependencies WHERE job = doomed.id AND "when" = 'done'
    AND (needs IN (SELECT id FROM crowd) OR needs IN (SELECT id FROM doomed))) FROM doomed

-- name: crowd
SELECT id, need FROM crowd ORDER BY id

-- name: tell_crowd
INSERT INTO events (job, at, kind, detail) SELECT id, :at, :kind, :detail FROM crowd WHERE need IS NULL ORDER BY id

-- name: tell_doomed
INSERT INTO events (job, at, kind, detail)
SELECT id, :at, 'NeedFailed', replace(:remark, '{need}', need) FROM crowd WHERE need IS NOT NULL ORDER BY id

-- name: cancel_crowd
UPDATE jobs SET state = 'finished', outcome = 'cancelled', finished_at = :at, remark = NULL
WHERE id IN (SELECT id FROM crowd WHERE need IS NULL)

-- name: cancel_doomed
UPDATE jobs SET state = 'finished', outcome = 'cancelled', cause = 'dependency', finished_at = :at,
    remark = replace(:remark, '{need}', (SELECT need FROM crowd WHERE crowd.id = jobs.id))
WHERE id IN (SELECT id FROM crowd WHERE need IS NOT NULL)

-- name: keep_attempts_of_crowd
INSERT OR REPLACE INTO attempts (job, attempt, outcome, cause, exit_code, signal, allocation, started_at, finished_at)
SELECT id, attempt, outcome, cause, exit_code, signal, allocation, started_at, finished_at FROM jobs
WHERE id IN (SELECT id FROM crowd)

-- name: waiters_of_crowd
-- The waiting jobs that depend on one of the crowd.
SELECT DISTINCT job FROM crowd CROSS JOIN dependencies ON needs = crowd.id CROSS JOIN jobs ON jobs.id = job
WHERE state IN ('held', 'queued') ORDER BY job

-- name: noticed_of_crowd
-- The newest of the crowd that have a notify command, or all of them if the setting has one.
SELECT {columns} FROM jobs JOIN requests ON requests.id = jobs.request
WHERE jobs.id IN (SELECT id FROM crowd) AND (:is_for_all OR notify IS NOT NULL) ORDER BY jobs.id DESC LIMIT :most

-- name: gather_revived
-- All jobs that were cancelled, directly or through others, because one of the crowd did not succeed.
WITH RECURSIVE revived (id) AS (
    SELECT job FROM crowd CROSS JOIN dependencies ON needs = crowd.id CROSS JOIN jobs ON jobs.id = job
    WHERE cause = 'dependency'
    UNION
    SELECT job FROM revived CROSS JOIN dependencies ON needs = revived.id CROSS JOIN jobs ON jobs.id = job
    WHERE cause = 'dependency')
INSERT OR IGNORE INTO crowd (id, need)
SELECT id, (SELECT min(needs) FROM dependencies WHERE job = revived.id
    AND (needs IN (SELECT id FROM crowd) OR needs IN (SELECT id FROM revived))) FROM revived

-- name: tell_revived
INSERT INTO events (job, at, kind, detail)
SELECT id, :at, 'NeedRetried', '' FROM crowd WHERE need IS NOT NULL ORDER BY id

-- name: ran_out_of_crowd
SELECT jobs.id FROM crowd CROSS JOIN jobs ON jobs.id = crowd.id JOIN requests ON requests.id = jobs.request
WHERE cause = 'oom' AND vram > 0 ORDER BY jobs.id

-- name: retry_crowd
-- Jobs that were cancelled with a dependency usually never ran, so their attempt number stays.
UPDATE jobs SET state = 'queued', attempt = attempt + (start > 0 OR crowd.need IS NULL), retried = 0, start = 0,
    dead_starts = 0, allocation = '[]', pid = NULL, outcome = NULL, cause = NULL, is_early = 0, exit_code = NULL,
    signal = NULL, started_at = NULL, finished_at = NULL, remark = NULL FROM crowd WHERE jobs.id = crowd.id

-- name: shift_crowd
UPDATE jobs SET state = :state, remark = :remark WHERE id IN (SELECT id FROM crowd)

-- name: unready_of_crowd
SELECT id FROM jobs WHERE id IN (SELECT id FROM crowd) AND is_ready = 0 ORDER BY id

-- name: unsure_of_crowd
-- The jobs whose readiness has to be checked.
SELECT id FROM jobs WHERE id IN (SELECT id FROM crowd)
    AND (is_ready = 0 OR EXISTS (SELECT 1 FROM dependencies WHERE job = jobs.id)) ORDER BY id

-- name: set_rank
UPDATE jobs SET rank = :rank WHERE id = :id

-- name: first_rank
SELECT rank FROM jobs WHERE state IN ('held', 'queued') AND priority = :priority AND id <> :id ORDER BY rank LIMIT 1

-- name: last_rank
SELECT rank FROM jobs WHERE state IN ('held', 'queued') AND priority = :priority AND id <> :id ORDER BY rank DESC LIMIT 1

-- name: rank_before
SELECT rank FROM jobs WHERE state IN ('held', 'queued') AND priority = :priority AND rank < :rank AND id <> :id
ORDER BY rank DESC LIMIT 1

-- name: rank_after
SELECT rank FROM jobs WHERE state IN ('held', 'queued') AND priority = :priority AND rank > :rank AND id <> :id
ORDER BY rank LIMIT 1

-- name: is_outranked
SELECT EXISTS (SELECT 1 FROM jobs WHERE state IN ('held', 'queued') AND priority > :priority)

-- name: edit_job
UPDATE jobs SET request = :request, {spec = :spec} WHERE id = :id

-- name: forget_needs
DELETE FROM dependencies WHERE job = :job

-- name: needs_in_turn
-- All direct and indirect dependencies of these jobs, including the jobs themselves.
WITH RECURSIVE needed (id) AS (
    SELECT value FROM json_each(:ids)
    UNION
    SELECT needs FROM needed JOIN dependencies ON job = needed.id)
SELECT id FROM needed

-- name: set_at_once
UPDATE batches SET at_once = :value WHERE id = :id

-- name: set_halt_after
UPDATE batches SET halt_after = :value WHERE id = :id

-- name: is_over_limit
SELECT halt_after IS NOT NULL AND bad >= halt_after FROM batches WHERE id = :id

-- name: drained
SELECT device, reason FROM drained ORDER BY device

-- name: drain
INSERT INTO drained (device, reason, at) VALUES (:device, :reason, :at)
ON CONFLICT (device) DO UPDATE SET reason = excluded.reason, at = excluded.at

-- name: undrain
DELETE FROM drained WHERE device = :device

-- name: needed
-- Finished jobs that unfinished ones depend on.
SELECT DISTINCT needs FROM dependencies JOIN jobs ON jobs.id = job WHERE state <> 'finished'

-- name: finished_first
-- The oldest finished jobs that no unfinished one depends on.
SELECT id FROM jobs WHERE state = 'finished' AND NOT EXISTS (
    SELECT 1 FROM dependencies JOIN jobs AS waiter ON waiter.id = job
    WHERE needs = jobs.id AND waiter.state <> 'finished')
ORDER BY finished_at LIMIT :most

-- name: finished_before
-- The clock may be wrong; the numbers of events are not.
SELECT id FROM jobs WHERE state = 'finished' AND finished_at < :moment
    AND (SELECT max(id) FROM events WHERE job = jobs.id) <= :event AND NOT EXISTS (
    SELECT 1 FROM dependencies JOIN jobs AS waiter ON waiter.id = job
    WHERE needs = jobs.id AND waiter.state <> 'finished')
ORDER BY finished_at LIMIT :most

-- name: count_finished_before
SELECT count(*) FROM jobs WHERE state = 'finished' AND finished_at < :moment
    AND (SELECT max(id) FROM events WHERE job = jobs.id) <= :event

-- name: gather_forgettable
-- Of these, the jobs that can be deleted: finished, no unfinished dependants, metrics stored.
INSERT INTO crowd (id) SELECT jobs.id FROM json_each(:ids) AS wanted JOIN jobs ON jobs.id = wanted.value
WHERE state = 'finished' AND NOT EXISTS (SELECT 1 FROM results WHERE job = jobs.id AND numbers IS NULL) AND NOT EXISTS (
    SELECT 1 FROM dependencies JOIN jobs AS waiter ON waiter.id = job
    WHERE needs = jobs.id AND waiter.state <> 'finished')

-- name: note_forgotten
INSERT OR REPLACE INTO forgotten (id, with_checkpoints) SELECT id, :with_checkpoints FROM crowd

-- name: forget_events
DELETE FROM events WHERE job IN (SELECT id FROM crowd)

-- name: forget_dependencies
-- Only finished jobs still name them.
DELETE FROM dependencies WHERE needs IN (SELECT id FROM crowd)

-- name: forget_jobs
DELETE FROM jobs WHERE id IN (SELECT id FROM crowd)

-- name: forgotten
SELECT id FROM forgotten WHERE with_checkpoints = :with_checkpoints ORDER BY id

-- name: forgot
DELETE FROM forgotten WHERE id IN (SELECT value FROM json_each(:ids))

-- name: forget_environs
-- Captured environments that no job uses any more: they may contain secrets.
DELETE FROM environs WHERE id NOT IN (SELECT environ FROM jobs WHERE environ IS NOT NULL)

-- name: forget_submissions
-- Submissions whose jobs are all deleted.
DELETE FROM submissions WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id BETWEEN first AND last) RETURNING key

-- name: add_submission
INSERT INTO submissions (key, first, last) VALUES (:key, :first, :last)

-- name: submission
SELECT first, last FROM submissions WHERE key = :key

-- name: submission_keys
SELECT key FROM submissions

-- name: last_event
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'

-- name: changed_since
-- The state of each job that changed between two events, each once.
SELECT jobs.id, coalesce(outcome, state), attempt, engine FROM (
    SELECT DISTINCT job FROM events WHERE id > :since AND id <= :until) AS news
JOIN jobs ON jobs.id = news.job JOIN requests ON requests.id = jobs.request

-- name: happened
SELECT events.id, job, at, kind, detail, coalesce(outcome, state), attempt
FROM events LEFT JOIN jobs ON jobs.id = events.job
WHERE events.id > :since AND events.id <= :until ORDER BY events.id LIMIT :most

-- name: happened_to_job
SELECT events.id, job, at, kind, detail, coalesce(outcome, state), attempt
FROM events LEFT JOIN jobs ON jobs.id = events.job
WHERE job = :job AND events.id > :since AND events.id <= :until ORDER BY events.id LIMIT :most

-- name: selected_states
SELECT jobs.id, coalesce(outcome, state), attempt, engine
FROM jobs JOIN requests ON requests.id = jobs.request WHERE {where}

-- name: forget_scripts
DELETE FROM scripts WHERE id NOT IN (SELECT script FROM jobs WHERE script IS NOT NULL)

-- name: sweep_columns
-- What `rows.sweep_of` reads, in its order.
id, project, name, command, argv, folder, metric, goal, early_stop, batch, created_at,
CASE WHEN json_extract(definition, '$.search') = 'random' AND json_type(definition, '$.points') = 'integer'
    THEN json_extract(definition, '$.points') END,
sampler, trials, seed, space, ended

-- name: keep_search
-- Submitted again, a search continues.
INSERT INTO searches (sweep, sampler, trials, seed, space) VALUES (:sweep, :sampler, :trials, :seed, :space)
ON CONFLICT (sweep) DO UPDATE SET sampler = excluded.sampler, trials = excluded.trials, seed = excluded.seed,
    space = excluded.space, ended = ''

-- name: drop_search
DELETE FROM searches WHERE sweep = :sweep

-- name: end_search
UPDATE searches SET ended = :why WHERE sweep = :sweep AND ended = ''

-- name: trials_left
-- How many more trials each search takes that has not ended.
SELECT sweep, trials - (SELECT count(*) FROM jobs WHERE jobs.sweep = searches.sweep)
    - (SELECT count(*) FROM results WHERE results.sweep = searches.sweep
        AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.sweep = results.sweep AND jobs.point = results.point)) AS "left"
FROM searches WHERE ended = '' AND "left" > 0

-- name: end_halted_search
-- The search of a batch that failed too often. If runs of it are held instead, it continues with them.
UPDATE searches SET ended = :why WHERE ended = '' AND sweep IN (SELECT id FROM sweeps WHERE batch = :batch)
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE batch = :batch AND state = 'held')

-- name: unfinished_of_sweep
-- Its runs that are not finished and not about to be.
SELECT EXISTS (SELECT 1 FROM jobs WHERE sweep = :sweep AND state NOT IN ('finished', 'stopping'))

-- name: newest_of_sweep
SELECT max(id) FROM jobs WHERE sweep = :sweep

-- name: stopping_rules
-- Sweeps with a rule that stops runs early, and unfinished runs.
SELECT sweeps.id FROM sweeps JOIN batches ON batches.id = sweeps.batch
WHERE early_stop IS NOT NULL AND (open_since IS NOT NULL OR finished < size)

-- name: runs_with_curves
-- The runs of a sweep whose reports may be compared.
SELECT {columns} FROM jobs JOIN requests ON requests.id = jobs.request
WHERE jobs.sweep = :sweep AND started_at IS NOT NULL AND (state IN ('running', 'paused', 'stopping')
    OR outcome = 'done' OR is_early) ORDER BY jobs.id

-- name: count_early
SELECT count(*) FROM jobs WHERE ({where}) AND is_early AND state = 'finished'

-- name: spare_early
DELETE FROM crowd WHERE id IN (SELECT id FROM jobs WHERE is_early)

-- name: add_sweep
INSERT INTO sweeps (project, name, command, argv, folder, metric, goal, early_stop, definition, batch, created_at)
VALUES (:project, :name, :command, :argv, :folder, :metric, :goal, :early_stop, :definition, :batch, :created_at)

-- name: update_sweep
-- What may change when it is submitted again.
UPDATE sweeps SET folder = :folder, metric = coalesce(:metric, metric), goal = coalesce(:goal, goal),
    early_stop = :early_stop, definition = :definition
WHERE id = :id

-- name: sweep
SELECT {sweep} FROM sweeps LEFT JOIN searches ON sweep = id WHERE id = :id

-- name: sweeps
SELECT {sweep} FROM sweeps LEFT JOIN searches ON sweep = id ORDER BY id

-- name: find_sweep
SELECT id FROM sweeps WHERE project = :project AND name = :name

-- name: sweeps_like
SELECT id, project, name FROM sweeps WHERE name = :word OR project || '/' || name = :word
    OR name GLOB :word OR project || '/' || name GLOB :word
ORDER BY id

-- name: next_index
-- One more than the greatest index that a run of a sweep has, or had.
SELECT 1 + max(coalesce((SELECT max(number) FROM jobs WHERE sweep = :sweep), -1),
    coalesce((SELECT max(number) FROM results WHERE sweep = :sweep), -1))

-- name: sweep_names
SELECT project, name FROM sweeps ORDER BY id DESC LIMIT :most

-- name: open_batch
-- Its failures are counted from zero: submitting it again acknowledges them.
UPDATE batches SET bad = 0, open_since = :at WHERE id = :id

-- name: close_batch
UPDATE batches SET open_since = NULL WHERE id = :id

-- name: ended_while_open
-- The last job of a batch that ended since it was opened.
SELECT id FROM jobs WHERE state = 'finished' AND batch = :id
    AND finished_at >= (SELECT open_since FROM batches WHERE batches.id = :id)
ORDER BY finished_at DESC, id DESC LIMIT 1

-- name: grow_batch
UPDATE batches SET size = size + :more WHERE id = :id

-- name: set_halt_first
UPDATE batches SET halt_first = :value WHERE id = :id

-- name: runs_of_points
-- The newest run of each of these points; a point whose job was deleted is known by its result. CROSS: the few points
-- first, each found by the index; otherwise SQLite would scan the whole sweep.
SELECT wanted.value, jobs.id, coalesce(jobs.outcome, jobs.state), jobs.is_early FROM json_each(:points) AS wanted
CROSS JOIN jobs ON jobs.id = (
    SELECT max(newest.id) FROM jobs AS newest WHERE newest.sweep = :sweep AND newest.point = wanted.value)
UNION ALL
SELECT wanted.value, NULL, results.outcome, results.cause IS 'early' FROM json_each(:points) AS wanted
CROSS JOIN results ON results.sweep = :sweep AND results.point = wanted.value
WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.sweep = :sweep AND jobs.point = wanted.value)

-- name: runs_in_folders
-- CROSS: the few folders first, each looked up by the index.
SELECT jobs.folder, jobs.point, jobs.id FROM json_each(:folders) AS wanted
CROSS JOIN jobs ON jobs.sweep = :sweep AND jobs.folder = wanted.value AND jobs.folder IS NOT NULL

-- name: runs_of_sweep
-- Runs in their current state, from one job on. The plus: ordered by id, so that the next part continues there.
SELECT jobs.id, jobs.attempt, coalesce(jobs.number, 0), jobs.params, coalesce(jobs.outcome, jobs.state),
    CASE WHEN jobs.is_early THEN 'early' ELSE jobs.cause END, results.numbers, results.summaries, jobs.started_at, jobs.finished_at,
    (SELECT engine FROM requests WHERE requests.id = jobs.request)
FROM jobs LEFT JOIN results ON results.sweep = jobs.sweep AND results.point = jobs.point
    AND results.job = jobs.id AND results.attempt = jobs.attempt
WHERE +jobs.sweep = :sweep AND jobs.id > :after ORDER BY jobs.id LIMIT :most

-- name: forgotten_runs_of_sweep
-- Results of runs whose job was deleted.
SELECT NULL, attempt, number, params, outcome, cause, numbers, summaries, started_at, finished_at, NULL FROM results
WHERE sweep = :sweep AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.sweep = :sweep AND jobs.point = results.point)
ORDER BY point LIMIT :most OFFSET :after

-- name: states_of_sweeps
SELECT sweep, coalesce(outcome, state), count(*) FROM jobs WHERE sweep IS NOT NULL GROUP BY 1, 2
UNION ALL
SELECT sweep, outcome, count(*) FROM results
WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.sweep = results.sweep AND jobs.point = results.point) GROUP BY 1, 2

-- name: unread_results
SELECT job, attempt FROM results WHERE numbers IS NULL
UNION ALL
SELECT job, attempt FROM numbers WHERE numbers IS NULL ORDER BY job LIMIT :most

-- name: is_unread
SELECT EXISTS (SELECT 1 FROM numbers WHERE job = :job AND numbers IS NULL)
    OR EXISTS (SELECT 1 FROM results WHERE job = :job AND numbers IS NULL)

-- name: count_unread
-- The plus: use the index of unread results, which are few.
SELECT count(*) FROM results WHERE +sweep = :sweep AND numbers IS NULL

-- name: keep_numbers_of_run
UPDATE results SET numbers = :numbers, summaries = :summaries WHERE job = :job AND attempt = :attempt AND numbers IS NULL

-- name: keep_numbers
UPDATE numbers SET numbers = :numbers WHERE job = :job AND attempt = :attempt AND numbers IS NULL

-- name: numbers_of
SELECT numbers FROM numbers WHERE job = :job AND attempt = :attempt
UNION ALL
SELECT numbers FROM results WHERE sweep = :sweep AND point = :point AND job = :job AND attempt = :attempt

-- name: unwell
SELECT device, why FROM unwell ORDER BY device

-- name: accepted
SELECT device, why FROM accepted ORDER BY device

-- name: put_out
INSERT INTO unwell (device, why, at) VALUES (:device, :why, :at) ON CONFLICT DO NOTHING

-- name: bring_back
DELETE FROM unwell WHERE device = :device

-- name: accept
INSERT OR REPLACE INTO accepted (device, why) VALUES (:device, :why)

-- name: keep_use
-- An attempt that outlives a daemon is counted by both daemons.
INSERT INTO uses (job, attempt, device, peak, mean, looks)
SELECT :job, :attempt, :device, :peak, :mean, :looks WHERE EXISTS (SELECT 1 FROM jobs WHERE id = :job)
ON CONFLICT DO UPDATE SET looks = looks + excluded.looks,
    peak = max(coalesce(peak, excluded.peak), coalesce(excluded.peak, peak)),
    mean = (coalesce(mean, excluded.mean) * looks + coalesce(excluded.mean, mean) * excluded.looks)
        / (looks + excluded.looks)

-- name: uses_of
SELECT device, peak, mean, looks FROM uses WHERE job = :job AND attempt = :attempt ORDER BY device

-- name: earlier_uses
-- What runs of the same command in the same folder used. Only a fixed number of the newest rows is read.
SELECT used.peak, used.looks, earlier.outcome = 'done' AND earlier.attempt = used.attempt
FROM (SELECT job, attempt, peak, looks FROM uses ORDER BY job DESC LIMIT :most) AS used
CROSS JOIN jobs AS earlier ON earlier.id = used.job
CROSS JOIN jobs AS own ON own.id = :job
WHERE used.peak IS NOT NULL AND earlier.state = 'finished'
    AND earlier.command = own.command AND earlier.cwd = own.cwd

-- name: keep_minute
INSERT OR REPLACE INTO minutes (device, minute, memory, utilization, power, temperature)
VALUES (:device, :minute, :memory, :utilization, :power, :temperature)

-- name: forget_minutes
DELETE FROM minutes WHERE minute < :before

-- name: minutes_since
SELECT device, minute, memory, utilization, power, temperature FROM minutes WHERE minute >= :since ORDER BY device, minute

-- name: unread_evictions
-- Evicted attempts whose checkpoints were not looked at yet.
SELECT job, attempt, started_at, finished_at FROM attempts WHERE outcome = 'evicted' AND saved_ms IS NULL LIMIT :most

-- name: keep_saved
UPDATE attempts SET saved_ms = :saved WHERE job = :job AND attempt = :attempt AND saved_ms IS NULL

-- name: add_saved
UPDATE jobs SET saved_ms = saved_ms + :saved, lost_ms = lost_ms + :lost WHERE id = :job

-- name: automatic
-- Running jobs that become evictable when they write checkpoints.
SELECT jobs.id, attempt, started_at, has_checkpoints FROM jobs JOIN requests ON requests.id = jobs.request
WHERE state = 'running' AND evictable = 'auto' AND started_at IS NOT NULL

-- name: set_checkpoints
UPDATE jobs SET has_checkpoints = 1 WHERE id = :job AND attempt = :attempt AND state = 'running' AND has_checkpoints = 0
