// All current shortcuts, in a dialog.
import { shortcuts as keys } from "../core/keys.js";
import { html } from "../vendor/ui.js";
import { Dialog } from "./dialogs.js";

export function Help() {
  const shortcuts = keys.value;
  const groups = [...new Set(shortcuts.map((one) => one.group ?? "Everywhere"))];
  return html`<${Dialog} title="Shortcuts">
    ${groups.map(
      (group) => html`<h3 key=${group}>${group}</h3><dl class="shortcuts">
        ${shortcuts
          .filter((one) => (one.group ?? "Everywhere") === group)
          .map((one) => html`<div key=${one.keys}><dt>${one.keys.split(" ").map((key) => html`<kbd>${key}</kbd>`)}</dt><dd>${one.does}</dd></div>`)}
      </dl>`,
    )}
  </${Dialog}>`;
}
