// The panel of stored ledgers: ranges, and the gaps between them.

import { ledgerLink, link } from "./address.js";
import { command } from "./copy.js";
import { DATA_DIR_FLAG } from "./data_dir.js";
import { draw, make, note, paragraph, prose } from "./dom.js";
import { count, number } from "./format.js";
import { table } from "./table.js";

/** Maximum number of rows, and of gaps with a command. The panel says how many more there are. */
const MAX_ROWS = 40;
const MAX_COMMANDS = 5;
/** Ledgers of the public network in a day, and in a gap that takes long to fill. */
const DAY = 15_300;
const LONG = 100_000;

const sizeOf = ({ first_ledger: first, last_ledger: last }) => last - first + 1;

function bar(ranges, gaps) {
  const [first, last] = [ranges[0].first_ledger, ranges.at(-1).last_ledger];
  const scale = 1000 / (last - first + 1);
  const label = `${count(ranges.length, "range")} with ${count(gaps.length, "gap")} from ledger ${first} to ${last}`;
  const frame = { class: "ranges-bar", viewBox: "0 0 1000 16", preserveAspectRatio: "none", role: "img" };
  return draw("svg", { ...frame, "aria-label": label },
    draw("rect", { class: "whole", width: 1000, height: 16 }),
    ranges.map((range) => {
      const x = Math.min(998, (range.first_ledger - first) * scale);
      return draw("rect", { class: "covered", x, width: Math.max(2, sizeOf(range) * scale), height: 16 });
    }));
}

/** Creates the command that fills a gap, with what there is to fetch. */
function fill(gap, isPublic) {
  const [size, { first_ledger: first, last_ledger: last }] = [sizeOf(gap), gap];
  const days = size > LONG && isPublic ? `, about ${count(Math.round(size / DAY), "day")} of the network` : "";
  return [
    note(`${count(size, "ledger")}${days}:`),
    command(`orrery backfill${DATA_DIR_FLAG} --from ${first} --to ${last}`, `the command that fills ${first} to ${last}`),
  ];
}

function mend(gaps, isPublic) {
  if (gaps.length === 0) return [make("p", "good", "Stored without a gap.")];
  const missing = gaps.reduce((sum, gap) => sum + sizeOf(gap), 0);
  const shown = gaps.slice(-MAX_COMMANDS).reverse();
  return [
    make("p", "warning", `Missing: ${count(missing, "ledger")} in ${count(gaps.length, "gap")}.`),
    paragraph("note", `A command fills one gap. Run it on the service's machine${DATA_DIR_FLAG === ""
      ? ", with its `--data-dir` or `--config`" : ", in the directory in which the service was started"}.`),
    shown.some((gap) => sizeOf(gap) > LONG) ? note(`More than ${number(LONG)} ledgers take `,
      link("docs/operate", "hours or days, and much disk"),
      prose(". For the newest part alone, give a later ledger to `--from`.")) : null,
    ...shown.flatMap((gap) => fill(gap, isPublic)),
    gaps.length > shown.length ? note("Older gaps are filled likewise.") : null,
  ];
}

/** Returns the row of a range, or of a gap, which has no events. */
function row(range) {
  const isGap = range.events === undefined;
  const [first, last] = [range.first_ledger, range.last_ledger].map(isGap ? String : ledgerLink);
  const ends = make("span", "", first, ...sizeOf(range) === 1 ? [] : [" – ", last]);
  const [state, events] = isGap ? [["missing", "bad"], ""] : [["stored", "good"], number(range.events)];
  return [ends, [number(sizeOf(range)), "number"], state, [events, "number"]];
}

/** Creates the panel, from `rest/completeness`. */
export function coverage({ ranges, gaps, network }) {
  if (ranges.length === 0) return [note("No ledger is stored yet.")];
  const all = [...ranges, ...gaps].sort((one, other) => other.first_ledger - one.first_ledger);
  const shown = all.slice(0, MAX_ROWS);
  const heads = ["Ledgers", ["Count", "number"], "State", ["Events", "number"]];
  return [
    ...mend(gaps, ["mainnet", "testnet"].includes(network)), bar(ranges, gaps),
    table(heads, shown.map(row), "Stored and missing ledgers"),
    all.length > MAX_ROWS ? note(`The newest ${MAX_ROWS} of ${number(all.length)} ranges and gaps. All: `,
      link("rest/completeness", "rest/completeness"), ".") : null,
  ];
}
