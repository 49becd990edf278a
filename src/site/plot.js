// Plots: a line, dots or bars over time, ledgers or other numbers, redrawn when the width changes.

import { to } from "./address.js";
import { draw, having, make, put } from "./dom.js";

const HEIGHT = 170;
const [LEFT, RIGHT, TOP, BOTTOM] = [54, 12, 10, 24];
const FOOT = HEIGHT - BOTTOM;

/** Returns about `most` round numbers from `low` to `high`; only integers if `isWhole`. */
function ticks(low, high, most, isWhole) {
  const rough = high / most - low / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((times) => times * power).find((it) => it >= rough);
  if (isWhole) step = Math.max(1, Math.round(step));
  const found = [];
  const end = Math.min(high + step * 1e-9, Number.MAX_VALUE);
  for (let value = Math.ceil(low / step) * step; value <= end; value += step) {
    const tick = Number(value.toPrecision(12));
    // Large numbers are further apart than a small step, which would never come to the end.
    if (tick === found.at(-1)) break;
    found.push(tick);
  }
  return found;
}

/** Seconds between times on an axis; longer steps are multiples of the last one, a year. */
const STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 604800, 2592000, 31536000];

/** Returns times in the reader's zone from `low` to `high`, with their texts. */
function timeTicks(low, high, most) {
  const rough = (high - low) / 1000 / most;
  const year = STEPS.at(-1);
  const step = STEPS.find((it) => it >= rough) ?? Math.ceil(rough / year) * year;
  // Swedish has days as ISO 8601.
  const style = step >= 86400 ? { dateStyle: "short" } : { timeStyle: step >= 60 ? "short" : "medium" };
  const format = new Intl.DateTimeFormat("sv", style);
  const shift = new Date(low).getTimezoneOffset() * 60;
  const found = [];
  for (let when = Math.ceil((low / 1000 - shift) / step) * step + shift; when <= high / 1000; when += step) {
    found.push([when * 1000, format.format(when * 1000)]);
  }
  return found;
}

/** Returns the name of the reader's zone at a time. */
const zoneOf = (when) => new Date(when).toLocaleTimeString("en-GB", { timeZoneName: "short" }).split(" ").at(-1);

function plain(value) {
  const size = Math.abs(value);
  const notation = size >= 1e15 || (size > 0 && size < 1e-3) ? "scientific" : size >= 1e6 ? "compact" : "standard";
  return value.toLocaleString("en-US", { notation, maximumSignificantDigits: notation === "standard" ? 6 : 4 });
}

/** Returns where a value is between two others, from 0 to 1. Their difference may be too large for a number. */
const fraction = (value, low, high) => high > low ? (value / 2 - low / 2) / (high / 2 - low / 2) : 0.5;

/** Returns what the values of y are between: round numbers. */
function heights(ys, { kind, fromZero }) {
  let [low, high] = [Math.min(...ys), Math.max(...ys)];
  // For values far from zero, the y axis starts at the lowest one, unless `fromZero`. Bars begin at zero.
  if (kind === "bars" || fromZero || low <= 0.5 * high) low = Math.min(0, low);
  high = Math.max(0, high);
  if (low === high) high = low + 1;
  const isWhole = ys.every(Number.isInteger);
  const [first, second] = ticks(low, high, 4, isWhole);
  const step = second - first || high - low;
  high = Math.min(Math.ceil(high / step) * step || high, Number.MAX_VALUE);
  return { low, high, rules: ticks(low, high, 4, isWhole) };
}

/** Returns the scales of both axes: `toX`, `toY`, the rules of y, and the texts below. */
function scalesOf(points, known, width, options) {
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const margin = options.kind === "bars" ? 0.5 : 0;
  const [left, right] = [first - margin, last + margin];
  const { low, high, rules } = heights(known.map(([, y]) => y), options);
  const most = Math.max(4, Math.floor((width - LEFT) / 80));
  return {
    toX: (x) => LEFT + fraction(x, left, right) * (width - LEFT - RIGHT),
    toY: (y) => FOOT - fraction(y, low, high) * (FOOT - TOP),
    rules,
    below: options.overTime ? timeTicks(left, right, most) : ticks(left, right, most, true).map((x) => [x, String(x)]),
  };
}

