// What a terminal would show of one line of output: colours and marks as spans, progress bars in their last state.
//
// A line is written into cells as a terminal does it: `\r` goes back to the first, backspace one back, what follows
// overwrites. Escape sequences other than colours and erasing are left out; stray control characters are shown as
// symbols, so that nothing in a log can move, hide or reverse the text next to it. Every line starts unstyled:
// earlier lines need not be read to show it.

/**
 * A colour: null for the page's own, 0 to 15 for the terminal's sixteen, else red, green, blue.
 * @typedef {null | number | [number, number, number]} Colour
 */
/**
 * @typedef {{fg: Colour, bg: Colour, bold: boolean, dim: boolean, italic: boolean, underline: boolean,
 *   strike: boolean, inverse: boolean}} Style
 */
/** @typedef {{text: string, style: Style}} Span */

/** @type {Style} */
export const PLAIN = Object.freeze({
  fg: null, bg: null, bold: false, dim: false, italic: false, underline: false, strike: false, inverse: false,
});

/** Columns of a tab. */
const TAB = 8;
/** Most cells of a line: a program may move the cursor right without end. */
const MOST_CELLS = 65_536;

/** Anything that is more than a letter: controls, C1, marks that turn the direction of text, separators of lines. */
const SPECIAL = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/;
/** A sequence of ESC: CSI, then OSC and its kin up to their end, then two characters. Anchored where it is tried. */
const SEQUENCE = /\x1b(?:\[([0-?]*)([ -/]*[@-~])|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|[ -/]*[0-~]|$)/y;

/**
 * Return a line as spans of equal style.
 * @param {string} line without its line feed
 * @returns {Span[]}
 */
export function spans(line) {
  if (!SPECIAL.test(line)) return line === "" ? [] : [{ text: line, style: PLAIN }];
  const cells = new Cells();
  let at = 0;
  while (at < line.length) {
    const code = line.codePointAt(at) ?? 0;
    if (code === 0x1b) {
      at = cells.escape(line, at);
      continue;
    }
    const char = String.fromCodePoint(code);
    cells.write(char, code);
    at += char.length;
  }
  return cells.spans();
}

/**
 * Return a line as plain text: no styles, progress bars in their last state.
 * @param {string} line
 */
export function plain(line) {
  return spans(line).map((span) => span.text).join("");
}

class Cells {
  constructor() {
    /** @type {string[]} */
    this.chars = [];
    /** @type {Style[]} */
    this.styles = [];
    this.cursor = 0;
    /** @type {Style} */
    this.style = PLAIN;
  }

  /**
   * @param {string} char
   * @param {number} code
   */
  write(char, code) {
    if (code === 0x0d) this.cursor = 0;
    else if (code === 0x08) this.cursor = Math.max(0, this.cursor - 1);
    else if (code === 0x09) {
      // A tab moves the cursor and overwrites nothing.
      const target = (Math.floor(this.cursor / TAB) + 1) * TAB;
      while (this.cursor < Math.min(target, MOST_CELLS)) this.put(this.chars[this.cursor] ?? " ", this.styles[this.cursor] ?? PLAIN);
    } else this.put(SPECIAL.test(char) ? sign(code) : char, this.style);
  }

  /**
   * @param {string} char
   * @param {Style} style
   */
  put(char, style) {
    if (this.cursor >= MOST_CELLS) return;
    while (this.chars.length < this.cursor) {
      this.chars.push(" ");
      this.styles.push(PLAIN);
    }
    this.chars[this.cursor] = char;
    this.styles[this.cursor] = style;
    this.cursor += 1;
  }

  /**
   * Do what the sequence at `at` says and return where it ends.
   * @param {string} line
   * @param {number} at
   */
  escape(line, at) {
    SEQUENCE.lastIndex = at;
    const found = SEQUENCE.exec(line);
    // An escape without a valid sequence: skip only the escape.
    if (found === null) return at + 1;
    const [all, parameters, final] = found;
    if (final === "m") this.style = dress(this.style, parameters);
    else if (final === "K") this.erase(parameters);
    else if (final === "G") this.cursor = Math.min(MOST_CELLS, Math.max(1, Number(parameters) || 1) - 1);
    return at + all.length;
  }

  /** @param {string} how 0 or nothing: to the end; 1: from the beginning; 2: all */
  erase(how) {
    if (how === "2" || how === "" || how === "0") this.chars.length = this.styles.length = how === "2" ? 0 : Math.min(this.cursor, this.chars.length);
    else if (how === "1") for (let i = 0; i <= this.cursor && i < this.chars.length; i += 1) this.chars[i] = " ";
  }

  /** @returns {Span[]} */
  spans() {
    /** @type {Span[]} */
    const found = [];
    this.chars.forEach((char, i) => {
      const last = found.at(-1);
      if (last !== undefined && last.style === this.styles[i]) last.text += char;
      else found.push({ text: char, style: this.styles[i] });
    });
    return found;
  }
}

/**
 * Return the symbol for a control character.
 * @param {number} code
 */
function sign(code) {
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return code === 0x7f ? "\u2421" : "\ufffd";
}

/** Marks that a number turns on or off. @type {Record<number, Partial<Style>>} */
const MARKS = {
  0: PLAIN,
  1: { bold: true }, 2: { dim: true }, 3: { italic: true }, 4: { underline: true }, 7: { inverse: true }, 9: { strike: true },
  21: { underline: true }, 22: { bold: false, dim: false }, 23: { italic: false }, 24: { underline: false },
  27: { inverse: false }, 29: { strike: false }, 39: { fg: null }, 49: { bg: null },
};

/**
 * Return a style after a sequence of SGR numbers; numbers that mean nothing here change nothing.
 * @param {Style} style
 * @param {string} parameters such as `1;38;5;196` or `38:2::255:0:0`
 * @returns {Style}
 */
export function dress(style, parameters) {
  let dressed = style;
  const words = parameters.split(";");
  for (let i = 0; i < words.length; i += 1) {
    const parts = words[i].split(":").map(Number);
    const code = parts[0];
    if (code === 38 || code === 48) {
      // With colons everything is in one word; with semicolons in those that follow.
      const rest = parts.length > 1 ? parts.slice(1) : words.slice(i + 1).map(Number);
      const [colour, taken] = extended(rest, parts.length > 1);
      if (parts.length === 1) i += taken;
      if (colour !== undefined) dressed = { ...dressed, [code === 38 ? "fg" : "bg"]: colour };
    } else if (code === 4 && parts[1] === 0) dressed = { ...dressed, underline: false };
    else if (code in MARKS) dressed = { ...dressed, ...MARKS[code] };
    else dressed = { ...dressed, ...sixteen(code) };
  }
  return dressed;
}

/**
 * @param {number} code
 * @returns {Partial<Style>}
 */
function sixteen(code) {
  if (code >= 30 && code <= 37) return { fg: code - 30 };
  if (code >= 40 && code <= 47) return { bg: code - 40 };
  if (code >= 90 && code <= 97) return { fg: code - 82 };
  if (code >= 100 && code <= 107) return { bg: code - 92 };
  return {};
}

/**
 * Return the colour that follows 38 or 48, and how many numbers it took.
 * @param {number[]} rest
 * @param {boolean} hasColons
 * @returns {[Colour | undefined, number]}
 */
function extended(rest, hasColons) {
  const isByte = (/** @type {number} */ n) => Number.isInteger(n) && n >= 0 && n <= 255;
  if (rest[0] === 5) return [isByte(rest[1]) ? indexed(rest[1]) : undefined, 2];
  if (rest[0] !== 2) return [undefined, 1];
  // The form with colons may name a colour space first, mostly an empty one.
  const rgb = hasColons && rest.length >= 5 ? rest.slice(2, 5) : rest.slice(1, 4);
  return [rgb.length === 3 && rgb.every(isByte) ? [rgb[0], rgb[1], rgb[2]] : undefined, 4];
}

/**
 * Return one of the 256 colours: the sixteen, a cube of six, and greys.
 * @param {number} n
 * @returns {Colour}
 */
function indexed(n) {
  if (n < 16) return n;
  if (n >= 232) return [8 + 10 * (n - 232), 8 + 10 * (n - 232), 8 + 10 * (n - 232)];
  const level = (/** @type {number} */ step) => (step === 0 ? 0 : 55 + 40 * step);
  const cube = n - 16;
  return [level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)];
}
