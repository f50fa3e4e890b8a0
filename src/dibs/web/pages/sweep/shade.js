// The colour of a run by its place among the others, in the present theme.
import * as themes from "../../core/themes.js";
import { viridis } from "../../core/viridis.js";

/** A colour of viridis that is seen on the page: neither its darkest on dark nor its lightest on light. @param {number} part 0..1 */
export const shade = (part) => viridis(themes.isDark() ? 0.26 + 0.74 * part : 0.92 * part);
