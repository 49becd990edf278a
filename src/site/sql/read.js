// What the answer to a statement holds: its columns, and values as text and in order.

const NUMBER = /^(-?\d+(\.\d+)?|-?Infinity|NaN)$/;

/** Large integers and decimals are texts in an answer. */
const isNumeric = (value) => typeof value === "number" || (typeof value === "string" && NUMBER.test(value));

function areNumbers(values) {
  const known = values.filter((value) => value !== null);
  return known.length > 0 && known.every(isNumeric);
}

/** Returns the names of the members of an object, in the order of its text. */
function namesIn(json) {
  const names = [];
  let depth = 0;
  for (const [token] of json.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{}]/g)) {
    if (token === "[" || token === "{") depth += 1;
    else if (token === "]" || token === "}") depth -= 1;
    else if (depth === 1) names.push(JSON.parse(token));
  }
  return names;
}

/** Returns the columns of an answer, which is an object of lists: `{ name, values, isNumber }`. */
export function columnsOf(json) {
  const answer = JSON.parse(json);
  const names = Object.keys(answer);
  // An object that was parsed has integers first, such as the years of a PIVOT.
  const ordered = names.some((name) => /^\d+$/.test(name)) ? namesIn(json) : names;
  return ordered.map((name) => ({ name, values: answer[name], isNumber: areNumbers(answer[name]) }));
}

/** Returns a value as one text; lists and maps are indented by so many blanks. */
export function textOf(value, blanks = 0) {
  if (value === null || typeof value !== "object") return Object.is(value, -0) ? "-0" : String(value);
  try {
    return JSON.stringify(value, null, blanks);
  } catch {
    return "(nested too deeply to be shown; files have it)";
  }
}

/** Returns the numbers of the rows in the order of a column. Values without an order, null and NaN, come last. */
export function sorted({ values, isNumber }, isDown) {
  // Integers of any size are compared exactly, also with other numbers.
  const keyOf = (value) => !isNumber ? textOf(value) : /^-?\d+$/.test(value) ? BigInt(value) : Number(value);
  const keys = values.map((value) => value === null || value === "NaN" ? null : keyOf(value));
  const order = (one, other) => keys[one] < keys[other] ? -1 : keys[one] > keys[other] ? 1 : 0;
  const kindOf = (row) => keys[row] === null ? "missing" : "present";
  const { present = [], missing = [] } = Object.groupBy(keys.keys(), kindOf);
  return [...present.sort((one, other) => isDown ? order(other, one) : order(one, other)), ...missing];
}
