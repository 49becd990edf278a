// Plots: a line, dots or bars over time, ledgers or other numbers, redrawn when the width changes.

import { to } from "./address.js";
import { draw, make } from "./dom.js";

const HEIGHT = 170;
const [LEFT, RIGHT, TOP, BOTTOM] = [54, 12, 10, 24];

/** Returns about `count` round numbers from `low` to `high`; only integers if `whole`. */
function ticks(low, high, count, whole) {
  const rough = (high - low) / Math.max(count, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((times) => times * power).find((it) => it >= rough);
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) {
    const tick = Number(value.toPrecision(12));
    // Large numbers are further apart than a small step, which would never come to the end.
    if (tick === found.at(-1)) break;
    found.push(tick);
  }
  return found;
}

const TIME_STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 604800, 2592000, 31536000];

function timeTicks(low, high, count) {
  const rough = (high - low) / 1000 / count;
  const [year] = TIME_STEPS.slice(-1);
  const step = (TIME_STEPS.find((it) => it >= rough) ?? Math.ceil(rough / year) * year) * 1000;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found.map((value) => {
    const text = new Date(value).toISOString();
    return [value, step >= 86400000 ? text.slice(0, 10) : text.slice(11, step >= 60000 ? 16 : 19)];
  });
}

const plain = (value) => Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-3)
  ? value.toLocaleString("en-US", { notation: "compact", maximumSignificantDigits: 4 })
  : value.toLocaleString("en-US", { maximumSignificantDigits: 6 });

/**
 * Draws a plot into `place`.
 *
 * - `points`: pairs of x and y, in ascending order of x; y is null where the value is missing.
 * - `kind`: `line`, `dots` or `bars`.
 * - `overTime`: whether x is a UNIX time in milliseconds.
 * - `whole`: whether y is an integer.
 * - `fromZero`: whether the y axis always includes zero.
 * - `label`: accessible name of the drawing, for screen readers.
 * - `say`: returns the caption for a point.
 * - `path`: for bars, returns the path of a point's page. The bars are links then, between which the arrow keys move.
 *
 * When the same place is drawn anew, the focus and the point under the pointer stay.
 */
export function plot(place, { points, kind, overTime = false, whole = false, fromZero = false, label, say, path = null }) {
  const caption = make("div", "note caption");
  const frame = make("div", "plot");
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.x : undefined;
  place.replaceChildren(frame, caption);
  const render = () => {
    const width = Math.max(260, Math.floor(place.clientWidth || 600));
    frame.replaceChildren(drawing(width, { points, kind, overTime, whole, fromZero, label, say, path }, caption, place));
  };
  render();
  if (focused !== undefined) (frame.querySelector(`a[data-x="${focused}"]`) ?? frame.querySelector("a"))?.focus({ preventScroll: true });
  if (place.pointer) frame.firstChild.dispatchEvent(new PointerEvent("pointermove", place.pointer));
  let known = place.clientWidth;
  place.plotObserver?.disconnect();
  place.plotObserver = new ResizeObserver(() => {
    if (place.clientWidth !== known) {
      known = place.clientWidth;
      render();
    }
  });
  place.plotObserver.observe(place);
}

