// Dialogs: the browser's own <dialog>, which keeps the focus inside, closes by Escape and gives the focus back.
import { html, signal, useEffect, useId, useRef } from "../vendor/ui.js";
import { coded } from "./common.js";

/** @typedef {import("../vendor/ui.js").ComponentChildren} Children */

/** The dialog on the screen: a function that draws it; null for none. @type {import("../vendor/ui.js").Signal<(() => Children) | null>} */
export const shown = signal(/** @type {(() => Children) | null} */ (null));

/** Show a dialog: `open(() => html\`<\${Mine} />\`)`. @param {() => Children} draw */
export function open(draw) {
  shown.value = draw;
}

export function close() {
  shown.value = null;
}

/**
 * A dialog with a title; `onClose` is also called by Escape and a click beside it.
 * @param {{title: string, isWide?: boolean, onClose?: () => void, children?: Children}} props
 */
export function Dialog({ title, isWide = false, onClose = close, children }) {
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  /** @param {MouseEvent} event */
  const beside = (event) => event.target === ref.current && onClose();
  /** @param {Event} event */
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${ref} class=${isWide ? "wide" : ""} aria-labelledby=${id} onCancel=${cancel} onMouseDown=${beside}>
    <div class="dialog">
      <header><h2 id=${id}>${title}</h2><button type="button" class="link quiet" aria-label="Close" onClick=${onClose}>✕</button></header>
      ${children}
    </div>
  </dialog>`;
}

/**
 * Ask before something that cannot be undone; resolves to the answer.
 * @param {{title: string, text: string, yes: string}} question
 * @returns {Promise<boolean>}
 */
export function confirm({ title, text, yes }) {
  return new Promise((resolve) => {
    /** @param {boolean} may */
    const answer = (may) => () => {
      close();
      resolve(may);
    };
    open(
      () => html`<${Dialog} title=${title} onClose=${answer(false)}>
        <p>${coded(text)}</p>
        <footer>
          <button type="button" onClick=${answer(false)}>Back</button>
          <button type="button" class="bad" autofocus onClick=${answer(true)}>${yes}</button>
        </footer>
      </${Dialog}>`,
    );
  });
}

/** The open dialog, if any; once, in app.js. */
export function Dialogs() {
  return shown.value ? shown.value() : null;
}
