// Viridis, the colour map that keeps its order in greyscale and for colour-blind users.

const STOPS = [
  [68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37],
];

/** @param {number} part 0 for dark violet, 1 for yellow */
export function rgb(part) {
  const at = Math.min(1, Math.max(0, part)) * (STOPS.length - 1);
  const below = Math.min(Math.floor(at), STOPS.length - 2);
  return STOPS[below].map((one, i) => Math.round(one + (STOPS[below + 1][i] - one) * (at - below)));
}

/** @param {number} part */
export const viridis = (part) => `rgb(${rgb(part).join(" ")})`;
