// Entry point of the site: the head of every page, and the page of the address.

import { session } from "./api.js";
import { at, button, make, put } from "./dom.js";
import * as health from "./health.js";
import * as router from "./router.js";
import { searchFor } from "./search.js";
import * as token from "./token.js";

function tokenPanel() {
  const panel = at("token-panel");
  const toggle = at("token-toggle");
  const close = () => {
    panel.hidden = true;
    toggle.setAttribute("aria-expanded", "false");
  };
  const show = () => put(panel, session.token === "" ? token.tokenForm(close)
    : [token.describe(), button("Forget it", "quiet", () => { token.forget(); close(); })]);
  const name = () => { toggle.textContent = session.token === "" ? "Give a token" : `Token: ${token.claims().sub ?? "in use"}`; };
  toggle.addEventListener("click", () => {
    if (panel.hidden) {
      show();
      panel.hidden = false;
      toggle.setAttribute("aria-expanded", "true");
      panel.querySelector("input, button").focus();
    } else close();
  });
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      close();
      toggle.focus();
    }
  });
  token.onToken(() => {
    name();
    close();
  });
  name();
}

function searchForm() {
  at("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const path = searchFor(at("search-text").value);
    if (path === null) return at("search-text").focus();
    at("search-text").value = "";
    return router.go(path);
  });
  // The slash leads to the search field, as in other explorers, unless something is being written.
  document.addEventListener("keydown", (event) => {
    const isWriting = event.target.closest?.("input, textarea, select");
    if (event.key !== "/" || isWriting || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    at("search-text").focus();
  });
}

function tell(...shown) {
  put(at("refused"), ...shown);
  at("refused").hidden = false;
}

/** Uses the token that the address has, if it has one, and tells why it cannot be used. One of another owner is not used unasked. */
async function useAddress() {
  const given = token.given();
  if (given === null) return;
  const take = async () => {
    const refusal = await token.use(given, false);
    if (refusal !== undefined) tell(token.needsToken(`The token of this address cannot be used: ${refusal}.`));
  };
  if (!token.isForeign(given)) return take();
  const [own, other] = [session.token, given].map((one) => String(token.claims(one).sub ?? "nobody").slice(0, 64));
  tell(make("p", "", "This address brings a token of ", make("b", "", other), "; the one in use is of ", make("b", "", own),
    `. With the other, what you make and write here belongs to ${other}.`),
  make("div", "row", button("Use the other", "quiet", take), button(`Stay ${own}`, "", () => { at("refused").hidden = true; })));
}

at("search").hidden = false;
at("token-toggle").hidden = false;
searchForm();
health.begin();
token.resume();
addEventListener("hashchange", useAddress);
await useAddress();
tokenPanel();
// A page that was opened without a token, or with another one, is opened anew.
token.onToken(() => router.open());
router.begin();
