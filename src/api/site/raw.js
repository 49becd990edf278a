// Base64 XDR to read and copy.

import { copyButton } from "./copy.js";
import { having, make, put } from "./dom.js";
import { bytes } from "./format.js";

/** Creates a place that opens to show base64 text. The text is only put into the page when it is opened. */
export function raw(name, text) {
  const size = Math.floor(text.replace(/=+$/, "").length * 3 / 4);
  const body = make("div");
  const made = make("details", "raw", make("summary", "", name, " ", make("small", "note", bytes(size))), body);
  made.addEventListener("toggle", () => {
    if (!made.open || body.childElementCount > 0) return;
    const shown = having(make("pre", "", text), { tabindex: 0, role: "region", "aria-label": name });
    put(body, copyButton(() => text, name), shown);
  });
  return made;
}
