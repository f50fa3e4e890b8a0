// Types of the daemon's answers. Generated from http_api/schemas by scripts/write-docs; do not edit.

/**
 * @typedef {"held"|"queued"|"starting"|"running"|"paused"|"stopping"|"done"|"failed"|"cancelled"|"timeout"|"lost"} Word
 * @typedef {Partial<Record<Word, number>>} Counts
 *
 * @typedef {object} Need A job that another waits for.
 * @property {number} id
 * @property {string} when
 *
 * @typedef {object} Warn A signal that is sent before the time limit.
 * @property {string} signal
 * @property {number} before_s
 *
 * @typedef {object} DeviceRequest Which GPUs a job may use.
 * @property {string[]} gpu_ids
 * @property {string[]} prefer
 * @property {string | null} gpu_type
 * @property {boolean} ignore_foreign
 *
 * @typedef {object} Job A job as lists show it.
 * @property {number} id
 * @property {string} name
 * @property {string} project
 * @property {string} user
 * @property {Word} state
 * @property {string | null} reason
 * @property {string | null} cause
 * @property {string} command
 * @property {string[] | null} argv
 * @property {string} cwd
 * @property {number} gpus
 * @property {string[]} gpu_ids
 * @property {number[]} gpu_indices
 * @property {number | null} vram
 * @property {number | null} cpus
 * @property {number | null} mem
 * @property {number} priority
 * @property {number | null} time_limit_s
 * @property {Need[]} after
 * @property {string | null} begin_at
 * @property {number} attempt
 * @property {number} retries
 * @property {number | null} pid
 * @property {number | null} exit_code
 * @property {number | null} signal
 * @property {string} submitted_at
 * @property {string | null} started_at
 * @property {string | null} finished_at
 * @property {string} log
 * @property {string | null} stderr
 * @property {string | null} sweep
 * @property {number | null} index
 * @property {Record<string, unknown> | null} params
 * @property {string[]} tags
 * @property {string} engine
 * @property {string | null} engine_ref
 * @property {string | null} node
 * @property {string} engine_options
 * @property {string | null} overflow
 * @property {number | null} overflow_after_s
 * @property {string | null} remark
 * @property {string | null} dir
 * @property {number | null} batch
 * @property {string[]} retry_on
 * @property {string | null} script
 * @property {Warn | null} warn
 * @property {boolean} wait_tree
 * @property {boolean} strict_gpus
 * @property {boolean} vram_enforce
 * @property {string | null} comment
 * @property {string} group
 * @property {boolean | string} evictable
 * @property {number} evictions
 * @property {number} saved_s
 * @property {number} lost_s
 * @property {Record<string, string>} metric
 * @property {boolean} notifies
 * @property {DeviceRequest} request
 * @property {Record<string, number | null> | null} report
 * @property {string[]} marks
 *
 * @typedef {object} Attempt A finished attempt of a job.
 * @property {number} attempt
 * @property {string} outcome
 * @property {string | null} cause
 * @property {number | null} exit_code
 * @property {number | null} signal
 * @property {string[]} gpu_ids
 * @property {number[]} gpu_indices
 * @property {string | null} started_at
 * @property {string} finished_at
 * @property {string} engine
 * @property {string | null} node
 * @property {string} log
 *
 * @typedef {object} ExpectedStart When a start is expected, and on which GPUs: those of the plan in which all take the most.
 * @property {string} earliest
 * @property {string} latest
 * @property {string[]} gpu_ids
 * @property {number[]} gpu_indices
 *
 * @typedef {object} Unknown Why the start is unknown, and what would help.
 * @property {string} why
 * @property {string} hint
 *
 * @typedef {object} Use How the latest attempt of a job used one of its GPUs.
 * @property {string} id
 * @property {number | null} peak_memory
 * @property {number | null} mean_utilization
 * @property {number} looks
 *
 * @typedef {object} WholeJob A job in full; `cli` is the command line that would submit it again, `hint` what would help while it waits.
 * @property {number} id
 * @property {string} name
 * @property {string} project
 * @property {string} user
 * @property {Word} state
 * @property {string | null} reason
 * @property {string | null} cause
 * @property {string} command
 * @property {string[] | null} argv
 * @property {string} cwd
 * @property {number} gpus
 * @property {string[]} gpu_ids
 * @property {number[]} gpu_indices
 * @property {number | null} vram
 * @property {number | null} cpus
 * @property {number | null} mem
 * @property {number} priority
 * @property {number | null} time_limit_s
 * @property {Need[]} after
 * @property {string | null} begin_at
 * @property {number} attempt
 * @property {number} retries
 * @property {number | null} pid
 * @property {number | null} exit_code
 * @property {number | null} signal
 * @property {string} submitted_at
 * @property {string | null} started_at
 * @property {string | null} finished_at
 * @property {string} log
 * @property {string | null} stderr
 * @property {string | null} sweep
 * @property {number | null} index
 * @property {Record<string, unknown> | null} params
 * @property {string[]} tags
 * @property {string} engine
 * @property {string | null} engine_ref
 * @property {string | null} node
 * @property {string} engine_options
 * @property {string | null} overflow
 * @property {number | null} overflow_after_s
 * @property {string | null} remark
 * @property {string | null} dir
 * @property {number | null} batch
 * @property {string[]} retry_on
 * @property {string | null} script
 * @property {Warn | null} warn
 * @property {boolean} wait_tree
 * @property {boolean} strict_gpus
 * @property {boolean} vram_enforce
 * @property {string | null} comment
 * @property {string} group
 * @property {boolean | string} evictable
 * @property {number} evictions
 * @property {number} saved_s
 * @property {number} lost_s
 * @property {Record<string, string>} metric
 * @property {boolean} notifies
 * @property {DeviceRequest} request
 * @property {Record<string, number | null> | null} report
 * @property {string[]} marks
 * @property {string} cli
 * @property {string} hint
 * @property {Attempt[]} attempts
 * @property {Record<string, string>} env
 * @property {string | null} environment
 * @property {ExpectedStart | null} expected_start
 * @property {Unknown | null} unknown
 * @property {Use[]} use
 *
 * @typedef {object} PauseState The queue as a whole.
 * @property {boolean} paused
 *
 * @typedef {object} Hello The first event of a stream; `last` is the number of the newest event.
 * @property {string} version
 * @property {number} last
 * @property {Counts} counts
 * @property {PauseState} queue
 * @property {string} host
 * @property {string} user
 *
 * @typedef {object} JobEvent The event `job`: something happened to a job. `state` and `attempt` are null for a deleted job.
 * @property {number} job
 * @property {string} at
 * @property {string} kind
 * @property {string} detail
 * @property {Word | null} state
 * @property {number | null} attempt
 *
 * @typedef {object} ChangedJob A job that a verb changed.
 * @property {number} id
 * @property {Word} state
 *
 * @typedef {object} UnchangedJob A job that a verb did not change.
 * @property {number} id
 * @property {Word} state
 * @property {string} why
 *
 * @typedef {object} ActionResult What a verb did. `clean` answers with the number of jobs and bytes, and the jobs that are still needed.
 * @property {ChangedJob[]} [changed]
 * @property {UnchangedJob[]} [unchanged]
 * @property {string} [note]
 * @property {number} [jobs]
 * @property {number} [bytes]
 * @property {number[]} [needed]
 *
 * @typedef {object} Environment A folder that was used from a shell, and its newest job.
 * @property {number} job
 * @property {string} name
 * @property {string} cwd
 * @property {string | null} activated
 * @property {string} submitted_at
 *
 * @typedef {object} Environments The folders and environments that a submission can choose from, newest first.
 * @property {Environment[]} environments
 *
 * @typedef {object} Process A process that the driver reports on a GPU.
 * @property {number} pid
 * @property {string | null} user
 * @property {string | null} name
 * @property {number | null} memory
 *
 * @typedef {object} Holder Who holds a GPU; `vram` null: the whole of it.
 * @property {string | null} user
 * @property {number | null} uid
 * @property {number | null} pid
 * @property {string | null} job
 * @property {string | null} since
 * @property {number | null} vram
 * @property {boolean} evictable
 * @property {boolean} loan
 *
 * @typedef {object} Blocked Who keeps a GPU from everybody without holding it, and what ends that; null: hidden from this user.
 * @property {string | null} user
 * @property {number | null} uid
 * @property {number | null} pid
 * @property {string} text
 * @property {string} fix
 *
 * @typedef {object} Reservation GPUs that are kept for a user; `state`: now, planned, or unused (released, because nobody used them in time).
 * @property {number} id
 * @property {string} user
 * @property {number[]} gpus
 * @property {string[]} gpu_ids
 * @property {string} from
 * @property {string} to
 * @property {string | null} every
 * @property {string} state
 * @property {string} name
 * @property {boolean} is_ours
 *
 * @typedef {object} Gpu A GPU; `idle_since` is null while it is in use or was not observed. `reserved_for`: it is kept for this job.

    `kept_by`: max_gpus, keep_free or quota, which leaves it to other users although a job of yours waits.
    `reservation`: the one that has begun.
    
 * @property {number} index
 * @property {string} id
 * @property {string} name
 * @property {number | null} memory_total
 * @property {number | null} memory_used
 * @property {number | null} utilization
 * @property {number | null} temperature
 * @property {string | null} fault
 * @property {string | null} drained
 * @property {string | null} foreign
 * @property {number} foreign_memory
 * @property {string | null} settling
 * @property {number | null} power
 * @property {number | null} power_limit
 * @property {number | null} ecc_errors
 * @property {string | null} compute_mode
 * @property {string | null} pci
 * @property {number | null} numa
 * @property {string | null} parent
 * @property {string} vendor
 * @property {Process[]} processes
 * @property {string} state
 * @property {Holder[]} holders
 * @property {string | null} idle_since
 * @property {string | null} unused_since
 * @property {boolean} is_idle
 * @property {number} waiters
 * @property {Blocked | null} blocked
 * @property {number | null} reserved_for
 * @property {string | null} kept_by
 * @property {Reservation | null} reservation
 *
 * @typedef {object} Waiter Somebody in the machine-wide line for GPUs.
 * @property {string} user
 * @property {number} pid
 * @property {number} gpus
 * @property {number | null} vram
 * @property {string[]} devices
 * @property {string} since
 *
 * @typedef {object} Gpus Every GPU of this machine, and who waits for some; `starts` says why the machine refuses starts.
 * @property {Gpu[]} gpus
 * @property {Waiter[]} waiters
 * @property {string | null} problem
 * @property {string | null} restriction
 * @property {string | null} starts
 *
 * @typedef {object} DrainState Why a GPU is drained; null if it is not.
 * @property {string} id
 * @property {number} index
 * @property {string | null} drained
 *
 * @typedef {object} Lane A GPU of the picture; one that is gone has no index.
 * @property {string} gpu_id
 * @property {number | null} index
 * @property {string} name
 *
 * @typedef {object} Bar A job on its GPUs for some time; without `to` it still runs, until `expected_end` at most if that is known.

    `sweep`: its name, if the job runs or is planned.
    
 * @property {number} job
 * @property {string} name
 * @property {number} attempt
 * @property {string[]} gpu_ids
 * @property {string} from
 * @property {string | null} to
 * @property {Word} state
 * @property {boolean} is_plan
 * @property {string | null} expected_end
 * @property {string | null} sweep
 *
 * @typedef {object} Timeline What ran, runs and would run where, and what is reserved; `more`: there is more history than was returned.
 * @property {Lane[]} lanes
 * @property {Bar[]} bars
 * @property {boolean} more
 * @property {string} now
 * @property {Reservation[]} reservations
 *
 * @typedef {object} EngineNode A machine of an engine; `free_gpus` null: the engine does not say.
 * @property {string} name
 * @property {boolean} up
 * @property {number} gpus
 * @property {number | null} free_gpus
 * @property {string} gpu_type
 * @property {number} cpus
 * @property {number} mem
 * @property {number[]} jobs
 *
 * @typedef {object} Engine Where jobs run. `state`: ready, unreachable, incomplete (see `problem`), or restart (the daemon must read it).
 * @property {string} name
 * @property {string} kind
 * @property {string} state
 * @property {string | null} problem
 * @property {string | null} since
 * @property {number} gpus
 * @property {number | null} free_gpus
 * @property {number} queued
 * @property {number} waiting
 * @property {number} running
 * @property {EngineNode[]} nodes
 * @property {string | null} seen_at
 *
 * @typedef {object} Engines All engines, this machine first.
 * @property {Engine[]} engines
 *
 * @typedef {object} Day A day in the time zone of the machine.
 * @property {string} day
 * @property {string} from
 * @property {string} to
 *
 * @typedef {object} Sum GPU time of jobs on a day, and how much of it was observed and idle.
 * @property {string} day
 * @property {string} project
 * @property {string | null} sweep
 * @property {number} gpu_s
 * @property {number} watched_s
 * @property {number} idle_s
 * @property {string} group
 * @property {number} used_s
 * @property {number} jobs
 * @property {number} waited_s
 *
 * @typedef {object} JobWait How long a job waited for its first start.
 * @property {number} job
 * @property {string} name
 * @property {number} wait_s
 *
 * @typedef {object} Waits The number of jobs that started, their median wait, and the longest waits.
 * @property {number} count
 * @property {number | null} median_s
 * @property {JobWait[]} longest
 *
 * @typedef {object} PersonDay GPU time of a user on a day, which is one of UTC; through every way to a GPU.
 * @property {string} day
 * @property {string} user
 * @property {number} gpu_s
 *
 * @typedef {object} Usage GPU usage; `more`: some sums were omitted. A GPU is idle below `idle_below` percent utilization.
 * @property {Day[]} days
 * @property {Sum[]} sums
 * @property {boolean} more
 * @property {number} idle_below
 * @property {Waits} waits
 * @property {PersonDay[]} people
 *
 * @typedef {object} Preset Options of a job under a name: as they are typed, and the fields of a submission that they set.
 * @property {string} name
 * @property {string} options
 * @property {Record<string, unknown>} fields
 * @property {string | null} problem
 *
 * @typedef {object} Presets The presets of the settings.
 * @property {Preset[]} presets
 *
 * @typedef {object} Reservations The reservations of all users; of one that is repeated the next time.
 * @property {Reservation[]} reservations
 *
 * @typedef {object} WriteMark The size of a log at a time.
 * @property {string} at
 * @property {number} size
 *
 * @typedef {object} WriteTimes When a log was written: moments, in their order, each with the size of the log then; and the time of the answer.

    A line that begins after one size and ends before the next was written between their moments.
    
 * @property {WriteMark[]} marks
 * @property {string} now
 *
 * @typedef {object} Search How the points of a sweep are chosen; `ended` says why it takes no more trials, null: it does.

    Those of a random search are drawn when it is submitted, and have no seed here.
    
 * @property {string} sampler
 * @property {number} trials
 * @property {number | null} seed
 * @property {string | null} ended
 *
 * @typedef {object} Sweep A sweep.
 * @property {number} id
 * @property {string} project
 * @property {string} name
 * @property {string} command
 * @property {string[] | null} argv
 * @property {string | null} dir
 * @property {string | null} metric
 * @property {string | null} goal
 * @property {string | null} early_stop
 * @property {Search | null} search
 * @property {number} batch
 * @property {string} created_at
 *
 * @typedef {object} Summary A summary of all values of a metric.
 * @property {number} min
 * @property {number} max
 * @property {number} mean
 * @property {number} count
 *
 * @typedef {object} Run A run of a sweep; `job` is null if the job was deleted.
 * @property {number | null} job
 * @property {number} attempt
 * @property {number} index
 * @property {Record<string, unknown>} params
 * @property {string} state
 * @property {string | null} cause
 * @property {Record<string, number | null>} numbers
 * @property {Record<string, Summary>} summaries
 * @property {string | null} started_at
 * @property {string | null} finished_at
 * @property {string | null} engine
 *
 * @typedef {object} Results The runs of a sweep, and the value of `after` for more; null at the end.
 * @property {Sweep} sweep
 * @property {Run[]} runs
 * @property {string | null} next
 */

export {};
