// Keeps the lists, and the output of a job, fresh on an open page. What comes is HTML of our own server, with everything in it escaped.
"use strict";

const EVERY_MS = 2000;

async function renew(section) {
  // Somebody is typing a priority into it.
  if (section.contains(document.activeElement)) return;
  const answer = await fetch(section.dataset.from);
  const text = await answer.text();
  if (answer.ok && text !== section.dataset.seen && !section.contains(document.activeElement)) {
    section.dataset.seen = text;
    section.innerHTML = text;
  }
}

async function renewAll() {
  if (!document.hidden) {
    for (const section of document.querySelectorAll("section.live")) {
      // A server that is away for a while is asked again.
      await renew(section).catch(() => {});
    }
  }
  setTimeout(renewAll, EVERY_MS);
}

setTimeout(renewAll, EVERY_MS);
