import { useEffect, useState } from "react";
import { connect, type ContractEvent } from "./orrery";

const SHOWN = 20;

export function Events(props: { base: string; token: string; contract: string }) {
  const { base, token, contract } = props;
  const [events, setEvents] = useState<ContractEvent[]>();
  const [problem, setProblem] = useState("");
  const [state, setState] = useState("");
  const [attempt, setAttempt] = useState(1);

  useEffect(() => {
    const { client, follow } = connect(base, token);
    let isOver = false;
    let stop = () => {};
    setEvents(undefined);
    setProblem("");
    (async () => {
      const { data, error, response } = await client.GET("/events/by-contract/{contract_id}", {
        params: { path: { contract_id: contract }, query: { limit: SHOWN, decoded: true } },
      });
      if (isOver) return;
      // The answer of a proxy, such as 502, has no `error`.
      if (!data) return setProblem(error?.error ?? `The service does not answer (${response.status}).`);
      setEvents(data);
      const add = (event: ContractEvent) => setEvents((shown = []) => [event, ...shown].slice(0, SHOWN));
      stop = follow(contract, data[0]?.id ?? 0, add, setState);
    })().catch((reason) => isOver || setProblem(String(reason)));
    return () => {
      isOver = true;
      stop();
    };
  }, [base, token, contract, attempt]);

  if (problem) {
    return (
      <p role="alert">
        {problem} <button onClick={() => setAttempt(attempt + 1)}>Try again</button>
      </p>
    );
  }
  if (!events) return <p>Loading…</p>;
  return (
    <>
      {state && <p role="status">{state}</p>}
      {events.length === 0 && <p>No events yet.</p>}
      <ul>
        {events.map((event) => (
          <li key={event.id}>
            {event.ledger} {event.decoded?.name} {JSON.stringify(event.decoded?.params)}
          </li>
        ))}
      </ul>
    </>
  );
}
