// What is shown to one without a token: one sentence and the command that helps.
import * as session from "./session.js";
import { Command } from "./parts.js";
import { html } from "./vendor/ui.js";

export function Login() {
  return html`<main class="login">
    <h1>dibs</h1>
    ${session.trouble.value && html`<p role="alert">${session.trouble.value}</p>`}
    <p>This page opens with a link that is good for one time. Make one on the machine with the GPUs:</p>
    <${Command} text="dibs web" />
  </main>`;
}
