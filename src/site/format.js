// Numbers, sizes, durations, times and amounts as text.

import { having, make } from "./dom.js";

const grouped = new Intl.NumberFormat("en-US");

/** Formats a number, or an integer of any size as text, with commas between thousands. */
export const number = (value) => grouped.format(value);

/** Formats a count with its noun, whose plural ends in `s`. */
export const count = (of, thing) => `${number(of)} ${thing}${of === 1 ? "" : "s"}`;

/** Formats a size in the largest unit of which it is at least 1. */
export function bytes(size) {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  const power = Math.min(Math.floor(Math.log10(Math.max(size, 1)) / 3), units.length - 1);
  const shown = size / 1000 ** power;
  return `${power === 0 || shown >= 100 ? Math.round(shown) : shown.toFixed(1)} ${units[power]}`;
}

/** Formats seconds in the largest unit of which there is one, and the next smaller one. */
export function duration(seconds) {
  const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit));
  if (days > 0) return `${days} d ${hours % 24} h`;
  if (hours > 0) return `${hours} h ${minutes % 60} min`;
  return minutes > 0 ? `${minutes} min ${Math.floor(seconds) % 60} s` : `${Math.floor(seconds)} s`;
}

/** Formats a time, a date or UNIX milliseconds, as UTC. */
const utc = (when) => `${new Date(when).toISOString().slice(0, 19).replace("T", " ")} UTC`;

// Sweden writes dates as ISO 8601 has them.
const local = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });
const zone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });
const zoned = (date) =>
  `${local.format(date)} ${zone.formatToParts(date).find(({ type }) => type === "timeZoneName").value}`;

/**
 * Returns an element with a time in the reader's zone and, beside it, in UTC. `when` is ISO text or UNIX milliseconds,
 * and stays text where contracts chose a time so far off that there is no date for it.
 */
export function time(when) {
  const date = new Date(when);
  if (Number.isNaN(date.valueOf())) return String(when);
  const [here, there] = [zoned(date), utc(date)];
  // The date is written once where it is the same.
  const day = "0000-00-00 ".length;
  const shown = date.getTimezoneOffset() === 0 ? [there]
    : [`${here} `, make("small", "note", `(${here.startsWith(there.slice(0, day)) ? there.slice(day) : there})`)];
  return having(make("time", "", shown), { datetime: date.toISOString() });
}

/** Age, in milliseconds, from which on lists show how long ago a time is. */
const DAY = 86400000;

/**
 * Returns an element for lists, with the time of the day in the reader's zone, or with the days since a time that is
 * longer ago. Its title has the time in full.
 */
export function clock(when) {
  const date = new Date(when);
  const age = Date.now() - date;
  return having(make("time", "", age > DAY ? `${number(Math.floor(age / DAY))} d ago` : local.format(date).slice(11)),
    { datetime: date.toISOString(), title: `${zoned(date)} (${utc(date)})` });
}

/** Largest number of decimals that is applied: no integer of a contract has more digits than 78. */
const MOST_DECIMALS = 78;

/**
 * Formats an integer of the smallest unit with this number of decimals. Returns the text itself if it is no integer, or
 * if the number of decimals, which contracts choose freely, makes no sense.
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
