// The panels: health, lag, covered ledgers, events per ledger, consumers, disk; with a token, programs and webhooks.

import { ask, at, bytes, complain, count, draw, duration, make, moment, number, prose, session, short, table } from "./common.js";
import { plot } from "./plot.js";

/** Maximum number of subscriptions that are shown: the deliveries of each take one request. */
const MAX_RATED = 20;
/** Maximum number of rows in a panel's table. The panel states how many more there are. */
const MAX_ROWS = 40;

/** Age of the latest ledger, in seconds, from which on it is said: the source may have ended long ago. */
const OLD_SECONDS = 3600;

export function health(record) {
  const state = at("state");
  const lag = record.lag_ledgers;
  state.className = `state ${record.service === "up" ? "up" : "down"}`;
  const sentence = record.service !== "up" ? "Something needs attention: see below."
    : lag === undefined ? "Everything works."
    : lag <= 1 && record.lag_seconds >= OLD_SECONDS
      ? `Everything works; the source has nothing newer than ${Math.floor(record.lag_seconds / 3600)} h ago.`
    : lag <= 1 ? "Everything works, and nothing is behind."
    : `Everything works; ${lag} ledgers behind the network.`;
  state.replaceChildren(make("strong", "", record.service), " ", make("span", "", sentence));
  for (const name of ["service_latest_ledger", "attested_ledger", "network_latest_ledger", "lag_ledgers", "oldest_ledger", "version"]) {
    at(name).textContent = record[name] ?? "–";
  }
  at("lag_seconds").textContent = record.lag_seconds === undefined ? "–" : `${record.lag_seconds} s`;
  at("network").textContent = record.network === "custom" ? record.network_passphrase : record.network;
  at("warning").textContent = record.warning ?? "";
  at("warning").hidden = record.warning === undefined;
  const component = ([name, { status, reason, detail }]) => make("li", status === "up" ? "up" : "down",
    make("b", "", name), " ", make("i", "", status), " ", make("span", "", reason ?? detail ?? ""));
  at("components").replaceChildren(...Object.entries(record.components).map(component));
  document.title = `${record.service === "up" ? "" : "▼ "}Orrery · ${at("network").textContent}`;
}

/** Shows that the health on the page is no longer known. */
export function outdated() {
  const state = at("state");
  state.className = "state unknown";
  state.replaceChildren(make("strong", "", "unknown"), " ", make("span", "", "The service does not answer."));
  document.title = `? Orrery · ${at("network").textContent}`;
}

export function status(record) {
  lag(record);
  density(record.ledgers);
  consumers(record.consumers);
  disk(record);
  contracts(record.contracts);
}

function lag({ history }) {
  if (history.lag_seconds.every((value) => value === null)) {
    at("lag").replaceChildren(make("p", "note", "No source is followed, so there is no lag."));
    return;
  }
  const points = history.at.map((when, index) => [when * 1000, history.lag_seconds[index]]);
  const ledgers = new Map(history.at.map((when, index) => [when * 1000, history.lag_ledgers[index]]));
  plot(at("lag"), {
    points, kind: "line", overTime: true, whole: true, fromZero: true,
    label: "Age of the latest stored ledger in seconds, over the last day",
    say: ([when, seconds]) => {
      const behind = ledgers.get(when);
      const far = behind === null ? "" : `, ${count(behind, "ledger")} behind`;
      return `${moment(when)}: the latest ledger was ${seconds} s old${far}`;
    },
  });
}

function density(ledgers) {
  if (ledgers.length === 0) {
    at("density").replaceChildren(make("p", "note", "No ledger is stored yet."));
    return;
  }
  const told = new Map(ledgers.map((ledger) => [ledger.ledger, ledger]));
  plot(at("density"), {
    points: ledgers.map(({ ledger, events }) => [ledger, events]), kind: "bars", whole: true,
    label: `Stored events of the newest ${ledgers.length} ledgers`,
    say: ([ledger, events]) => `Ledger ${ledger}, ${told.get(ledger).closed_at}: ${count(events, "event")}, `
      + count(told.get(ledger).transactions, "smart-contract transaction"),
  });
}

