// Tells when retention removes what an open page shows.

import { having, make, put } from "./dom.js";
import { latest, onHealth } from "./health.js";

/** Adds a notice below the page's heading as soon as the events of this ledger, which the page shows, are removed. */
export function watchRetention(view, ledger) {
  const isStored = (record) => record?.oldest_ledger === undefined || ledger >= record.oldest_ledger;
  if (!isStored(latest)) return;
  const place = having(make("p", "warning"), { role: "status", hidden: "" });
  view.root.querySelector(".heading").after(place);
  onHealth((record) => {
    if (isStored(record) || !place.hidden) return;
    put(place, `Meanwhile, retention has removed the events of ledger ${ledger}: those from ledger ${record.oldest_ledger} on are stored. What is shown here was read before.`);
    place.hidden = false;
  }, view.signal);
}
