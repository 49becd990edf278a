// A long list whose items change while it is read.

import { Rows } from "./rows.js";

export class LiveRows extends Rows {
  /**
   * Shows these items instead. Rows of items that have not changed stay the same elements, and stay where they are,
   * unless the list is at its beginning and nobody points at it.
   */
  replace(items, isEnd = true) {
    const { height, items: old, scroller } = this;
    const isAtTop = this.kept === undefined && scroller.scrollTop === 0 && !this.grid.matches(":hover, :focus-within");
    const inSight = this.firstInSight();
    const places = new Map(items.map((item, index) => [JSON.stringify(item), index]));
    const kept = [...this.shown].map(([index, row]) => ({ index, row, now: places.get(JSON.stringify(old[index])) }))
      .filter(({ now }) => now !== undefined);
    const anchor = kept.find(({ index }) => index >= inSight);
    Object.assign(this, { items, isEnd, shown: new Map(kept.map(({ now, row }) => [now, row])) });
    this.draw();
    this.later();
    if (!isAtTop && anchor !== undefined) scroller.scrollTop += (anchor.now - anchor.index) * height;
  }
}