function consumers(list) {
  const row = ({ name, count, active, lag_ledgers, lost_ledgers, rebuilding }) => [
    name.replaceAll("_", " ") + (count > 1 ? ` (${count})` : ""),
    rebuilding ? "rebuilding" : active === 0 ? "idle" : lag_ledgers === 0 ? ["current", "good"] : "behind",
    [number(lag_ledgers), "number"],
    [number(lost_ledgers), lost_ledgers > 0 ? "number bad" : "number"],
  ];
  at("consumers").replaceChildren(
    table(["Consumer", "State", ["Behind", "number"], ["Lost", "number"]], list.map(row)),
    make("p", "note", "Numbers of ledgers: those not processed yet, and those not received in full."));
}

function disk(record) {
  const { store } = record;
  const largest = Object.entries(store.parts).sort(([, a], [, b]) => b - a);
  const shown = largest.slice(0, 6).filter(([, size]) => size > 0);
  const rest = largest.slice(shown.length).reduce((sum, [, size]) => sum + size, 0);
  const parts = [...shown, ["all others", rest]].map(([name, size]) =>
    [name.replaceAll("_", " "), meter(size, store.bytes), [bytes(size), "number"]]);
  const facts = [
    ["Store", bytes(store.bytes)],
    ["Free on that disk", store.disk_free_bytes === undefined ? "–" : bytes(store.disk_free_bytes)],
    ["Events", number(store.events)],
    ["Transactions", number(store.transactions)],
    ["Version, store format", `${record.version}, ${record.store_format}`],
    ["Protocol", record.protocol_version ?? "–"],
    ["Running for", duration(record.uptime_seconds)],
  ];
  const figures = make("dl", "figures", ...facts.map(([name, value]) =>
    make("div", "", make("dt", "", name), make("dd", "", value))));
  at("disk").replaceChildren(figures, table(["Part", "Share", ["Size", "number"]], parts),
    make("p", "note", "The tables of programs are not included; the size of each program's rows is below."));
}

function contracts(sizes) {
  if (sizes === undefined || sizes.largest.length === 0) {
    at("contracts").replaceChildren(make("p", "note", "Nothing is known yet."));
    return;
  }
  const row = ({ contract_id, share, bytes: size }) =>
    [short(contract_id), meter(share, 1), [`${(100 * share).toFixed(1)} %`, "number"], [sizes.bytes > 0 ? bytes(size) : "–", "number"]];
  const looked = sizes.sampled_ledgers < sizes.of_ledgers
    ? `Estimated from ${number(sizes.sampled_ledgers)} of ${number(sizes.of_ledgers)} ledgers, spread evenly: records of contracts share blocks on the disk. `
    : "";
  const whole = sizes.bytes > 0 ? bytes(sizes.bytes) : "which are in the write-ahead log alone";
  const others = sizes.others > 0 ? ` ${count(sizes.others, "other contract")} were found.` : "";
  at("contracts").replaceChildren(
    table(["Contract", "Of all", ["Share", "number"], ["Size", "number"]], sizes.largest.map(row)),
    make("p", "note", `${looked}Of all events and transactions with their indexes, ${whole}.${others}`));
}

function meter(part, whole) {
  const width = whole > 0 ? 100 * part / whole : 0;
  return draw("svg", { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { class: "whole", width: 100, height: 8 }), draw("rect", { class: "part", width, height: 8 }));
}

export function completeness({ ranges, gaps }) {
  if (ranges.length === 0) {
    at("ranges").replaceChildren(make("p", "note", "No ledger is stored yet."));
    return;
  }
  const [first, last] = [ranges[0].first_ledger, ranges.at(-1).last_ledger];
  const scale = 1000 / (last - first + 1);
  const label = `${count(ranges.length, "range")} with ${count(gaps.length, "gap")} from ledger ${first} to ${last}`;
  const bar = draw("svg", { class: "ranges-bar", viewBox: "0 0 1000 16", preserveAspectRatio: "none", role: "img", "aria-label": label },
    draw("rect", { class: "whole", width: 1000, height: 16 }));
  for (const range of ranges) {
    const width = Math.max(2, (range.last_ledger - range.first_ledger + 1) * scale);
    bar.append(draw("rect", { class: "covered", x: Math.min(998, (range.first_ledger - first) * scale), width, height: 16 }));
  }
  const sentence = gaps.length === 0 ? "Stored without a gap." : `${count(gaps.length, "gap")}: \`orrery backfill --from … --to …\` fills ${gaps.length === 1 ? "it" : "them"}.`;
  const all = [
    ...ranges.map((range) => [range, ["stored", "good"], [number(range.events), "number"]]),
    ...gaps.map((gap) => [gap, ["missing", "bad"], ["", "number"]]),
  ].sort(([a], [b]) => b.first_ledger - a.first_ledger);
  const rows = all.slice(0, MAX_ROWS).map(([range, ...more]) => [
    `${range.first_ledger} – ${range.last_ledger}`,
    [number(range.last_ledger - range.first_ledger + 1), "number"],
    ...more,
  ]);
  const more = all.length - rows.length;
  at("ranges").replaceChildren(prose(gaps.length === 0 ? "note" : "warning", sentence), bar,
    table(["Ledgers", ["Count", "number"], "State", ["Events", "number"]], rows),
    make("p", "note", more > 0 ? `${more} more are at rest/completeness.` : ""));
}

