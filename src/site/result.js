// Why a transaction failed: its error, and the codes in its result (XDR TransactionResult).

import { addressLink } from "./address.js";
import { make } from "./dom.js";

const INNER_FAILED = -13;
const INNER_SUCCEEDED = 1;
const FAILED = -1;

/** Codes of a whole transaction (XDR TransactionResultCode). */
const TRANSACTION = {
  "-2": "txTOO_EARLY", "-3": "txTOO_LATE", "-4": "txMISSING_OPERATION", "-5": "txBAD_SEQ", "-6": "txBAD_AUTH",
  "-7": "txINSUFFICIENT_BALANCE", "-8": "txNO_ACCOUNT", "-9": "txINSUFFICIENT_FEE", "-10": "txBAD_AUTH_EXTRA",
  "-11": "txINTERNAL_ERROR", "-12": "txNOT_SUPPORTED", "-14": "txBAD_SPONSORSHIP", "-15": "txBAD_MIN_SEQ_AGE_OR_GAP",
  "-16": "txMALFORMED", "-17": "txSOROBAN_INVALID",
};

/** Codes of any operation, before it is applied (XDR OperationResultCode). */
const OPERATION = {
  "-1": "opBAD_AUTH", "-2": "opNO_ACCOUNT", "-3": "opNOT_SUPPORTED", "-4": "opTOO_MANY_SUBENTRIES",
  "-5": "opEXCEEDED_WORK_LIMIT", "-6": "opTOO_MANY_SPONSORING",
};

const LIMIT = "Its resource limits were exceeded";
const REFUNDABLE = "Its fee for rent and events was too low";

/** Codes of the three operations of smart contracts, by the type of the operation. */
const CONTRACT = {
  24: {
    "-1": "It was malformed", "-2": "The contract ended with an error or trapped. Which error is not known: "
      + "no stored diagnostic event tells it. Simulating the same call (simulateTransaction) may.", "-3": LIMIT,
    "-4": "An entry that it needs is archived", "-5": REFUNDABLE,
  },
  25: { "-1": "It was malformed", "-2": LIMIT, "-3": REFUNDABLE },
  26: { "-1": "It was malformed", "-2": LIMIT, "-3": REFUNDABLE },
};

/** Returns why a transaction failed, as its result says; null if that cannot be read. */
function reasonOf(base64) {
  try {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    // The fee comes first. A fee bump has the inner transaction's hash and result behind its own code.
    const isBump = [INNER_FAILED, INNER_SUCCEEDED].includes(view.getInt32(8));
    const at = isBump ? 52 : 8;
    const code = view.getInt32(at);
    if (code !== FAILED) return TRANSACTION[code] ?? `code ${code}`;
    const operation = view.getInt32(at + 8);
    if (operation !== 0) return OPERATION[operation] ?? `code ${operation}`;
    const [type, result] = [view.getInt32(at + 12), view.getInt32(at + 16)];
    return CONTRACT[type]?.[result] ?? `code ${result} of operation type ${type}`;
  } catch {
    return null;
  }
}

/** Creates the error of a failed call: its name and the contract that returned it, or else what the result says. */
export function failureOf({ decoded, result_xdr: result }) {
  const error = decoded?.error ?? null;
  if (error === null) return make("span", "", reasonOf(result) ?? "Not known");
  const named = error.name === undefined ? `Error ${error.code}` : `${error.name} (error ${error.code})`;
  return make("span", "", make("b", "bad", named), " of ", addressLink(error.contract));
}
