import { EventSource } from "eventsource";
import createClient from "openapi-fetch";
import type { components, paths } from "./api";

export type ContractEvent = components["schemas"]["Event"];

/** A client of one service. `base` ends in `/rest`. */
export function connect(base: string, token: string) {
  const headers = { Authorization: `Bearer ${token}` };
  const client = createClient<paths>({ baseUrl: base, headers });

  /** Calls `onEvent` for each event of a contract after the id `after`, until the result is called. */
  function follow(contract: string, after: number, onEvent: (event: ContractEvent) => void): () => void {
    const url = `${base}/events/stream?contract=${contract}&decoded=true`;
    const source = new EventSource(url, {
      // After an interruption, `init` has the last id that was received, which goes before `after`.
      fetch: (input, init) =>
        fetch(input, { ...init, headers: { "Last-Event-ID": String(after), ...init.headers, ...headers } }),
    });
    source.onmessage = (message) => onEvent(JSON.parse(message.data));
    return () => source.close();
  }

  return { client, follow };
}
