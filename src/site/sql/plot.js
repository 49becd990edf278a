// A plot of a result, if a column has times or ledgers.

import { choice, field, make, note } from "../dom.js";
import { bounded, time } from "../format.js";
import { plot } from "../plot.js";

/** Number of points of a plot: more would be slow. */
const MOST_POINTS = 1500;

const TIME = /^\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d+)?Z?)?$/;

/** Parses a time into UNIX milliseconds. A time without a zone is UTC. */
const milliseconds = (text) => Date.parse(text.length > 10 ? text.replace(/Z?$/, "Z") : text);

/** Returns a column as an x axis; null if its values are neither times nor ledgers. */
function axis({ name, values, isNumber }) {
  const isTime = (value) => value === null || (typeof value === "string" && TIME.test(value));
  const overTime = !isNumber && values.some((value) => value !== null) && values.every(isTime);
  const isLedger = isNumber && /(^|_)ledger(_sequence|_seq)?$/i.test(name);
  return isLedger || overTime ? { name, values, overTime, read: overTime ? milliseconds : Number } : null;
}

/** Returns the columns that can be x axes, and those that can be drawn over them; null if there is nothing to draw. */
export function plottable(columns) {
  const axes = columns.map(axis);
  const series = columns.filter((column, index) => column.isNumber && axes[index] === null);
  const found = axes.filter((one) => one !== null);
  const isPossible = found.length > 0 && series.length > 0 && columns[0].values.length > 1;
  return isPossible ? { axes: found, series, isFirst: axes[0] !== null } : null;
}

/** Creates the choices of columns, and the plot. */
export function plots({ axes, series }) {
  const choose = (list) => choice(list.map(({ name }, index) => [String(index), bounded(name, 60)]));
  const [what, over] = [choose(series), choose(axes)];
  const place = make("div");
  const redraw = () => draw(place, axes[over.value], series[what.value]);
  for (const select of [what, over]) select.addEventListener("change", redraw);
  redraw();
  return make("div", "", make("div", "row", field("Plot", what), field("Over", over)), place);
}

function draw(place, over, series) {
  const read = (value, how) => value === null || !Number.isFinite(how(value)) ? null : how(value);
  const points = over.values.map((x, row) => [read(x, over.read), read(series.values[row], Number), row])
    .filter(([x]) => x !== null).sort(([one], [other]) => one - other);
  const step = Math.ceil(points.length / MOST_POINTS);
  // A line through several rows of one ledger would go up and down in one place.
  const repeats = points.some(([x], index) => x === points[index - 1]?.[0]);
  const [name, base] = [bounded(series.name, 60), bounded(over.name, 60)];
  plot(place, {
    points: points.filter((_, index) => index % step === 0), kind: repeats ? "dots" : "line", overTime: over.overTime,
    label: `${name} over ${base}`,
    say: ([x, , row]) => [over.overTime ? time(x) : `${base} ${x}`, `: ${name} ${series.values[row]}`],
  });
  if (step > 1) place.append(note(`One of ${step} rows is drawn.`));
}
