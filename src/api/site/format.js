// Numbers, sizes, durations, times and amounts as text.

import { having, make } from "./dom.js";

export const number = (value) => typeof value === "string" ? BigInt(value).toLocaleString("en-US") : value.toLocaleString("en-US");

/** Formats a count with its noun, whose plural ends in `s`. */
export const count = (of, thing) => `${number(of)} ${thing}${of === 1 ? "" : "s"}`;

export function bytes(size) {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${units[unit]}`;
}

export function duration(seconds) {
  const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit));
  if (days > 0) return `${days} d ${hours % 24} h`;
  if (hours > 0) return `${hours} h ${minutes % 60} min`;
  return minutes > 0 ? `${minutes} min ${Math.floor(seconds) % 60} s` : `${Math.floor(seconds)} s`;
}

/** Formats a UNIX time in milliseconds as UTC, like the close times of ledgers. */
export const utc = (milliseconds) => `${new Date(milliseconds).toISOString().slice(0, 19).replace("T", " ")} UTC`;

const two = (part) => String(part).padStart(2, "0");

function local(date) {
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

const zone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });
const zoneOf = (date) => zone.formatToParts(date).find(({ type }) => type === "timeZoneName").value;

/** Returns an element with a time in the reader's zone and, beside it, in UTC. `when` is ISO text or UNIX milliseconds. */
export function time(when) {
  const date = new Date(when);
  if (Number.isNaN(date.getTime())) return String(when);
  const shown = date.getTimezoneOffset() === 0 ? [utc(date.getTime())]
    : [`${local(date)} ${zoneOf(date)} `, make("small", "note", `(${utc(date.getTime())})`)];
  return having(make("time", "", ...shown), { datetime: date.toISOString() });
}

/** Returns an element with the time of the day in the reader's zone, for lists. Its title has the whole time and UTC. */
export function clock(when) {
  const date = new Date(when);
  if (Number.isNaN(date.getTime())) return String(when);
  const old = Date.now() - date.getTime() > 86400000;
  const title = `${local(date)} ${zoneOf(date)} (${utc(date.getTime())})`;
  return having(make("time", "", old ? local(date) : local(date).slice(11)), { datetime: date.toISOString(), title });
}

/** Largest number of decimals that is applied: no integer of a contract has more digits than 78. */
const MOST_DECIMALS = 78;

/**
 * Formats an integer of the smallest unit with this number of decimals. Returns the text itself if it is no integer, or if
 * the number of decimals, which contracts choose freely, makes no sense.
 */
export function amount(integer, decimals) {
  const text = String(integer);
  if (!/^-?\d{1,78}$/.test(text) || !(decimals >= 0 && decimals <= MOST_DECIMALS)) return text;
  const digits = text.replace("-", "").padStart(decimals + 1, "0");
  const whole = number(digits.slice(0, digits.length - decimals));
  const part = digits.slice(digits.length - decimals).replace(/0+$/, "");
  return `${text.startsWith("-") ? "-" : ""}${whole}${decimals > 0 && part ? `.${part}` : ""}`;
}

/** Formats stroops as lumens (1 XLM is 10,000,000 stroops). */
export const lumens = (stroops) => `${amount(stroops, 7)} XLM`;

/** Shortens a long name to its first and last `kept` characters. The title has the whole name. */
export function short(name, kept = 6) {
  const isLong = name.length > 2 * kept + 3;
  const shown = make("span", "mono", isLong ? `${name.slice(0, kept)}…${name.slice(-kept)}` : name);
  if (isLong) shown.title = name;
  return shown;
}

/** Cuts text off after so many characters. */
export const bounded = (text, most = 1500) => text.length > most ? `${text.slice(0, most)}…` : text;

/** Returns words by name, without what every object has, such as `constructor`: names may come from the network. */
export const words = (byName) => Object.assign(Object.create(null), byName);
