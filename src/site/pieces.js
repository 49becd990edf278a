// Long lists of which a button shows more.

import { button, make, put } from "./dom.js";
import { number } from "./format.js";

/** Creates the first items of a list, and a button that shows as many more. `create` makes what shows some items. */
export function pieces(items, size, create) {
  const place = make("div");
  const show = (most) => {
    const more = button(`Show more of these ${number(items.length)}`, "quiet", () => {
      show(most + size);
      place.lastChild.focus();
    });
    put(place, create(items.slice(0, most)), most < items.length ? more : null);
  };
  show(size);
  return place;
}
