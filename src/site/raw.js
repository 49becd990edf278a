// Base64 XDR to read and copy.

import { copyButton } from "./copy.js";
import { folded, having, make } from "./dom.js";
import { bytes } from "./format.js";

/** Creates a place that opens to show base64 text. The text is only put into the page when it is opened. */
export function raw(name, text) {
  const size = Math.floor(text.replace(/=+$/, "").length * 3 / 4);
  return folded("raw", [name, " ", make("small", "note", bytes(size))], () => [
    copyButton(() => text, name), having(make("pre", "", text), { tabindex: 0, role: "region", "aria-label": name }),
  ]);
}
