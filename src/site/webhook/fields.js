// The fields of a subscription. Those that do not fit its choices are hidden, and say nothing.

import { check, contractsArea, wordsOf } from "../actions.js";
import { ask } from "../api.js";
import { choice, field, having, input, make, prose, put } from "../dom.js";
import { words } from "../format.js";
import { CHAIN } from "../sql/names.js";
import { painting } from "../sql/paint.js";

/** What a subscription may be told of, in few words. */
const ON = words({
  event: "events", upgrade: "other code (upgrade)", storage: "changed data (storage)",
  ttl: "entries about to expire (ttl)", failed_call: "failed calls (failed_call)", silence: "no events (silence)",
});

const OF_EVENTS = ["topic1", "topic2", "topic3", "topic4", "address", "where"];
const OF_KEYS = ["key_name", "key", "durability"];

/** Fields that each of them takes. */
const TAKES = words({
  event: [...OF_EVENTS, "include_backfill"], upgrade: ["include_backfill"],
  storage: [...OF_KEYS, "where", "include_backfill"], ttl: ["within", "entries", ...OF_KEYS],
  failed_call: ["functions", "include_backfill"], silence: ["within", ...OF_EVENTS],
});
/** Fields that choices hide. */
const HIDDEN = new Set([...Object.values(TAKES).flat(), "contract_ids", "project", "message"]);

const DAY = " A day has some 17,280 ledgers.";

/** When each is sent, and what a message may say of it. */
const WHEN = words({
  event: ["Each matching event is sent.", "`{amount}`, `{pair.token[1]}`: a parameter, or a part of it; `{name}`, "
    + "`{topics[2]}`, `{tx}`; `{amount|units}`: in the unit of the token"],
  upgrade: ["A contract gets other code, by itself or because what it refers to names other code.",
    "`{old.wasm}`, `{new.wasm}`, `{interface.functions.added}`"],
  storage: ["Data is created, removed, restored, or gets another value; each item of the instance's map by itself.",
    "`{key_name}`, `{key}`, `{change}`, `{previous}`, `{value}`"],
  ttl: [`A live entry ends in fewer than so many ledgers: once, until it is extended.${DAY}`,
    "`{entry}`, `{key}`, `{live_until}`, `{ledgers_left}`"],
  failed_call: ["A failed transaction calls a contract.", "`{function}`, `{args}`, `{error}`"],
  silence: [`No matching event for so many ledgers: once, until the next.${DAY}`, "`{since_ledger}`"],
});

const SECRET = " It is a secret: later, only its host and last four characters are shown.";
/** Formats, with their names and endpoints. */
const FORMATS = words({
  service: ["JSON for a service", "That of a program."],
  slack: ["a message in Slack", `That of an incoming webhook.${SECRET}`, "https://hooks.slack.com/services/…"],
  discord: ["a message in Discord", `That of a webhook of the channel.${SECRET}`,
    "https://discord.com/api/webhooks/ID/TOKEN"],
  telegram: ["a message in Telegram", `That of a bot, with the chat.${SECRET}`,
    "https://api.telegram.org/botTOKEN/sendMessage?chat_id=CHAT"],
  text: ["a message as plain text", "Whatever takes text."],
});

const entry = (label, name, attributes) => field(label, input({ name, ...attributes }), "grow");
const area = (name, attributes) => having(make("textarea"),
  { name, rows: 2, maxlength: 4096, spellcheck: "false", autocomplete: "off", autocapitalize: "off", ...attributes });
const describedBy = (element, id) => having(element, { "aria-describedby": id });

/** Creates the choice of contracts: a list, or those of a project. */
function whose() {
  const names = having(make("datalist"), { id: "webhook-projects" });
  const project = entry("Name of the project; later contracts of it count, too", "project",
    { list: names.id, maxlength: 200 });
  const of = choice([["contract_ids", "these contracts"], ["project", "a project's contracts"]]);
  const offer = async () => {
    // Without the right to read them, it has to be typed.
    const tables = await ask("rest/retroshade/tables").catch(() => []);
    const all = new Set(tables.map(({ project_name_plain: name }) => name).filter((name) => name && name !== CHAIN));
    put(names, [...all].map((value) => having(make("option"), { value })));
  };
  project.addEventListener("focusin", offer, { once: true });
  return { of, row: make("div", "row", field("Of", of),
    field("Contracts, with spaces between them; a webhook for each", contractsArea({ name: "contract_ids" }), "grow"),
    project, names,
    entry("Address in any topic; without contracts, of all contracts", "address", { placeholder: "G… or C…" })) };
}

/** Creates the choice of kinds of entries. */
const entries = () => having(make("div", "row webhook-group", make("span", "note", "Entries"),
  check("entries", "instance", true, "instance"), check("entries", "its code", true, "code"),
  check("entries", "data", false, "data")), { role: "group", "aria-label": "Entries", "data-group": "" });

/** Creates the field of the condition. `draw` marks a place in it. */
function condition() {
  const text = area("where",
    { id: "webhook-where", class: "sql-text webhook-where", "aria-describedby": "webhook-conditions" });
  const { element, draw } = painting(text);
  const label = having(make("label", "", "Condition, if it matters"), { for: text.id });
  const whole = make("div", "grow", label, make("div", "sql-editor", element, text));
  return { text, draw, element: having(whole, { "data-group": "" }) };
}

const TOPICS = ["transfer", "G…", "u64:5", "string:a b"];

