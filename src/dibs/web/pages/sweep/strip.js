// How many runs are in which state, as one strip; its label says the same in words.
import { count } from "../../core/format.js";
import { html } from "../../vendor/ui.js";

const ORDER = ["done", "running", "starting", "stopping", "paused", "failed", "timeout", "lost", "cancelled", "held", "queued"];

/** @param {{states: Record<string, number>}} props */
export function Strip({ states }) {
  const there = ORDER.filter((word) => states[word]);
  const total = there.reduce((sum, word) => sum + states[word], 0);
  const label = there.map((word) => `${count(states[word])} ${word}`).join(", ");
  return html`<div class="strip" role="img" aria-label=${label} title=${label}>
    ${there.map((word) => html`<div key=${word} class=${`is-${word}`} style=${{ width: `${(100 * states[word]) / total}%` }}></div>`)}
  </div>`;
}
