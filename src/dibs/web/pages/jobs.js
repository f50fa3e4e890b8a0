// The page "jobs". Not built yet: it says so, and which command shows the same.
import { Empty } from "../parts.js";
import { html } from "../vendor/ui.js";

export default function Page() {
  return html`<${Empty} title="This page is not here yet." text="In a terminal the same is shown by:" commands=${["dibs ls"]} />`;
}
