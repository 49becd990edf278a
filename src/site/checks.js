// Commands with which a reader checks the stored ledgers, or proves the events of a contract to others.

import { link, pathOf, to } from "./address.js";
import { command } from "./copy.js";
import { DATA_DIR } from "./data_dir.js";
import { field, having, input, make, note, paragraph, prose } from "./dom.js";

/** Networks whose validators are built in. */
const KNOWN = ["mainnet", "testnet", "futurenet"];
/** Number of ledgers that a certificate covers if the reader does not choose. */
const LEDGERS = 10;
/** Where a service listens if nothing else is set, and commands look for one. */
const USUAL = "http://127.0.0.1:8484/rest";

/** Quotes text for a shell. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Returns the three commands for a contract and a range of ledgers of a network. */
function commands({ network, network_passphrase: passphrase }, contract, from, last) {
  const base = to("rest") === USUAL ? "" : `--base ${to("rest")} `;
  const validators = KNOWN.includes(network) ? "" : " --validators trust.toml";
  const other = network === "mainnet" ? "" : ` --passphrase ${quoted(passphrase)}`;
  return [
    `orrery prove ${base}--contract ${contract} --from ${from} --to ${last} --out events.cert${validators}`,
    `orrery prove --check events.cert --contract ${contract}${validators}`,
    `python3 examples/check_certificate.py events.cert --validators trust.toml${other}`,
  ];
}

const isContract = (text) => pathOf(text)?.startsWith("contract/") ?? false;
const isLedger = (text) => /^[1-9][0-9]{0,9}$/.test(text);

/** Returns what is wrong with the texts of the fields, as a sentence; nothing if they are right, or not there yet. */
function wrong({ contract, from, to: last }, range) {
  if (contract !== "" && !isContract(contract)) return "A contract's address has 56 characters and begins with C.";
  if ([from, last].some((text) => text !== "" && !isLedger(text))) return "A ledger is a number.";
  if (from === "" || last === "") return "";
  if (Number(from) > Number(last)) return "The first ledger is after the last one.";
  if (range === undefined) return "";
  const { first_ledger: first, attested_ledger: attested } = range;
  const isAttested = Number(from) >= first && Number(last) <= attested;
  return isAttested ? "" : `Attested are the ledgers from ${first} to ${attested}.`;
}

/** Creates the fields, and the three commands for what is in them. */
function chosen(record, contract) {
  const range = record.ranges.findLast(({ attested_ledger: attested }) => attested !== undefined);
  const last = range?.attested_ledger;
  const ledger = (value) => input({ inputmode: "numeric", maxlength: 10, value: value ?? "" });
  const fields = {
    contract: input({ placeholder: "C…", maxlength: 56, value: contract }),
    from: ledger(range && Math.max(range.first_ledger, last - LEDGERS + 1)),
    to: ledger(last),
  };
  const said = having(make("p", "problem"), { role: "status" });
  const lines = ["writes a certificate", "checks it", "checks it with another program"]
    .map((what) => command("", `the command that ${what}`));
  const fill = () => {
    const given = Object.fromEntries(Object.entries(fields).map(([name, { value }]) => [name, value.trim()]));
    said.textContent = wrong(given, range);
    const texts = commands(record, isContract(given.contract) ? given.contract : "C…",
      isLedger(given.from) ? given.from : "A", isLedger(given.to) ? given.to : "B");
    lines.forEach((line, index) => line.set(texts[index]));
  };
  for (const one of Object.values(fields)) one.addEventListener("input", fill);
  fill();
  const row = make("div", "row",
    field("Contract", fields.contract, "grow"), field("First ledger", fields.from), field("Last ledger", fields.to));
  return { form: [row, said], lines };
}

/** Creates the panel, from `rest/completeness`. `contract` is the one that is proposed; it may be missing. */
export function checks(record, contract = "") {
  const { form, lines: [prove, check, checkElsewhere] } = chosen(record, contract);
  const isKnown = KNOWN.includes(record.network);
  const trust = [
    ...prose(" `trust.toml` names the validators that you trust, as the setting `[trust]` does; "),
    link("docs/trust", "how to choose them"), ".",
  ];
  return [
    make("h3", "", "Everything that is stored"),
    paragraph("note", "Reads everything back from disk, recomputes the digests, and checks the stored raw ledgers "
      + "against their headers. Stop the service first, and run this on its machine:"),
    command(`orrery verify --data-dir ${DATA_DIR}`, "the command that verifies everything"),
    make("h3", "", "The events of one contract, for anybody"),
    paragraph("note", "A certificate proves that these, and only these, are the events of a contract's calls in a "
      + "range of attested ledgers, down to the signatures of the validators. Any machine that reaches this service "
      + "can write it, while the service is up to date with its network and still has the raw ledgers."),
    ...form, prove,
    note("To check it, neither this service nor a network is needed.", isKnown ? [] : trust), check,
    note("Or with a second program, which shares no code with Orrery.", isKnown ? trust : []),
    checkElsewhere,
  ];
}
