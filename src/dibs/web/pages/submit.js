// The submit dialog. Not built yet: it says so, and which command does the same.
import { Dialog } from "../dialogs.js";
import { Empty } from "../parts.js";
import { html } from "../vendor/ui.js";

/** @param {{draft: Record<string, unknown>}} _props */
export default function Submit(_props) {
  return html`<${Dialog} title="Submit a job">
    <${Empty} title="This dialog is not here yet." text="In a terminal:" commands=${["dibs add -g 1 python train.py"]} />
  </${Dialog}>`;
}
