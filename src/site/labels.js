// Names of addresses: of the operator, of assets and tokens, and of the reader's own projects. They are asked for in
// batches, and stand beside the address, which they never replace.

import { ask, askWhole, mayRead, session } from "./api.js";
import { labels } from "./address.js";
import { having, make, put } from "./dom.js";
import { words } from "./format.js";
import { baseOf, isRight } from "./strkey.js";
import { onToken } from "./token.js";

/** Addresses of one request, those that are remembered, and those that wait. */
const BATCH = 50;
const MOST = 3000;
const MOST_WAITING = 1000;
/** Milliseconds in which addresses are collected for a request, and between two requests. */
const COLLECT = 40;
const BETWEEN = 1000;
/** Milliseconds for which nothing is asked after a refusal, such as that of a token without the right. */
const SILENCE = 30000;
/** Letters of a name. */
const LETTERS = 40;

/** How each kind of name looks, and what its title says: who chose it. */
const KINDS = words({
  operator: [(name) => `✓ ${name}`, "The operator of this service calls it so"],
  asset: [(name) => name, "The code of the asset, which its issuer chose"],
  token: [(name) => `“${name}”`, "The symbol of the token, which the author of its contract chose"],
  project: [(name) => name, "Your project of this name has the contract"],
});

/** What is known: a name and its kind, or null, by address. */
const known = new Map();
/** Elements that wait for the name of their address. */
const waiting = new Map();
/** Names of the reader's projects by contract; null before they are asked for. */
let projects = null;
let timer;
/** Addresses of the next request: fewer after an answer that ended before all were looked at. */
let batchSize = BATCH;
/** Until when nothing is asked. */
let silentUntil = 0;

function fill(element, label) {
  if (label === null) return element;
  const [shown, title] = KINDS[label.kind] ?? KINDS.token;
  put(having(element, { class: `alias ${label.kind in KINDS ? label.kind : "token"}`, title }), `${shown(label.name.slice(0, LETTERS))} `);
  element.hidden = false;
  return element;
}

async function projectsOf() {
  const list = await ask("rest/retroshade/list").catch(() => []);
  // A contract of several projects is called after the first of them, also when further ones are made.
  return new Map(list.filter(({ project_name: name }) => name)
    .flatMap(({ project_name: name, contracts }) => contracts.map((contract) => [contract, name])).reverse());
}

function later(delay) {
  timer ??= setTimeout(read, delay);
}

async function read() {
  // Rows that were left behind need no names, and those that came last are in sight.
  for (const [address, elements] of waiting) if (!elements.some((it) => it.isConnected)) waiting.delete(address);
  const batch = [...waiting.keys()].slice(-batchSize);
  const { token } = session;
  if (batch.length > 0) {
    projects ??= projectsOf();
    const [found, own] = await Promise.all([
      askWhole(`rest/contracts/labels?addresses=${batch.join(",")}`).catch(() => null), projects]);
    // Names of the projects of one owner are not shown to another.
    if (token !== session.token) {
      timer = undefined;
      if (waiting.size > 0) later(COLLECT);
      return;
    }
    if (found === null) silentUntil = performance.now() + SILENCE;
    const named = new Map((found?.answer ?? []).map((label) => [label.address, label]));
    const isWhole = found?.isWhole ?? true;
    batchSize = isWhole ? Math.min(2 * batchSize, BATCH) : Math.ceil(batchSize / 2);
    for (const address of batch) {
      const project = own.get(address);
      const label = named.get(address) ?? (project === undefined ? null : { name: project, kind: "project" });
      // One without a name may not have been looked at: it stays. For one alone there is no more time another time.
      if (!named.has(address) && !isWhole && batch.length > 1) continue;
      if (found !== null) known.set(address, label);
      for (const element of waiting.get(address) ?? []) fill(element, label);
      waiting.delete(address);
    }
    if (found === null) waiting.clear();
    while (known.size > MOST) known.delete(known.keys().next().value);
  }
  timer = undefined;
  if (waiting.size > 0) later(BETWEEN);
}

/** Creates the element of an address's name: of a muxed one, that of its account. It is hidden while there is none. */
function of(named) {
  const address = named.startsWith("M") ? baseOf(named).base : named;
  const element = having(make("span", "alias"), { hidden: "" });
  if (known.has(address)) return fill(element, known.get(address));
  if (!mayRead() || performance.now() < silentUntil) return element;
  if (!waiting.has(address)) waiting.set(address, []);
  waiting.get(address).push(element);
  if (waiting.size > MOST_WAITING) waiting.delete(waiting.keys().next().value);
  later(COLLECT);
  return element;
}

/** Creates the name of the address of a page, for its heading. `tell` gets it once it is known, if there is one. */
export function nameOf(address, tell) {
  const element = of(address);
  const told = () => { if (!element.hidden) tell(element.textContent.trim()); };
  new MutationObserver(told).observe(element, { childList: true });
  told();
  return element;
}

/** Forgets the reader's projects: another one has been made. */
export function forgetProjects() {
  projects = null;
  known.clear();
}

/** Begins to name addresses. */
export function begin() {
  // One that is none would spoil the request for all of its batch.
  labels.of = (address) => /^[CGM]/.test(address) && isRight(address) ? of(address) : null;
  onToken(() => {
    forgetProjects();
    waiting.clear();
    silentUntil = 0;
  });
}
