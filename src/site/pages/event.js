// An event, whole.

import { ask } from "../api.js";
import { addressLink, ledgerLink, link, transactionLink } from "../address.js";
import { copyable } from "../copy.js";
import { having, make, put } from "../dom.js";
import { wordsOf } from "../event.js";
import { time } from "../format.js";
import { beginning } from "../health.js";
import { parametersOf, topicsOf } from "../parameters.js";
import { raw } from "../raw.js";
import { watchRetention } from "../retention.js";
import { facts } from "../table.js";
import { setTitle } from "../title.js";

/** Topics that the record has as members of their own. */
const TOPICS = 10;

function position({ application_order: order, op_index: operation, event_index: index }) {
  if (index === null) return `of transaction No. ${order} of the ledger, for its fee`;
  return `event ${index + 1} of transaction No. ${order} of the ledger`
    + (operation === null ? "" : `, operation ${operation + 1}`);
}

function shown(event) {
  const { contract_id: contract, decoded: { name } } = event;
  return facts([
    ["Contract", contract === "" ? "None: an event of the network" : addressLink(contract, 8)],
    ["Transaction", transactionLink(event.tx, 8)],
    ["Ledger", ledgerLink(event.ledger)],
    ["Closed", time(event.ledger_closed_at)],
    ["Position", position(event)],
    ["Type", event.type],
    ["Declaration", name === null ? "None: its contract declares no such event, or its code is not known"
      : `Its contract declares it as ${name}`],
  ]);
}

/** Returns the topics of an event as base64. */
const rawTopics = (event) => event.topics
  ?? Array.from({ length: TOPICS }, (_, index) => event[`topic${index + 1}`]).filter((topic) => topic !== null);

/** Puts links to the events before and after in the same contract beside the heading. */
async function neighbours({ id, contract_id: contract }, place, signal) {
  if (contract === "") return;
  const to = async (order, text, rel) => {
    const [event] = await ask(`rest/events/by-contract/${contract}?limit=1&cursor=${id}&order=${order}`, { signal });
    return event ? having(link(`event/${event.id}`, text), { rel }) : null;
  };
  const links = await Promise.all([to("desc", "← before it", "prev"), to("asc", "after it →", "next")]);
  put(place, links, make("span", "note", links.some(Boolean) ? "in this contract" : "the only event of this contract"));
}

async function load(view, id, body, heading, beside) {
  const [event] = await ask(`rest/events/by-id/${id}?decoded=true`, { signal: view.signal });
  if (event === undefined) {
    put(body, make("p", "", `No event has the id ${id}: none was stored with it yet, or retention has removed it. `,
      link("", "The newest events"), "."));
    return;
  }
  // Which asset is genuine depends on the network.
  await beginning;
  heading.textContent = wordsOf(event);
  setTitle(`${wordsOf(event)} · event ${id}`);
  put(body, shown(event));
  watchRetention(view, event.ledger);
  const part = (title, ...content) => view.part(title, (place) => { put(place, ...content); });
  if (event.decoded.params !== null) part("Parameters", parametersOf(event));
  part("Topics and data", topicsOf(event));
  part("Raw values", rawTopics(event).map((topic, index) => raw(`Topic ${index + 1}`, topic)), raw("Data", event.data));
  // That the neighbours cannot be told does not concern the event.
  neighbours(event, beside, view.signal).catch(() => {});
}

export function open(view) {
  const id = Number(view.params.id);
  if (!/^[0-9]{1,16}$/.test(view.params.id) || !Number.isSafeInteger(id) || id === 0) {
    view.heading("No such event");
    view.add(make("p", "", "The id of an event is a whole number from 1 on."));
    return;
  }
  const beside = having(make("nav", "neighbours"), { "aria-label": "Events before and after" });
  const named = make("span", "note", "event ", copyable(String(id), "the id of the event"));
  const heading = view.heading(`Event ${id}`, named, beside);
  view.part("Where it is", (body) => load(view, id, body, heading, beside));
}
