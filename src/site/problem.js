// Errors as sentences for the reader.

import { NoToken, Refused, Stale, Unreachable, session } from "./api.js";
import { paragraph } from "./dom.js";
import { needsToken } from "./token.js";

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const ended = (text) => /[.!?]$/.test(text) ? text : `${text}.`;

/** What sentences of the service say of routes and requests, and how the same is said in the site. */
const PLACES = [
  // The reader has written into fields.
  [/^the request body is malformed: /, ""],
  [/^parameter 'at' is /, "the ledger is "],
  [/^parameter 'name' is /, "the name is "],
  [/see \/rest\/retroshade\/list for yours/, "see the page Programs for yours"],
  [/see \/rest\/webhooks\/list for those/, "see the page Webhooks for those"],
  [/see \/rest\/webhooks\/\d+\/deliveries/, "see the list of its deliveries"],
  [/ with POST \/rest\/webhooks\/\d+\/enable/, ""],
  [/\(POST \/rest\/retroshade\/subscribe\)/, "(on the page Programs)"],
  [/^'project_name' (?=')/, ""],
  [/^'end_previous' is not given, and /, ""],
  [/, or give it to end them all/, ", or check the box that ends them at once"],
  [/give 'replace' to replace it by a new version, or choose another name/,
    "choose another name, or replace it by a new version on the page Programs"],
];
const inSite = (text) => PLACES.reduce((said, [route, place]) => said.replace(route, place), text);

/** Returns an error as one sentence; null for an error that is of no interest. */
export function sentence(error) {
  if (error instanceof Stale) return null;
  if (error instanceof NoToken) return "This needs a token.";
  if (error instanceof Unreachable) return "The service does not answer. This is tried again while the page is open.";
  if (!(error instanceof Refused)) return `This page has an error: ${error.message}.`;
  if (error.status === 401) return ended(`The token is no longer accepted: ${error.message}`);
  if (error.status === 403) return ended(`The token does not permit this: ${error.message}`);
  return ended(capital(inSite(error.message)));
}

/** Returns an element that tells an error; null for an error that is of no interest. */
export function problem(error) {
  if (error instanceof Stale) return null;
  if (error instanceof NoToken || (error.status === 401 && session.token !== "")) return needsToken(sentence(error));
  if (!(error instanceof Refused || error instanceof Unreachable)) console.error(error);
  return paragraph("problem", sentence(error));
}
