// Keeps the lists, and the output of a job, fresh on an open page. What comes is HTML of our own server, with everything in it escaped.
"use strict";

const EVERY_MS = 2000;

// While a button is pressed nothing moves: a press on one place and a release on another is no click.
let isPressed = false;
addEventListener("pointerdown", () => { isPressed = true; }, true);
for (const end of ["pointerup", "pointercancel"]) {
  // The click comes right after the release.
  addEventListener(end, () => setTimeout(() => { isPressed = false; }), true);
}

const keyOf = (node) => node.dataset?.key;

// Make the children of one node those of another. A child that is still there stays the same node, with its focus and what was typed into it.
function update(old, fresh) {
  const wanted = new Set([...fresh.children].map(keyOf));
  const rows = new Map();
  for (const row of [...old.children].filter(keyOf)) {
    if (wanted.has(keyOf(row))) rows.set(keyOf(row), row);
    else row.remove();
  }
  let place = old.firstChild;
  for (const node of [...fresh.childNodes]) {
    const kept = keyOf(node) ? rows.get(keyOf(node)) : place;
    if (!kept || !kept.cloneNode().isEqualNode(node.cloneNode())) {
      old.insertBefore(node, place);
      continue;
    }
    if (kept === place) place = place.nextSibling;
    else old.insertBefore(kept, place);
    if (!kept.isEqualNode(node)) update(kept, node);
  }
  while (place) {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  }
}

async function ask(section) {
  try {
    const answer = await fetch(section.dataset.from);
    return answer.ok ? await answer.text() : null;
  } catch {
    // A server that is away for a while is asked again.
    return null;
  }
}

async function renew(section) {
  const text = await ask(section);
  if (text === null || isPressed) return;
  const fresh = document.createElement("template");
  fresh.innerHTML = text;
  update(section, fresh.content);
}

async function renewAll() {
  if (!document.hidden) for (const section of document.querySelectorAll("section.live")) await renew(section);
  setTimeout(renewAll, EVERY_MS);
}

setTimeout(renewAll, EVERY_MS);