const needsToken = (place) => place.replaceChildren(make("p", "note", "Needs a token."));

export async function programs() {
  const place = at("programs");
  if (session.token === "") return needsToken(place);
  try {
    const list = await ask("rest/retroshade/list", { withToken: true });
    if (list.length === 0) {
      place.replaceChildren(prose("note", "You have no programs: `orrery deploy` deploys one."));
      return;
    }
    const rows = [];
    for (const program of list.slice(0, MAX_ROWS)) rows.push(await programRow(program));
    place.replaceChildren(
      table(["Program", "State", ["Runs", "number"], ["Errors", "number"], ["ms", "number"], ["Behind", "number"], ["Rows", "number"]],
        rows.map(({ cells }) => cells)),
      ...rows.filter(({ problem }) => problem).map(({ problem }) => make("p", "problem", problem)),
      prose("note", "Runs and errors are those of each program's newest 500 runs; `ms` is the average duration of a run."
        + (list.length > rows.length ? ` ${list.length - rows.length} more are not shown: \`orrery list\`.` : "")),
    );
  } catch (error) {
    complain(place, error);
  }
}

async function programRow(program) {
  const told = await ask(`rest/retroshade/${program.id}/status`, { withToken: true });
  const state = told.running ? ["running", "good"] : program.stopped_because ? ["stopped", "bad"] : "paused";
  const cells = [
    told.project_name, state, [number(told.total_executions), "number"],
    [number(told.total_errors), told.total_errors > 0 ? "number bad" : "number"],
    [told.avg_execution_ms, "number"], [number(told.lag_ledgers ?? 0), "number"], [bytes(told.row_bytes ?? 0), "number"],
  ];
  const why = program.stopped_because ?? told.last_error_message;
  return { cells, problem: why ? `${told.project_name}: ${why}` : "" };
}

export async function webhooks() {
  const place = at("webhooks");
  if (session.token === "") return needsToken(place);
  try {
    const list = await ask("rest/webhooks/list", { withToken: true });
    if (list.length === 0) {
      place.replaceChildren(prose("note", "You have no webhooks: `orrery webhooks new` creates one."));
      return;
    }
    const rows = [];
    for (const hook of list.slice(0, MAX_RATED)) rows.push(await webhookRow(hook));
    const more = list.length - rows.length;
    place.replaceChildren(
      table(["Endpoint", "Contract", "State", ["Arrived", "number"], ["Waiting", "number"]], rows.map(({ cells }) => cells)),
      ...rows.filter(({ problem }) => problem).map(({ problem }) => make("p", "problem", problem)),
      prose("note", "`Arrived` is the delivered share of the newest 100 deliveries that have ended."
        + (more > 0 ? ` ${more} more subscriptions are not shown: \`orrery webhooks list\`.` : "")),
    );
  } catch (error) {
    complain(place, error);
  }
}

async function webhookRow(hook) {
  const deliveries = await ask(`rest/webhooks/${hook.id}/deliveries?limit=100`, { withToken: true });
  const arrived = deliveries.filter(({ status }) => status === "delivered").length;
  const ended = arrived + deliveries.filter(({ status }) => status === "dead").length;
  const rate = ended === 0 ? "–" : `${Math.floor(100 * arrived / ended)} % of ${ended}`;
  const state = !hook.enabled ? ["disabled", "bad"] : hook.failing_since ? ["failing", "bad"] : ["works", "good"];
  const cells = [
    short(hook.webhook_endpoint, 16), hook.contract_id === "" ? "all" : short(hook.contract_id), state,
    [rate, arrived < ended ? "number bad" : "number"], [number(hook.deliveries_waiting), "number"],
  ];
  const why = !hook.enabled ? hook.disabled_reason : hook.failing_since ? `no attempt has succeeded since ${hook.failing_since}` : null;
  return { cells, problem: why ? `${hook.webhook_endpoint}: ${why}` : "" };
}
