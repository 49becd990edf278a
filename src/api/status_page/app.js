// Entry point of the page: polls the service for the data of the panels while the page is visible, and handles the
// token field.

import { ask, at, complain, session } from "./common.js";
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

function use() {
  session.token = at("token").value.trim();
  // Clears the field, so that the token is only in `session`.
  at("token").value = "";
  at("token-said").textContent = session.token === "" ? "There is no token." : "A token is in use.";
  explorer.clear();
  sql.clear();
  owned();
  sql.tables();
  if (session.token !== "") explorer.search();
}

at("scripted").hidden = false;
at("token-use").addEventListener("click", use);
at("token").addEventListener("keydown", (event) => event.key === "Enter" && use());
at("token-forget").addEventListener("click", () => {
  at("token").value = "";
  use();
});
explorer.begin();
sql.begin();
explorer.clear();
sql.tables();
repeat(HEALTH_EVERY, health);
repeat(STATUS_EVERY, status);
repeat(OWNED_EVERY, owned);
