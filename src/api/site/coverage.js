// The panel of stored ledgers: ranges, and the gaps between them.

import { ledgerLink, link } from "./address.js";
import { command, copyButton } from "./copy.js";
import { draw, make, paragraph } from "./dom.js";
import { count, number } from "./format.js";
import { table } from "./table.js";

/** Maximum number of rows. The panel says how many more there are. */
const MAX_ROWS = 40;

const fill = (from, to) => `orrery backfill --from ${from} --to ${to}`;

function bar(ranges, gaps) {
  const [first, last] = [ranges[0].first_ledger, ranges.at(-1).last_ledger];
  const scale = 1000 / (last - first + 1);
  const label = `${count(ranges.length, "range")} with ${count(gaps.length, "gap")} from ledger ${first} to ${last}`;
  return draw("svg", { class: "ranges-bar", viewBox: "0 0 1000 16", preserveAspectRatio: "none", role: "img", "aria-label": label },
    draw("rect", { class: "whole", width: 1000, height: 16 }),
    ranges.map((range) => {
      const width = Math.max(2, (range.last_ledger - range.first_ledger + 1) * scale);
      return draw("rect", { class: "covered", x: Math.min(998, (range.first_ledger - first) * scale), width, height: 16 });
    }));
}

function mend(gaps) {
  if (gaps.length === 0) return [make("p", "good", "Stored without a gap.")];
  const [first, last] = [gaps[0].first_ledger, gaps.at(-1).last_ledger];
  const missing = gaps.reduce((sum, gap) => sum + gap.last_ledger - gap.first_ledger + 1, 0);
  return [
    make("p", "warning", `${count(missing, "ledger")} in ${count(gaps.length, "gap")} ${missing === 1 ? "is" : "are"} missing.`),
    paragraph("note", `This fetches what is missing and skips what is stored. Run it on the service's machine, with its \`--data-dir\` or \`--config\`:`),
    command(fill(first, last), "the command that fills all gaps"),
  ];
}

/** Creates the panel, from `rest/completeness`. */
export function coverage({ ranges, gaps }) {
  if (ranges.length === 0) return [make("p", "note", "No ledger is stored yet.")];
  const size = (range) => [number(range.last_ledger - range.first_ledger + 1), "number"];
  const ends = ({ first_ledger: first, last_ledger: last }, show) => first === last ? [show(first)] : [show(first), " – ", show(last)];
  const stored = (range) => [make("span", "", ends(range, ledgerLink)), size(range),
    ["stored", "good"], [number(range.events), "number"]];
  const missing = (gap) => [ends(gap, String).join(""), size(gap), ["missing", "bad"],
    [gaps.length === 1 ? "" : copyButton(() => fill(gap.first_ledger, gap.last_ledger), `the command that fills ${gap.first_ledger} to ${gap.last_ledger}`), "number"]];
  const all = [...ranges.map((range) => [range, stored]), ...gaps.map((gap) => [gap, missing])]
    .sort(([a], [b]) => b.first_ledger - a.first_ledger);
  const rows = all.slice(0, MAX_ROWS).map(([range, row]) => row(range));
  const more = all.length - rows.length;
  return [
    ...mend(gaps), bar(ranges, gaps),
    table(["Ledgers", ["Count", "number"], "State", ["Events", "number"]], rows, "Stored and missing ledgers"),
    more > 0 ? make("p", "note", `These are the newest ${rows.length} of ${number(all.length)} ranges and gaps. All of them are at `,
      link("rest/completeness", "rest/completeness"), ".") : null,
  ];
}
