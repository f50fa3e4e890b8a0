// Colours of a terminal on our page: readable on light and on dark, whatever the program chose.
//
// Both colours are in one CSS value, so that nothing is redrawn when the theme changes.

/** @typedef {import("./ansi.js").Colour} Colour */
/** @typedef {import("./ansi.js").Style} Style */
/** @typedef {[number, number, number]} Rgb */
/** @typedef {{paper: Rgb, ink: Rgb, sixteen: Rgb[]}} Theme */

/** The least contrast between text and what is behind it (WCAG AA). */
export const LEAST_CONTRAST = 4.5;

/** @type {Theme} */
export const LIGHT = {
  paper: [255, 255, 255],
  ink: [31, 35, 40],
  sixteen: [
    [36, 41, 47], [207, 34, 46], [17, 99, 41], [125, 78, 0], [9, 105, 218], [130, 80, 223], [27, 124, 131], [87, 96, 106],
    [87, 96, 106], [164, 14, 38], [26, 127, 55], [99, 60, 1], [33, 139, 255], [164, 117, 249], [49, 146, 170], [31, 35, 40],
  ],
};

/** @type {Theme} */
export const DARK = {
  paper: [13, 17, 23],
  ink: [230, 237, 243],
  sixteen: [
    [110, 118, 129], [255, 123, 114], [63, 185, 80], [210, 153, 34], [88, 166, 255], [188, 140, 255], [57, 197, 207], [201, 209, 217],
    [139, 148, 158], [255, 161, 152], [86, 211, 100], [227, 179, 65], [121, 192, 255], [210, 168, 255], [86, 212, 221], [240, 246, 252],
  ],
};

/**
 * Return the two CSS colours of a style; null for the default of the page.
 * @param {Style} style
 * @returns {{color: string | null, background: string | null}}
 */
export function paint(style) {
  if (style.fg === null && style.bg === null && !style.inverse) return { color: null, background: null };
  const light = pair(style, LIGHT);
  const dark = pair(style, DARK);
  const hasBackground = style.bg !== null || style.inverse;
  return {
    color: both(light.ink, dark.ink),
    background: hasBackground ? both(light.paper, dark.paper) : null,
  };
}

/**
 * Return text and background in one theme, far enough apart to be read.
 * @param {Style} style
 * @param {Theme} theme
 * @returns {{ink: Rgb, paper: Rgb}}
 */
export function pair(style, theme) {
  let ink = rgb(style.fg, theme.ink, theme);
  let paper = rgb(style.bg, theme.paper, theme);
  if (style.inverse) [ink, paper] = [paper, ink];
  return { ink: readable(ink, paper), paper };
}

/**
 * @param {Colour} colour
 * @param {Rgb} own
 * @param {Theme} theme
 * @returns {Rgb}
 */
function rgb(colour, own, theme) {
  if (colour === null) return own;
  return typeof colour === "number" ? theme.sixteen[colour] : colour;
}

/**
 * Return the colour nearest to `ink` that is readable on `paper`: mixed with black or white as needed.
 * @param {Rgb} ink
 * @param {Rgb} paper
 * @returns {Rgb}
 */
export function readable(ink, paper) {
  /** @type {Rgb} */
  const towards = contrast([0, 0, 0], paper) > contrast([255, 255, 255], paper) ? [0, 0, 0] : [255, 255, 255];
  for (let share = 0; share < 1; share += 0.1) {
    const mixed = mix(ink, towards, share);
    if (contrast(mixed, paper) >= LEAST_CONTRAST) return mixed;
  }
  return towards;
}

/**
 * @param {Rgb} from
 * @param {Rgb} to
 * @param {number} share
 * @returns {Rgb}
 */
function mix(from, to, share) {
  const between = (/** @type {0 | 1 | 2} */ i) => Math.round(from[i] + (to[i] - from[i]) * share);
  return [between(0), between(1), between(2)];
}

/**
 * Return how far apart two colours are, 1 to 21, as WCAG counts it.
 * @param {Rgb} one
 * @param {Rgb} other
 */
export function contrast(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

/** @param {Rgb} colour */
function luminance(colour) {
  const [r, g, b] = colour.map((byte) => (byte <= 10 ? byte / 3294.6 : ((byte / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/**
 * @param {Rgb} light
 * @param {Rgb} dark
 */
function both(light, dark) {
  return `light-dark(rgb(${light.join(" ")}), rgb(${dark.join(" ")}))`;
}
