import { EventSource } from "eventsource";
import createClient from "openapi-fetch";
import type { components, paths } from "./api";

export type ContractEvent = components["schemas"]["Event"];

/** A client of one service. `base` ends in `/rest`. */
export function connect(base: string, token: string) {
  const headers = { Authorization: `Bearer ${token}` };
  const client = createClient<paths>({ baseUrl: base, headers });

  /**
   * Calls `onEvent` for each event of a contract after the id `last`, until the result is called. `onState` gets a
   * text while there is no stream, and an empty one when there is.
   */
  function follow(
    contract: string,
    last: number,
    onEvent: (event: ContractEvent) => void,
    onState: (text: string) => void,
  ): () => void {
    let pause = 1000;
    let timer: ReturnType<typeof setTimeout>;
    let source: EventSource;

    function open() {
      const url = `${base}/events/stream?contract_id=${contract}&decoded=true&last_event_id=${last}`;
      source = new EventSource(url, {
        fetch: (input, init) => fetch(input, { ...init, headers: { ...init.headers, ...headers } }),
      });
      source.onopen = () => {
        pause = 1000;
        onState("");
      };
      source.onmessage = (message) => {
        last = Number(message.lastEventId);
        onEvent(JSON.parse(message.data));
      };
      // By itself, an `EventSource` opens again after a broken connection, but not after the 502 of a proxy.
      source.onerror = (error) => {
        source.close();
        if (error.code === 401) return onState("The token is not valid any more.");
        onState(`Disconnected. ${error.message ?? ""}`);
        timer = setTimeout(open, pause);
        pause = Math.min(2 * pause, 30_000);
      };
    }

    open();
    return () => {
      clearTimeout(timer);
      source.close();
    };
  }

  return { client, follow };
}
