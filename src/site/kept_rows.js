// Lists of pages that were left: who comes back finds the rows that were read there, at the same place.

/** Entries of the history whose lists are kept. */
const MOST = 20;

/** By entry of the history, the oldest first: states of lists by their key. */
const left = new Map();
/** Lists of the page that is open, and states that were kept of them, by key. */
let lists = new Map();
let states = new Map();
let entry = null;

/** Forgets all lists: their rows may be those of another owner. */
export const forgetRows = () => {
  left.clear();
  lists = new Map();
};

function leave() {
  const kept = [...lists].map(([key, rows]) => [key, rows.place()]).filter(([, place]) => place !== null);
  left.delete(entry);
  if (kept.length > 0) left.set(entry, new Map(kept));
  if (left.size > MOST) left.delete(left.keys().next().value);
}

/** Leaves the page that is open for that of the current entry of the history. */
export function turn() {
  if (entry !== null) leave();
  entry = history.state?.entry ?? `${Date.now()} ${Math.random()}`;
  history.replaceState({ ...history.state, entry }, "");
  lists = new Map();
  states = left.get(entry) ?? new Map();
}

/** Returns what was kept of the list with this key when this page was left; undefined if nothing was. */
export function recall(key, rows) {
  lists.set(key, rows);
  const state = states.get(key);
  states.delete(key);
  return state;
}
