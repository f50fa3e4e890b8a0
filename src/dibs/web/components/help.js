// All current shortcuts, in a dialog.
import { shortcuts as keys } from "../core/keys.js";
import { html } from "../vendor/ui.js";
import { Dialog } from "./dialogs.js";

/** The keys of one press as they are on the keyboard: "Ctrl+k" is Ctrl and K. @param {string} key */
function pressed(key) {
  if (key.startsWith("Arrow")) return [{ Up: "↑", Down: "↓" }[key.slice(5)] ?? key];
  return key.length > 1 ? key.split("+").map((one) => (one.length === 1 ? one.toUpperCase() : one)) : [key];
}

export function Help() {
  const shortcuts = keys.value;
  const groups = [...new Set(shortcuts.map((one) => one.group ?? "Everywhere"))];
  return html`<${Dialog} title="Keyboard shortcuts">
    ${groups.map(
      (group) => html`<h3 key=${group}>${group}</h3><dl class="shortcuts">
        ${shortcuts
          .filter((one) => (one.group ?? "Everywhere") === group)
          .map((one) => html`<div key=${one.keys}><dt>${one.keys.split(" ").flatMap(pressed).map((key) => html`<kbd>${key}</kbd>`)}</dt><dd>${one.does}</dd></div>`)}
      </dl>`,
    )}
  </${Dialog}>`;
}
