// Commands with which a reader checks the stored ledgers, or proves the events of a contract to others.

import { pathOf, to } from "./address.js";
import { command } from "./copy.js";
import { field, having, input, make, paragraph } from "./dom.js";

/** Networks whose validators are built in. */
const KNOWN = ["mainnet", "testnet", "futurenet"];
/** Number of ledgers that a certificate covers if the reader does not choose. */
const LEDGERS = 10;
/** Where a service listens if nothing else is set, and commands look for one. */
const USUAL = "http://127.0.0.1:8484/rest";

/** Quotes text for a shell. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Returns the three commands for a contract and a range of ledgers of a network. */
function commands({ network, network_passphrase: passphrase }, { contract, from, to: last }) {
  const base = to("rest") === USUAL ? "" : `--base ${to("rest")} `;
  const validators = KNOWN.includes(network) ? "" : " --validators trust.toml";
  const other = network === "mainnet" ? "" : ` --passphrase ${quoted(passphrase)}`;
  return [
    `orrery prove ${base}--contract ${contract} --from ${from} --to ${last} --out events.cert${validators}`,
    `orrery prove --check events.cert --contract ${contract}${validators}`,
    `python3 examples/check_certificate.py events.cert --validators trust.toml${other}`,
  ];
}

/** Creates the panel, from `rest/completeness`. `contract` is the one that is proposed; it may be missing. */
export function checks(record, contract = "") {
  const range = record.ranges.findLast(({ attested_ledger: attested }) => attested !== undefined);
  const last = range?.attested_ledger;
  const fields = {
    contract: input({ placeholder: "C…", maxlength: 56, value: contract }),
    from: input({ inputmode: "numeric", maxlength: 10, value: last === undefined ? "" : Math.max(range.first_ledger, last - LEDGERS + 1) }),
    to: input({ inputmode: "numeric", maxlength: 10, value: last ?? "" }),
  };
  const said = having(make("p", "problem"), { role: "status" });
  const lines = ["that writes a certificate", "that checks it", "that checks it with another program"].map((what) => command("", `the command ${what}`));
  const fill = () => {
    const given = Object.fromEntries(Object.entries(fields).map(([name, { value }]) => [name, value.trim()]));
    const isContract = pathOf(given.contract)?.startsWith("contract/") ?? false;
    const [from, end] = [given.from, given.to].map((text) => /^[1-9][0-9]{0,9}$/.test(text) ? Number(text) : null);
    said.textContent = given.contract !== "" && !isContract ? "A contract's address has 56 characters and begins with C."
      : given.from !== "" && from === null || given.to !== "" && end === null ? "A ledger is a number."
      : from > end && end !== null ? "The first ledger is after the last one."
      : range !== undefined && end !== null && (end > last || from < range.first_ledger) ? `Attested are the ledgers from ${range.first_ledger} to ${last}${record.ranges.length > 1 ? ", of the newest range with attested ledgers" : ""}.` : "";
    const texts = commands(record, { contract: isContract ? given.contract : "C…", from: from ?? "A", to: end ?? "B" });
    lines.forEach((line, index) => line.set(texts[index]));
  };
  for (const one of Object.values(fields)) one.addEventListener("input", fill);
  fill();
  return [
    make("h3", "", "Everything that is stored"),
    paragraph("note", "Reads everything back from disk, recomputes the digests from the stored events, and checks the stored raw ledgers against their headers. On the service's machine, while the service is stopped:"),
    command("orrery verify --data-dir DIRECTORY", "the command that verifies everything"),
    make("h3", "", "The events of one contract, for anybody"),
    paragraph("note", "A certificate proves that these, and only these, are the events of a contract's calls in a range of attested ledgers, down to the signatures of the validators. It can be written on any machine that reaches this service. The service must be up to date with its network, and still have the raw ledgers."),
    make("div", "row", field("Contract", fields.contract, "grow"), field("First ledger", fields.from), field("Last ledger", fields.to)),
    said, lines[0],
    paragraph("note", `To check it, neither this service nor a network is needed.${KNOWN.includes(record.network) ? "" : " `trust.toml` names the validators that you trust, as the setting `[trust]` does (`docs/trust.md`)."}`),
    lines[1],
    paragraph("note", `Or with a second program, which shares no code with Orrery.${KNOWN.includes(record.network) ? " It needs a file `trust.toml` that names the validators, as the setting `[trust]` does (`docs/trust.md`)." : ""}`),
    lines[2],
  ];
}
