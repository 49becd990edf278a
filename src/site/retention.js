// Tells when retention removes what an open page shows.

import { having, make, put } from "./dom.js";
import { onHealth } from "./health.js";

/** Adds a notice below the page's heading as soon as the events of this ledger, which the page shows, are removed. */
export function watchRetention(view, ledger) {
  const place = having(make("p", "warning"), { role: "status", hidden: "" });
  view.root.querySelector(".heading").after(place);
  let wasStored = false;
  onHealth(({ oldest_ledger: oldest = 0 }) => {
    if (ledger >= oldest) wasStored = true;
    else if (wasStored && place.hidden) {
      put(place, `Meanwhile, retention has removed the events of ledger ${ledger}: those from ledger ${oldest} on are `
        + "stored. What is shown here was read before.").hidden = false;
    }
  }, view.signal);
}
