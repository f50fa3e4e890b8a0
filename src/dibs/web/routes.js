// The table of pages: path, title, and the module that draws it, loaded on first use.
import { match } from "./core/router.js";

/**
 * A page's module has a default export: a component that gets the names of its path as props.
 * @typedef {object} Route
 * @property {string} path
 * @property {string} title of the tab, with the {names} of the path
 * @property {() => Promise<{default: (props: any) => any}>} load
 * @property {string[]} [styles] its own style sheets
 * @property {string} [nav] its word in the header
 * @property {string} [key] the shortcut that goes there
 * @property {string} [under] the path in the header that is lit while this one is shown
 */

/** @type {Route[]} */
export const ROUTES = [
  { path: "/", title: "Overview", nav: "Overview", key: "g o", load: () => import("./pages/overview.js") },
  { path: "/jobs", title: "Jobs", nav: "Jobs", key: "g j", styles: ["pages/jobs.css"], load: () => import("./pages/jobs.js") },
  { path: "/job/{id}", title: "Job {id}", under: "/jobs", styles: ["pages/jobs.css", "pages/job.css", "pages/gpus.css", "vendor/uplot.css"], load: () => import("./pages/job.js") },
  { path: "/compare", title: "Compare jobs", under: "/jobs", styles: ["pages/job.css", "pages/compare.css", "vendor/uplot.css"], load: () => import("./pages/compare.js") },
  { path: "/sweeps", title: "Sweeps", nav: "Sweeps", key: "g s", styles: ["pages/sweep.css"], load: () => import("./pages/sweeps.js") },
  { path: "/sweep/{id}", title: "Sweep {id}", under: "/sweeps", styles: ["pages/sweep.css", "pages/jobs.css"], load: () => import("./pages/sweep.js") },
  { path: "/gpus", title: "GPUs", nav: "GPUs", key: "g g", styles: ["pages/gpus.css", "vendor/uplot.css"], load: () => import("./pages/gpus.js") },
  { path: "/gpu/{id}", title: "GPU {id}", under: "/gpus", styles: ["pages/job.css", "pages/gpus.css", "vendor/uplot.css"], load: () => import("./pages/gpu.js") },
  { path: "/people", title: "Everyone on this machine", nav: "People", key: "g p", styles: ["pages/people.css"], load: () => import("./pages/people.js") },
  { path: "/usage", title: "Usage", nav: "Usage", key: "g u", styles: ["pages/usage.css"], load: () => import("./pages/usage.js") },
  { path: "/settings", title: "Settings", nav: "Settings", key: "g t", load: () => import("./pages/settings.js") },
];

/**
 * Return the route of a path and its parameters, or null.
 * @param {string} path
 * @returns {{route: Route, names: Record<string, string>, title: string} | null}
 */
export function find(path) {
  for (const route of ROUTES) {
    const names = match(route.path, path);
    if (names) return { route, names, title: route.title.replace(/\{(\w+)\}/g, (_, name) => names[name]) };
  }
  return null;
}
