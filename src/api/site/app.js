// Entry point of the site: the head of every page, and the page of the address.

import { session } from "./api.js";
import { at, button, put } from "./dom.js";
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

/** Uses the token that the address has, if it has one, and tells why it cannot be used. */
async function useAddress() {
  const refusal = await token.begin();
  if (refusal === undefined) return;
  put(at("refused"), token.needsToken(`The token of this address cannot be used: ${refusal}.`));
  at("refused").hidden = false;
}

at("search").hidden = false;
at("token-toggle").hidden = false;
searchForm();
health.begin();
addEventListener("hashchange", useAddress);
await useAddress();
tokenPanel();
// A page that was opened without a token, or with another one, is opened anew.
token.onToken(() => router.open());
router.begin();
