// Entry point of the site: the head of every page, and the page of the address.

import { session } from "./api.js";
import { at, button, make, put } from "./dom.js";
import * as health from "./health.js";
import * as labels from "./labels.js";
import { forgetRows } from "./kept_rows.js";
import * as router from "./router.js";
import { searchFor } from "./search.js";
import * as token from "./token.js";

function tokenPanel() {
  const panel = at("token-panel");
  const name = () => {
    at("token-toggle").textContent = session.token === "" ? "Enter a token" : `Token: ${token.claims().sub ?? "in use"}`;
  };
  panel.addEventListener("beforetoggle", ({ newState }) => {
    if (newState !== "open") return;
    put(panel, session.token === "" ? token.tokenForm()
      : [token.describe(), button("Forget it", "quiet", token.forget)]);
    panel.querySelector("input, button").autofocus = true;
  });
  token.onToken(() => {
    panel.hidePopover();
    name();
  });
  name();
}

function searchForm() {
  const text = at("search-text");
  at("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const path = searchFor(text.value);
    if (path === null) return text.focus();
    text.value = "";
    return router.go(path);
  });
  // The slash leads to the search field, as in other explorers, unless something is being written.
  document.addEventListener("keydown", (event) => {
    const isWriting = event.target.closest?.("input, textarea, select");
    if (event.key !== "/" || isWriting || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    text.focus();
  });
}

const nameOf = (claims) => String(claims.sub ?? "nobody").slice(0, 64);

/**
 * Asks whether to use the token that the address has, if it has one, and tells why it cannot be used. Who sends a link
 * chooses its token, and what is then made here belongs to its owner.
 */
function useAddress() {
  const given = token.given();
  if (given === null || given === session.token) return;
  const take = async () => {
    const refusal = await token.use(given, false);
    // The notice is gone, and with it what had the focus.
    if (refusal === undefined) return at("main").querySelector("h1")?.focus({ preventScroll: true });
    return health.notice("refused", token.needsToken(`The token of this address cannot be used: ${refusal}.`));
  };
  const other = nameOf(token.claims(given));
  const own = session.token === "" ? null : nameOf(token.claims());
  health.notice("refused",
    make("p", "", "This address brings a token of ", make("b", "", other),
      own === null ? "" : ["; the one in use is of ", make("b", "", own)],
      `. With it, what you make and write here belongs to ${other}. Use it if the address is from your own service, or `
      + "from someone whom you trust."),
    make("div", "row", button("Use it", "quiet", take),
      button(own === null ? "Go on without" : `Stay ${own}`, "", () => {
        health.notice("refused");
        at("main").querySelector("h1")?.focus({ preventScroll: true });
      })));
}

at("search").hidden = false;
at("token-toggle").hidden = false;
searchForm();
health.begin();
labels.begin();
token.resume();
addEventListener("hashchange", useAddress);
useAddress();
tokenPanel();
// A page that was opened without a token, or with another one, is opened anew.
token.onToken(() => {
  forgetRows();
  router.open();
});
router.begin();