export class Fields {
  /** `given` are values of the page's address for some of them. */
  constructor(given) {
    const { of, row } = whose();
    [this.of, this.where] = [of, condition()];
    this.on = having(choice(Object.entries(ON)), { name: "on" });
    this.format = having(choice(Object.entries(FORMATS).map(([name, [text]]) => [name, text])), { name: "format" });
    [this.when, this.endpoints, this.conditions, this.says] = ["when", "endpoints", "conditions", "says"]
      .map((it) => having(make("p", "note"), { id: `webhook-${it}` }));
    describedBy(this.on, this.when.id);
    this.endpoint = describedBy(
      input({ name: "webhook_endpoint", type: "url", required: "", maxlength: 2048 }), this.endpoints.id);
    this.message = describedBy(area("message"), this.says.id);
    this.element = make("div", "", this.rows(row));
    for (const it of this.element.querySelectorAll("input:not([type=checkbox]), textarea")) {
      it.defaultValue = given.get(it.name === "contract_ids" ? "contract" : it.name) ?? "";
    }
    of.lastChild.defaultSelected = given.has("project");
    this.element.addEventListener("change", () => this.draw());
    this.draw();
  }

  rows(whoseRow) {
    this.within = make("span");
    return [
      make("div", "row", field("Told of", this.on), field("As", this.format),
        field("Endpoint, a URL", this.endpoint, "grow")),
      this.when, this.endpoints, whoseRow,
      make("div", "row", TOPICS.map((placeholder, index) =>
        entry(`Topic ${index + 1}, if it matters`, `topic${index + 1}`, { placeholder }))),
      make("div", "row",
        make("label", "", this.within, input({ name: "within", type: "number", min: 1, max: 1000000 })),
        entries()),
      make("div", "row", entry("Name of the key, if it matters", "key_name", { placeholder: "Balance", maxlength: 32 }),
        entry("The whole key, if it matters", "key", { placeholder: "Admin, u64:5, instance" }),
        field("Durability", having(choice(["", "persistent", "temporary", "instance"].map((it) => [it, it || "any"])),
          { name: "durability" }))),
      make("div", "row", entry("Functions, with spaces between them; without any, all", "functions",
        { placeholder: "swap deposit" })),
      make("div", "row", this.where.element),
      this.conditions,
      make("div", "row", field("Message", this.message, "grow")), this.says,
      make("div", "row", entry("Secret; one is made if this is empty", "webhook_secret",
        { type: "password", maxlength: 512, autocomplete: "new-password" }),
      check("include_backfill", "Also older ledgers when they are backfilled")),
    ];
  }

  /** Shows what the choices take. */
  draw() {
    const { on: { value: on }, format: { value: format }, of: { value: of } } = this;
    const takes = new Set([...TAKES[on], of, ...format === "service" ? [] : ["message"]]);
    if (on === "ttl" && !this.element.querySelector("[value=data]").checked) OF_KEYS.forEach((it) => takes.delete(it));
    for (const it of this.element.querySelectorAll("[name]")) {
      if (!HIDDEN.has(it.name)) continue;
      it.disabled = !takes.has(it.name);
      (it.closest("[data-group]") ?? it.closest("label")).hidden = it.disabled;
    }
    for (const row of this.element.querySelectorAll(":scope > .row")) {
      row.hidden = row.querySelector(":enabled") === null;
    }
    const [, endpoints, placeholder = "https://…"] = FORMATS[format];
    const [when, says] = WHEN[on];
    put(this.when, when);
    put(this.endpoints, "Endpoint: ", prose(endpoints));
    this.endpoint.placeholder = placeholder;
    having(this.message, { required: format === "service" ? null : "", placeholder: on === "event"
      ? "{from|short} sent {amount|units} to {to|short}: {link}" : "{contract_id|short}: ledger {ledger}" });
    put(this.says, prose(`What may stand in it: ${says}; \`{contract_id}\`, \`{ledger}\`; `
      + "`{to|short}`: shortened; `{link}`: the page here; `{{`, `}}`: braces. Values become plain text."));
    this.says.hidden = format === "service";
    this.conditions.hidden = this.where.text.disabled;
    put(this.conditions, prose("As in SQL: `and`, `or`, `not`, `= != < <= > >=`, `in`, `like`, `is null`, `+ - *`. "
      + (on === "storage" ? "Names: `key_name`, `key_args`, `value`, `previous`, `change`." : "Names: parameters, or "
        + "`contract_id`, `name`, `topics`, `ledger`, `tx`. Events whose declaration lacks a name do not match.")));
    having(this.where.text, { placeholder: on === "storage" ? "change = 'updated' and value < 100"
      : "amount >= 1000000000 and sep0011_asset like 'USDC:%'" });
    put(this.within, on === "ttl" ? "Ledgers before its end" : "Ledgers without an event");
  }
}

/** Returns the request that these fields make: they have the names of its members. */
export function said(whole) {
  const given = new FormData(whole);
  const body = {};
  for (const [name, value] of given) {
    const text = name === "webhook_secret" ? value : value.trim();
    if (text === "") continue;
    if (name === "include_backfill") body[name] = true;
    else if (name === "entries") body[name] = given.getAll(name);
    else if (name === "within") body[name] = Number(text);
    else body[name] = ["contract_ids", "functions"].includes(name) ? wordsOf(text) : text;
  }
  return body;
}
