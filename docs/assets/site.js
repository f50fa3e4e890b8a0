// The theme's search dialog has no name for screen readers.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector('.md-search[role="dialog"]')?.setAttribute("aria-label", "Search");
});
