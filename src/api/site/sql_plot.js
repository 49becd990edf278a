// Plots of a result, if a column has times or ledgers: up to four columns, one below the other.

import { choice, having, make, put } from "./dom.js";
import { number, utc } from "./format.js";
import { plot } from "./plot.js";

/** Number of points of a plot: more would be slow. */
const MOST_POINTS = 1500;
const MOST_PLOTS = 4;

const TIME = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d(:?\d\d)?)?$/;

/** Parses a time into UNIX milliseconds. A time without a zone is UTC. */
function milliseconds(text) {
  if (text.length === 10) return Date.parse(text);
  const [, whole, zone = "Z"] = /^(.*?)(Z|[+-]\d\d(?::?\d\d)?)?$/.exec(text.replace(" ", "T"));
  return Date.parse(whole.replace(/(\.\d{3})\d+$/, "$1") + (zone.length === 3 ? `${zone}:00` : zone));
}

/** Returns a column as an x axis; null if its values are neither times nor ledgers. */
function axis({ name, values, isNumber }) {
  const isTime = (value) => value === null || typeof value === "string" && TIME.test(value);
  const isLedger = isNumber && /(^|_)ledger(_sequence|_seq)?$/i.test(name);
  const overTime = !isNumber && values.some((value) => value !== null) && values.every(isTime);
  return isLedger || overTime ? { name, values, overTime, read: overTime ? milliseconds : Number } : null;
}

/** Returns the columns that can be x axes, and those that can be drawn over them. */
export function plottable(columns) {
  const axes = columns.map(axis);
  const series = columns.filter((column, index) => column.isNumber && axes[index] === null);
  const isPossible = series.length > 0 && columns[0].values.length > 1;
  return { axes: isPossible ? axes.filter((found) => found !== null) : [], series, isFirst: axes[0] !== null };
}

const named = (list) => list.map(({ name }, index) => [String(index), name.slice(0, 60)]);

/** Creates the choices and the plots. They are drawn when `redraw` is called, and when a choice is made. */
export function plots({ axes, series }) {
  const over = having(choice(named(axes), "0"), { "aria-label": "Over" });
  const chosen = Array.from({ length: Math.min(MOST_PLOTS, series.length) }, (_, index) => having(
    choice(index === 0 ? named(series) : [["", "nothing"], ...named(series)], index === 0 ? "0" : ""),
    { "aria-label": index === 0 ? "Plot" : `and as plot ${index + 1}` }));
  const labels = chosen.map((select, index) => make("label", "", make("span", "", index === 0 ? "Plot" : "and"), select));
  const places = chosen.map(() => make("div"));
  const redraw = () => {
    for (const [index, { value }] of chosen.entries()) {
      // A further choice is offered when the one before it is made.
      labels[index].hidden = index > 1 && chosen[index - 1].value === "";
      if (labels[index].hidden) chosen[index].value = "";
      if (chosen[index].value === "") put(places[index]);
      else draw(places[index], axes[Number(over.value)], series[Number(value)]);
    }
  };
  for (const select of [over, ...chosen]) select.addEventListener("change", redraw);
  const element = make("div", "sql-plots", make("div", "row", labels, make("label", "", make("span", "", "Over"), over)), places);
  return { element, redraw };
}

function draw(place, over, series) {
  const value = (row) => {
    const read = series.values[row] === null ? NaN : Number(series.values[row]);
    return Number.isFinite(read) ? read : null;
  };
  over.positions ??= over.values.map((x) => x === null ? NaN : over.read(x));
  const points = over.positions.map((x, row) => [x, value(row), row]).filter(([x]) => !Number.isNaN(x));
  points.sort(([a], [b]) => a - b);
  const step = Math.ceil(points.length / MOST_POINTS);
  const shown = points.filter((_, index) => index % step === 0);
  // A line through several rows of one ledger would go up and down in one place.
  const repeats = points.some(([x], index) => index > 0 && points[index - 1][0] === x);
  const exact = (row) => /^-?\d+$/.test(series.values[row]) ? number(String(series.values[row])) : String(series.values[row]);
  const [name, base] = [series.name.slice(0, 60), over.name.slice(0, 60)];
  plot(place, {
    points: shown, kind: repeats ? "dots" : "line", overTime: over.overTime, label: `${name} over ${base}`,
    say: ([x, , row]) => `${over.overTime ? utc(x) : `${base} ${x}`}: ${name} ${exact(row)}`,
  });
  if (step > 1) place.append(make("p", "note", `One of ${step} rows is drawn.`));
}
