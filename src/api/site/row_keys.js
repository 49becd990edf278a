// Moving through a long list with the keyboard. The list is one stop of the Tab key, however many links its rows have.

const CONTROLS = "a, button, input";

/** Takes the controls of a row out of the order of the Tab key. */
export function untab(row) {
  for (const control of row.querySelectorAll(CONTROLS)) control.tabIndex = -1;
  return row;
}

/** Handles a key that was pressed in the list `rows`: arrows move the focus, Escape brings it back to the list itself. */
export function onKey(rows, event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input")) return;
  const place = [...rows.shown].find(([, row]) => row.contains(event.target));
  const steps = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };
  if (event.key in steps && (place !== undefined || event.key === "ArrowDown")) {
    const from = place?.[0] ?? rows.firstInSight() - 1;
    const to = Math.max(0, Math.min(rows.items.length - 1, from + steps[event.key]));
    if (focusIn(rows, to, place && columnOf(...place.slice(1), event.target))) event.preventDefault();
  } else if (place !== undefined && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
    const column = columnOf(place[1], event.target) + (event.key === "ArrowRight" ? 1 : -1);
    if (focusIn(rows, place[0], column)) event.preventDefault();
  } else if (place !== undefined && event.key === "Escape") rows.scroller.focus();
}

const columnOf = (row, target) => [...row.querySelectorAll(CONTROLS)].indexOf(target);

/** Moves the focus to a control of a row. Returns whether there is one. */
function focusIn(rows, index, column = 0) {
  rows.reveal(index);
  const controls = [...(rows.shown.get(index)?.querySelectorAll(CONTROLS) ?? [])];
  const control = controls[Math.max(0, Math.min(column, controls.length - 1))];
  control?.focus({ preventScroll: true });
  return control !== undefined;
}
