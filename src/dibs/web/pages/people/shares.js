// Who has how many GPUs, and who waits for how many. Pure.

/**
 * @typedef {import("../../core/types.js").Gpu} Gpu
 * @typedef {{gpu: Gpu, user: string, holder: Gpu["holders"][number] | null}} Lease without a holder: it is used without a lease
 * @typedef {{user: string, gpus: number, since: string | null, waiting: number, foreign: number[]}} User
 */

/** What a user is called whom nobody knows by name. @param {{user: string | null, uid: number | null}} one */
const nameOf = ({ user, uid }) => user ?? (uid === null ? "somebody" : `uid ${uid}`);

/** Every lease, GPUs in their order; and GPUs that are used without one. @param {readonly Gpu[]} gpus @returns {Lease[]} */
export function leases(gpus) {
  return gpus.flatMap((gpu) => [
    ...gpu.holders.map((holder) => ({ gpu, user: nameOf(holder), holder })),
    ...(gpu.foreign && !gpu.holders.length ? [{ gpu, user: gpu.processes.find((one) => one.user)?.user ?? "somebody", holder: null }] : []),
  ]);
}

/**
 * All GPUs by what they are: of each user, used without a lease, free, out of use.
 * @param {readonly Gpu[]} gpus @param {readonly User[]} people @param {string | undefined} me
 * @returns {{text: string, gpus: number, kind: string}[]}
 */
export function shares(gpus, people, me) {
  const idle = gpus.filter((gpu) => !gpu.holders.length);
  const foreign = idle.filter((gpu) => gpu.foreign).length;
  const free = idle.filter((gpu) => !gpu.foreign && gpu.state === "free").length;
  const all = [
    ...people.map((one, i) => ({ text: one.user, gpus: one.gpus, kind: one.user === me ? "me" : String(i % 6) })),
    { text: "without a lease", gpus: foreign, kind: "foreign" },
    { text: "free", gpus: free, kind: "free" },
    { text: "out of use", gpus: idle.length - foreign - free, kind: "out" },
  ];
  return all.filter((one) => one.gpus > 0);
}

/**
 * Everybody who has a GPU or waits for one, those with most first.
 * @param {readonly Gpu[]} gpus @param {readonly import("../../core/types.js").Waiter[]} waiters @returns {User[]}
 */
export function users(gpus, waiters) {
  /** @type {Map<string, User>} */
  const found = new Map();
  const of = (/** @type {string} */ user) => {
    const one = found.get(user) ?? { user, gpus: 0, since: null, waiting: 0, foreign: [] };
    found.set(user, one);
    return one;
  };
  /** @type {Set<string>} */
  const counted = new Set();
  for (const { gpu, user, holder } of leases(gpus)) {
    const one = of(user);
    if (!holder) {
      one.foreign.push(gpu.index);
      continue;
    }
    // A user with two leases of one GPU has it once.
    if (!counted.has(`${user} ${gpu.id}`)) one.gpus += 1;
    counted.add(`${user} ${gpu.id}`);
    if (holder.since && (!one.since || holder.since < one.since)) one.since = holder.since;
  }
  for (const waiter of waiters) of(waiter.user).waiting += waiter.gpus;
  return [...found.values()].sort((a, b) => b.gpus - a.gpus || b.waiting - a.waiting || (a.user < b.user ? -1 : 1));
}
