// Reading the answer to a query, in slices, so that the page stays usable while a large one is read.

import { Refused } from "./api.js";
import { sentence } from "./problem.js";

/** Milliseconds of work between which others may work. */
const SLICE = 12;
/** Letters of the answer that are parsed at a time. */
const PIECE = 200_000;

/** Returns a function to call between pieces of work: it waits a moment when a slice is over. */
export function slices(signal) {
  let began = performance.now();
  return async () => {
    if (performance.now() - began < SLICE) return;
    await new Promise((resolve) => { setTimeout(resolve); });
    signal?.throwIfAborted();
    began = performance.now();
  };
}

/** Returns the position after a JSON text whose end is looked for from a position on; -1 if it is not there yet. */
function afterText(text, from) {
  for (let end = text.indexOf('"', from); end >= 0; end = text.indexOf('"', end + 1)) {
    let slashes = 0;
    while (text.charCodeAt(end - 1 - slashes) === 92) slashes += 1;
    if (slashes % 2 === 0) return end + 1;
  }
  return -1;
}

/**
 * Reads an object of arrays, as it arrives, into pairs of a name and values. `JSON.parse` of the whole would put names
 * that are integers first, and would work on a large answer without a pause.
 */
class Columns {
  constructor() {
    Object.assign(this, { columns: [], text: "", at: 0, begin: 0, seen: 0, depth: 0, name: "" });
  }

  /** Takes the values that end before the position `at`. */
  take() {
    const [, values] = this.columns.at(-1);
    for (const value of JSON.parse(`[${this.text.slice(this.begin, this.at)}]`)) values.push(value);
    this.text = this.text.slice(this.at);
    [this.at, this.begin] = [0, 1];
  }

  push(more) {
    this.text += more;
    for (; this.at < this.text.length; this.at += 1) {
      const letter = this.text.charCodeAt(this.at);
      if (letter === 34) {
        const end = afterText(this.text, Math.max(this.at + 1, this.seen));
        this.seen = end < 0 ? this.text.length : 0;
        if (end < 0) return;
        if (this.depth === 1) this.name = JSON.parse(this.text.slice(this.at, end));
        this.at = end - 1;
      } else if (letter === 91 || letter === 123) {
        this.depth += 1;
        if (this.depth === 2) {
          this.columns.push([this.name, []]);
          this.begin = this.at + 1;
        }
      } else if (letter === 93 || letter === 125) {
        this.depth -= 1;
        if (this.depth === 1) this.take();
      } else if (letter === 44 && this.depth === 2 && this.at - this.begin > PIECE) this.take();
    }
  }
}

/** Reads the columns of an answer; `told` gets the number of bytes that have arrived. */
export async function readColumns(answer, pause, told) {
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  const read = new Columns();
  let size = 0;
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      size += piece.value.length;
      read.push(decoder.decode(piece.value, { stream: true }));
      told(size);
      await pause();
    }
  } catch (error) {
    throw new Refused(answer.status, `the answer cannot be read: ${error.message}`);
  }
  if (read.depth !== 0) throw new Refused(answer.status, "the answer broke off: run it again");
  return read.columns;
}

const NUMBER = /^-?\d+(\.\d+)?$/;
const SPECIAL = new Set(["NaN", "Infinity", "-Infinity"]);

/** Returns whether the values of a column are numbers. Large integers and decimals are texts in the answer. */
function areNumbers(values) {
  let hasNumber = false;
  for (const value of values) {
    if (value === null) continue;
    const isNumber = typeof value === "number" || typeof value === "string" && NUMBER.test(value);
    if (!isNumber && !SPECIAL.has(value)) return false;
    hasNumber ||= isNumber;
  }
  return hasNumber;
}

/** Adds to the columns what the table and the plot need to know of them. */
export async function described(columns, pause) {
  const made = [];
  for (const [name, values] of columns) {
    made.push({ name, values, type: "", isNumber: areNumbers(values) });
    await pause();
  }
  return made;
}

/** Returns a value as one text; lists and maps are indented by so many blanks. */
export function textOf(value, blanks = 0) {
  if (value === null) return "null";
  if (typeof value !== "object") return Object.is(value, -0) ? "-0" : String(value);
  try {
    return JSON.stringify(value, null, blanks);
  } catch {
    return "(nested too deeply to be shown; files have it)";
  }
}

/** Returns the rows, as indices, in the order of a column; missing values come last. Large integers are compared exactly. */
export async function sorted({ values, isNumber }, isDown, pause) {
  const keys = [];
  for (const value of values) {
    keys.push(value === null ? null : isNumber ? Number(value) : textOf(value));
    if (keys.length % 500 === 0) await pause();
  }
  const exact = (a, b) => {
    if (!isNumber || !/^-?\d+$/.test(values[a]) || !/^-?\d+$/.test(values[b])) return 0;
    const [one, other] = [BigInt(values[a]), BigInt(values[b])];
    return one < other ? -1 : one > other ? 1 : 0;
  };
  const rank = (key) => key === null ? 2 : Number.isNaN(key) ? 1 : 0;
  const order = (a, b) => {
    const ranks = rank(keys[a]) - rank(keys[b]);
    if (ranks !== 0 || keys[a] === null) return ranks || a - b;
    const found = keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : exact(a, b);
    return (isDown ? -found : found) || a - b;
  };
  return Array.from(keys, (_, row) => row).sort(order);
}

/** Returns the position of the line and letter (both from 1) in a text. */
function positionOf(text, line, letter) {
  const lines = text.split("\n");
  if (line > lines.length) return null;
  return lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + Math.min(letter - 1, lines[line - 1].length);
}

/** Returns the part of a statement that a refusal names, `{ start, end }`; null if it names none. */
export function placeOf(message, text) {
  const excerpt = /LINE (\d+): (.*)\n( *)(\^+)/.exec(message);
  if (excerpt !== null) {
    const [, line, shown, blanks, marks] = excerpt;
    const whole = text.split("\n")[line - 1] ?? "";
    const before = shown.startsWith("...") && !whole.startsWith("...") ? 3 : 0;
    const found = whole.indexOf(shown.slice(before).replace(/\.\.\.$/, ""));
    if (found < 0) return null;
    const start = positionOf(text, Number(line), found + blanks.length - `LINE ${line}: `.length - before + 1);
    return { start, end: Math.min(text.length, start + marks.length) };
  }
  const named = /\(line (\d+), character (\d+)\)/.exec(message);
  if (named !== null) {
    const start = positionOf(text, Number(named[1]), Number(named[2]));
    return start === null ? null : { start, end: start + (/^[\p{L}\p{N}_]+/u.exec(text.slice(start))?.[0].length ?? 1) };
  }
  const [, name] = /^The function (\S+) cannot/.exec(message) ?? /^Table '(?:.*\.)?(.+)' is not/.exec(message) ?? [];
  const start = name === undefined ? -1 : text.toLowerCase().indexOf(name.toLowerCase());
  return start < 0 ? null : { start, end: start + name.length };
}

/** Returns a refusal as a sentence and the excerpt with its mark, which is empty if it has none. */
export function refusalOf(error) {
  const text = sentence(error) ?? "";
  const [told, excerpt = ""] = text.split(/\n+(?=LINE \d+: )/);
  return { told: /[.!?)]$/.test(told) ? told : `${told}.`, excerpt: excerpt.replace(/\.$/, "") };
}
