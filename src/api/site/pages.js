// All pages: the path of each below the first page, and its module. A segment that begins with a colon is variable.
// A module exports `open(view)`.

const PAGES = [
  ["", () => import("./pages/home.js")],
  ["search", () => import("./pages/search.js")],
  ["ledger/:ledger", () => import("./pages/ledger.js")],
  ["tx/:hash", () => import("./pages/transaction.js")],
  ["event/:id", () => import("./pages/event.js")],
  ["contract/:contract", () => import("./pages/contract.js")],
  ["account/:address", () => import("./pages/account.js")],
  ["programs", () => import("./pages/programs.js")],
  ["programs/:id", () => import("./pages/program.js")],
  ["webhooks", () => import("./pages/webhooks.js")],
  ["webhooks/:id", () => import("./pages/webhook.js")],
  ["sql", () => import("./pages/sql.js")],
  ["status", () => import("./pages/status.js")],
  ["trust", () => import("./pages/trust.js")],
];

/** Returns the module and the variable parts of a path; null if no page has it. */
export function find(path) {
  const segments = path.replace(/\/$/, "").split("/");
  for (const [template, load] of PAGES) {
    const names = template.split("/");
    const fits = names.length === segments.length
      && names.every((name, index) => name.startsWith(":") ? segments[index] !== "" : name === segments[index]);
    if (!fits) continue;
    try {
      const values = names.map((name, index) => [name.slice(1), decodeURIComponent(segments[index])]);
      return { load, params: Object.fromEntries(values.filter((_, index) => names[index].startsWith(":"))) };
    } catch {
      return null;
    }
  }
  return null;
}
