// Entry point of the page: polls the service for the data of the panels while the page is visible, and handles the
// token field.

import { Stale, ask, at, complain, session } from "./common.js";
import * as sql from "./console.js";
import * as explorer from "./explorer.js";
import * as panels from "./panels.js";

const HEALTH_EVERY = 5000;
const STATUS_EVERY = 10000;
const OWNED_EVERY = 30000;

/** Runs `work` repeatedly, `every` milliseconds after the previous run ended. Skips runs while the page is hidden. */
function repeat(every, work) {
  const round = async () => {
    if (!document.hidden) await work();
    setTimeout(round, every);
  };
  round();
}

async function health() {
  try {
    panels.health(await ask("rest/health"));
    at("unreachable").hidden = true;
  } catch (error) {
    at("unreachable").textContent = `The data shown is outdated: ${error.status ? error.message : "the service cannot be reached"}.`;
    at("unreachable").hidden = false;
    panels.outdated();
  }
}

async function into(places, path, show) {
  try {
    show(await ask(path));
  } catch (error) {
    for (const place of places) complain(at(place), error);
  }
}

async function status() {
  await into(["lag", "density", "consumers", "disk"], "rest/status", panels.status);
  await into(["ranges"], "rest/completeness", panels.completeness);
}

async function owned() {
  await panels.programs();
  await panels.webhooks();
}

/** Checks a token with a request that needs one. Returns the service's reason when it is not valid, otherwise nothing. */
async function refusal() {
  try {
    await ask("rest/events/by-ledger?limit=1", { withToken: true });
  } catch (error) {
    // A valid token without this right may have others.
    if (error.status === 401) return error.message;
    if (!error.status && !(error instanceof Stale)) return "the service cannot be reached";
  }
  return undefined;
}

async function use() {
  session.token = at("token").value.trim();
  // Clears the field, so that the token is only in `session`.
  at("token").value = "";
  const { token } = session;
  const said = at("token-said");
  said.className = "note";
  said.textContent = token === "" ? "There is no token." : "Checking the token …";
  const reason = token === "" ? undefined : await refusal();
  if (token !== session.token) return;
  if (reason !== undefined) {
    session.token = "";
    said.className = "problem";
    said.textContent = `This token cannot be used: ${reason}`;
  } else if (token !== "") {
    said.textContent = "A token is in use.";
  }
  explorer.clear();
  sql.clear();
  owned();
  sql.tables();
  if (session.token !== "") explorer.search();
}

/** Uses a token that the page's address has behind `#token=`, and removes it from there and from the history. */
function useAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  history.replaceState(null, "", location.pathname + location.search);
  at("token").value = given;
  use();
}

at("scripted").hidden = false;
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  use();
});
at("token-forget").addEventListener("click", () => {
  at("token").value = "";
  use();
});
explorer.begin();
sql.begin();
explorer.clear();
sql.tables();
useAddress();
addEventListener("hashchange", useAddress);
repeat(HEALTH_EVERY, health);
repeat(STATUS_EVERY, status);
repeat(OWNED_EVERY, owned);
