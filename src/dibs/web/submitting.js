// Opening the submit dialog, whose module is loaded when it is first wanted.
import * as dialogs from "./dialogs.js";
import { html } from "./vendor/ui.js";

/** @param {Record<string, unknown>} [draft] fields of a submission to begin with: a retry with changes */
export async function open(draft = {}) {
  const { default: Submit } = await import("./pages/submit.js");
  dialogs.open(() => html`<${Submit} draft=${draft} />`);
}