function axes(svg, { toX, toY, rules, below }, width, zone) {
  const text = (x, y, anchor, content) => svg.append(draw("text", { x, y, "text-anchor": anchor }, content));
  for (const y of rules) {
    svg.append(draw("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: toY(y), y2: toY(y) }));
    text(LEFT - 7, toY(y) + 4, "end", plain(y));
  }
  text(LEFT - 7, HEIGHT - 6, "end", zone);
  for (const [x, content] of below) {
    if (toX(x) > LEFT + 14 && toX(x) < width - 26) text(toX(x), HEIGHT - 6, "middle", content);
  }
}

/**
 * Draws a plot into `place`.
 *
 * - `points`: pairs of x and y, in ascending order of x; y is null where the value is missing.
 * - `kind`: `line`, `dots` or `bars`.
 * - `overTime`: whether x is a UNIX time in milliseconds. The axis is in the reader's zone, and names it.
 * - `fromZero`: whether the y axis always includes zero.
 * - `label`: accessible name of the drawing, for screen readers.
 * - `say`: returns the caption for a point: text, or a list of nodes.
 * - `path`: for bars, returns the path of a point's page. The bars are links then, between which the arrow keys move.
 *
 * When the same place is drawn anew, the focus and the point under the pointer stay.
 */
export function plot(place, options) {
  const caption = make("div", "note caption");
  const frame = make("div", "plot");
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.x : undefined;
  put(place, frame, caption);
  let known;
  const render = () => {
    if (place.clientWidth === known) return;
    known = place.clientWidth;
    put(frame, drawing(Math.max(260, Math.floor(known || 600)), options, caption, place));
  };
  render();
  if (focused !== undefined) {
    (frame.querySelector(`a[data-x="${focused}"]`) ?? frame.querySelector("a"))?.focus({ preventScroll: true });
  }
  place.plotObserver?.disconnect();
  place.plotObserver = new ResizeObserver(render);
  place.plotObserver.observe(place);
}

function drawing(width, options, caption, place) {
  const { points, kind, overTime, label, say, path = null } = options;
  const known = points.filter(([, y]) => y !== null);
  const role = path === null ? "img" : "group";
  const svg = draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role, "aria-label": label });
  if (known.length === 0) {
    svg.append(draw("text", { x: LEFT, y: HEIGHT / 2 }, "Nothing is known yet."));
    return svg;
  }
  const scales = scalesOf(points, known, width, options);
  axes(svg, scales, width, overTime ? zoneOf(known.at(-1)[0]) : "");
  const light = kind === "bars" ? bars(svg, known, scales, path) : line(svg, points, scales, kind === "line");
  const tell = (point) => {
    light(point);
    put(caption, say(point ?? known.at(-1)));
  };
  const follow = (clientX) => {
    place.pointer = clientX;
    const box = place.getBoundingClientRect();
    const x = (clientX - box.left) / box.width * width;
    const distance = (point) => Math.abs(scales.toX(point[0]) - x);
    tell(known.reduce((nearest, point) => distance(point) < distance(nearest) ? point : nearest));
  };
  for (const event of ["pointermove", "pointerdown"]) svg.addEventListener(event, ({ clientX }) => follow(clientX));
  svg.addEventListener("pointerleave", () => {
    place.pointer = undefined;
    tell(null);
  });
  if (place.pointer === undefined) tell(null);
  else follow(place.pointer);
  if (path !== null) keys(svg, known, say, tell);
  return svg;
}

/** Makes the bars' links one stop of the Tab key. Arrow keys, Home and End move between them. */
function keys(svg, known, say, tell) {
  const links = [...svg.querySelectorAll("a")];
  const enter = (link) => { for (const one of links) one.setAttribute("tabindex", one === link ? 0 : -1); };
  links.forEach((link, index) => {
    link.setAttribute("aria-label", make("span", "", say(known[index])).textContent);
    link.addEventListener("focus", () => tell(known[index]));
  });
  enter(links.at(-1));
  svg.addEventListener("focusout", () => tell(null));
  svg.addEventListener("keydown", (event) => {
    const index = links.indexOf(event.target);
    const next = links[{ ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: links.length - 1 }[event.key]];
    if (next === undefined) return;
    event.preventDefault();
    enter(next);
    next.focus();
  });
}

/** Draws bars; returns what lights that of a point up. */
function bars(svg, known, { toX, toY }, path) {
  const unit = toX(1) - toX(0);
  const size = Math.max(1, Math.min(26, unit * 0.8));
  const drawn = known.map(([x, y]) => {
    const [top, foot] = [toY(y), toY(0)].sort((one, other) => one - other);
    const height = Math.max(foot - top, y === 0 ? 0 : 1);
    return draw("rect", { class: "bar0", x: toX(x) - size / 2, width: size, y: top, height });
  });
  // The whole height is a link, so that it can be hit where the bar is low.
  const area = { width: unit, y: TOP, height: FOOT - TOP, fill: "none", "pointer-events": "all" };
  const linked = (point, index) => draw("a", { href: to(path(point)), "data-x": point[0] },
    draw("rect", { ...area, x: toX(point[0]) - unit / 2 }), drawn[index]);
  svg.append(...path === null ? drawn : known.map(linked));
  return (point) => drawn.forEach((bar, index) => bar.classList.toggle("on", known[index] === point));
}

/** Draws the points, with a line through them if `isJoined`; returns what lights a point up. */
function line(svg, points, { toX, toY }, isJoined) {
  let isBegun = false;
  const path = points.map(([x, y]) => {
    // A line of no length is a dot.
    const step = y === null ? "" : `${isBegun ? "L" : "M"}${toX(x).toFixed(1)} ${toY(y).toFixed(1)}h0`;
    isBegun = isJoined && y !== null;
    return step;
  });
  const dot = draw("circle", { class: "dot0 on", r: 4 });
  svg.append(draw("path", { class: isJoined ? "line0" : "line0 dots0", d: path.join("") }));
  return (point) => {
    if (point === null) dot.remove();
    else svg.append(having(dot, { cx: toX(point[0]), cy: toY(point[1]) }));
  };
}
