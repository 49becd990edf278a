// All pages: the path of each below the first page, and its module, which exports `open(view)`. A segment that begins
// with a colon is variable.

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

/** Returns the module and the variable part of a path; null if no page has it. */
export function find(path) {
  for (const [template, load] of PAGES) {
    const found = new RegExp(`^${template.replace(/:(\w+)/, "(?<$1>[^/]+)")}/?$`).exec(path);
    if (found === null) continue;
    try {
      const params = Object.entries(found.groups ?? {}).map(([name, value]) => [name, decodeURIComponent(value)]);
      return { load, params: Object.fromEntries(params) };
    } catch {
      return null;
    }
  }
  return null;
}
