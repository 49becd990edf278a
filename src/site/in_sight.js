// What rows of a table show takes a request each, beside that of the whole list: only rows in sight are asked for.

import { Refused } from "./api.js";

/** How old an answer may become, in milliseconds. */
const AGE = 10000;

export class InSight {
  known = new Map();

  /** `read(id)` asks for what belongs to an id. */
  constructor(read) {
    this.read = read;
  }

  /** Returns what was answered last; undefined if nothing was yet. */
  of(id) {
    return this.known.get(id)?.value;
  }

  /** Asks for those of these ids whose row in the table of this place is in sight, one after the other. */
  async refresh(place, ids) {
    const rows = [...place.querySelectorAll("tbody tr")];
    for (const [index, id] of ids.entries()) {
      // While the reader uses the table, it may still be that of an earlier list.
      if (rows[index] === undefined) break;
      const { top, bottom } = rows[index].getBoundingClientRect();
      const { value, at = -Infinity } = this.known.get(id) ?? {};
      if (bottom < 0 || top > innerHeight || performance.now() - at < AGE) continue;
      this.known.set(id, { value, at: performance.now() });
      try {
        this.known.set(id, { value: await this.read(id), at: performance.now() });
      } catch (error) {
        // It may have been deleted meanwhile. What is wrong with all requests is told by the list itself.
        if (!(error instanceof Refused) || error.status === 401) throw error;
      }
    }
  }
}
