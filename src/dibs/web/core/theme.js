// Light or dark: the system's choice, unless the user chose one. A classic script: it runs before the first paint.
(() => {
  const KEY = "dibs.theme";
  /** @param {string | null} chosen "light", "dark", or null for the system's */
  const apply = (chosen) => {
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
  };
  apply(localStorage.getItem(KEY));
  // Other tabs follow.
  addEventListener("storage", (event) => event.key === KEY && apply(event.newValue));
})();
