// Moving through a long list with the keyboard. The list is one stop of the Tab key, however many links its rows have.

const controlsOf = (row) => [...row?.querySelectorAll("a, button, input") ?? []];

/** Takes the controls of a row, or of a part of one, out of the order of the Tab key. */
export function untab(row) {
  for (const control of controlsOf(row)) control.tabIndex = -1;
  return row;
}

/** Rows and controls by which each key moves on. */
const STEPS = {
  ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [-Infinity, 0], End: [Infinity, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
};
const within = (value, last) => Math.max(0, Math.min(last, value));

/** Handles a key that was pressed in the list `rows`: arrows move the focus, Escape brings it back to the list. */
export function onKey(rows, event) {
  const { key, target } = event;
  if (event.altKey || event.ctrlKey || event.metaKey || target.matches("input")) return;
  const [index, row] = [...rows.shown].find(([, it]) => it.contains(target)) ?? [rows.firstInSight() - 1, null];
  if (row !== null && key === "Escape") rows.scroller.focus();
  if (!(key in STEPS) || (row === null && key !== "ArrowDown")) return;
  const [down, right] = STEPS[key];
  const next = within(index + down, rows.items.length - 1);
  rows.reveal(next);
  const controls = controlsOf(rows.shown.get(next));
  const control = controls[within(controlsOf(row).indexOf(target) + right, controls.length - 1)];
  if (control === undefined) return;
  control.focus({ preventScroll: true });
  event.preventDefault();
}