function drawing(width, { points, kind, overTime, whole, fromZero, label, say, path }, caption, place) {
  const known = points.filter(([, y]) => y !== null);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: path === null ? "img" : "group", "aria-label": label });
  if (known.length === 0) {
    svg.append(draw("text", { x: LEFT, y: HEIGHT / 2 }, "Nothing is known yet."));
    return svg;
  }
  const xs = points.map(([x]) => x);
  let [left, right] = [xs[0], xs.at(-1)];
  if (kind === "bars") [left, right] = [left - 0.5, right + 0.5];
  if (left === right) [left, right] = [left - 1, right + 1];
  const ys = known.map(([, y]) => y);
  let [low, high] = [Math.min(0, ...ys), Math.max(0, ...ys)];
  // For values far from zero, the y axis starts at the lowest one, unless `fromZero`. Bars begin at zero.
  if (kind !== "bars" && !fromZero && low === 0 && Math.min(...ys) > 0.5 * high) low = Math.min(...ys);
  if (low === high) high = low + 1;
  // Rounds the top up to a tick, so that no value is above the highest rule.
  const steps = ticks(low, high, 4, whole);
  const step = steps.length > 1 ? steps[1] - steps[0] : high - low;
  high = Math.ceil(high / step) * step;
  const toX = (x) => LEFT + (x - left) / (right - left) * (width - LEFT - RIGHT);
  const toY = (y) => HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM);
  for (const y of ticks(low, high, 4, whole)) {
    svg.append(draw("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: toY(y), y2: toY(y) }));
    svg.append(draw("text", { x: LEFT - 7, y: toY(y) + 4, "text-anchor": "end" }, plain(y)));
  }
  const room = Math.max(4, Math.floor((width - LEFT) / 80));
  const below = overTime ? timeTicks(left, right, room)
    : ticks(left, right, room, true).map((x) => [x, String(x)]);
  for (const [x, text] of below.filter(([x]) => toX(x) > LEFT + 14 && toX(x) < width - 26)) {
    svg.append(draw("text", { x: toX(x), y: HEIGHT - 6, "text-anchor": "middle" }, text));
  }
  const marks = kind === "bars" ? bars(svg, points, toX, toY, (width - LEFT - RIGHT) / (right - left), path)
    : line(svg, points, toX, toY, kind === "line");
  const rest = say(known.at(-1));
  caption.textContent = rest;
  const tell = (point) => {
    marks(point);
    caption.textContent = point === null ? rest : say(point);
  };
  const show = (event) => {
    place.pointer = { clientX: event.clientX };
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * width;
    let nearest = known[0];
    for (const point of known) {
      if (Math.abs(toX(point[0]) - x) < Math.abs(toX(nearest[0]) - x)) nearest = point;
    }
    tell(nearest);
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", () => {
    place.pointer = null;
    tell(null);
  });
  if (path !== null) keys(svg, known, say, tell);
  return svg;
}

/** Makes the bars' links one stop of the Tab key. Arrow keys, Home and End move between them. */
function keys(svg, known, say, tell) {
  const links = [...svg.querySelectorAll("a")];
  links.forEach((link, index) => {
    link.setAttribute("aria-label", say(known[index]));
    link.setAttribute("tabindex", index === links.length - 1 ? "0" : "-1");
    link.addEventListener("focus", () => tell(known[index]));
  });
  svg.addEventListener("focusout", () => tell(null));
  svg.addEventListener("keydown", (event) => {
    const index = links.indexOf(event.target);
    const next = links[{ ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: links.length - 1 }[event.key]];
    if (next === undefined) return;
    event.preventDefault();
    links[index].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
}

function bars(svg, points, toX, toY, unit, path) {
  const size = Math.max(1, Math.min(26, unit * 0.8));
  const drawn = new Map();
  for (const point of points.filter(([, y]) => y !== null)) {
    const [x, y] = point;
    const [top, foot] = [Math.min(toY(y), toY(0)), Math.max(toY(y), toY(0))];
    const bar = draw("rect", { class: "bar0", x: toX(x) - size / 2, width: size, y: top, height: Math.max(foot - top, y === 0 ? 0 : 1) });
    drawn.set(point, bar);
    // The whole height is a link, so that it can be hit where the bar is low.
    const area = { x: toX(x) - unit / 2, width: unit, y: TOP, height: HEIGHT - TOP - BOTTOM, fill: "none", "pointer-events": "all" };
    svg.append(path === null ? bar : draw("a", { href: to(path(point)), "data-x": x }, draw("rect", area), bar));
  }
  return (point) => {
    for (const [other, bar] of drawn) bar.setAttribute("class", other === point ? "bar0 on" : "bar0");
  };
}

/** Draws the points, with a line through them if `joined`. */
function line(svg, points, toX, toY, joined) {
  let path = "";
  let follows = false;
  points.forEach(([x, y], index) => {
    if (y !== null) {
      const alone = !joined || !follows && (index + 1 === points.length || points[index + 1][1] === null);
      if (alone) svg.append(draw("circle", { class: "dot0", r: 2, cx: toX(x), cy: toY(y) }));
      path += `${follows ? "L" : "M"}${toX(x).toFixed(1)} ${toY(y).toFixed(1)}`;
    }
    follows = y !== null;
  });
  if (joined) svg.append(draw("path", { class: "line0", d: path }));
  const dot = draw("circle", { class: "dot0 on", r: 4, visibility: "hidden" });
  svg.append(dot);
  return (point) => {
    dot.setAttribute("visibility", point ? "visible" : "hidden");
    if (point) {
      dot.setAttribute("cx", toX(point[0]));
      dot.setAttribute("cy", toY(point[1]));
    }
  };
}
