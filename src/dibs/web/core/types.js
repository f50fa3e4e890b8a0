// The shapes on the wire, for the type checker. docs/api.md says what they mean. Nothing here runs.

/**
 * @typedef {"held"|"queued"|"starting"|"running"|"stopping"|"paused"|"done"|"failed"|"cancelled"|"timeout"|"lost"} Word
 * @typedef {{earliest: string, latest: string, gpu_ids: string[], gpu_indices: number[]}} ExpectedStart
 *
 * @typedef {object} Job a row of GET /v1/jobs
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
 * @property {{id: number, when: string}[]} after
 * @property {string | null} begin_at
 * @property {number} attempt
 * @property {number} retries
 * @property {number | null} exit_code
 * @property {number | string | null} signal
 * @property {string} submitted_at
 * @property {string | null} started_at
 * @property {string | null} finished_at
 * @property {string} log
 * @property {string | null} stderr
 * @property {number | null} sweep
 * @property {number | null} index
 * @property {Record<string, unknown> | null} params
 * @property {string[]} tags
 * @property {string | null} remark
 * @property {Record<string, number> | null} report
 * @property {string[]} marks
 *
 * @typedef {object} JobWhole GET /v1/jobs/{id}: a row and more
 * @property {Attempt[]} attempts
 * @property {Record<string, string>} env
 * @property {ExpectedStart | null} expected_start
 * @property {{id: string, peak_memory: number, mean_utilization: number, looks: number}[]} use
 * @property {string} [cli]
 *
 * @typedef {object} Attempt
 * @property {number} attempt
 * @property {string} outcome
 * @property {string | null} cause
 * @property {number | null} exit_code
 * @property {number | string | null} signal
 * @property {string[]} gpu_ids
 * @property {number[]} gpu_indices
 * @property {string | null} started_at
 * @property {string | null} finished_at
 *
 * @typedef {object} Gpu one of GET /v1/gpus
 * @property {number} index
 * @property {string} id
 * @property {string} name
 * @property {number} memory_total
 * @property {number | null} memory_used
 * @property {number | null} utilization
 * @property {number | null} temperature
 * @property {number | null} power
 * @property {number | null} power_limit
 * @property {string | null} fault
 * @property {string | null} drained
 * @property {string | null} foreign
 * @property {number} foreign_memory
 * @property {"free"|"leased"|"foreign"|"drained"|"unhealthy"} state
 * @property {{user: string | null, uid: number | null, pid: number | null, job: string | null, since: string | null, vram: number | null}[]} holders
 * @property {{pid: number, user: string | null, name: string | null, memory: number | null}[]} processes
 * @property {string | null} idle_since
 * @property {number} waiters
 *
 * @typedef {object} Gpus GET /v1/gpus, and the event `gpus`
 * @property {Gpu[]} gpus
 * @property {{user: string, pid: number, gpus: number, vram: number | null, devices: string[]}[]} waiters
 * @property {string | null} problem
 * @property {string | null} restriction
 *
 * @typedef {{job: number, at: string, kind: string, detail: string | null, state: Word, attempt: number}} JobEvent
 * @typedef {Partial<Record<Word, number>>} Counts
 * @typedef {{paused: boolean}} Queue
 * @typedef {{version: string, last: number, counts: Counts, queue: Queue, host: string, user: string}} Hello
 *
 * @typedef {object} Bar one of GET /v1/timeline
 * @property {number} job
 * @property {string} name
 * @property {number} attempt
 * @property {string[]} gpu_ids
 * @property {string} from
 * @property {string | null} to
 * @property {Word} state
 * @property {boolean} is_plan
 * @property {string | null} expected_end
 *
 * @typedef {{gpu_id: string, index: number, name: string}} Lane
 * @typedef {{lanes: Lane[], bars: Bar[], now: string}} Timeline
 *
 * @typedef {{changed: {id: number, state: Word}[], unchanged: {id: number, state: Word, why: string}[], note?: string}} Acted
 */

export {};
