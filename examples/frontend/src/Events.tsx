import { useEffect, useState } from "react";
import { connect, type ContractEvent } from "./orrery";

const SHOWN = 20;

export function Events(props: { base: string; token: string; contract: string }) {
  const { base, token, contract } = props;
  const [events, setEvents] = useState<ContractEvent[]>([]);
  const [problem, setProblem] = useState("");

  useEffect(() => {
    const { client, follow } = connect(base, token);
    let isOver = false;
    let stop = () => {};
    (async () => {
      const { data, error } = await client.GET("/events/by-contract/{contract_id}", {
        params: { path: { contract_id: contract }, query: { limit: SHOWN, decoded: true } },
      });
      if (isOver) return;
      if (error) return setProblem(error.error);
      setEvents(data);
      stop = follow(contract, data[0]?.id ?? 0, (event) =>
        setEvents((shown) => [event, ...shown].slice(0, SHOWN)),
      );
    })().catch((reason) => setProblem(String(reason)));
    return () => {
      isOver = true;
      stop();
    };
  }, [base, token, contract]);

  if (problem) return <p role="alert">{problem}</p>;
  return (
    <ul>
      {events.map((event) => (
        <li key={event.id}>
          {event.ledger} {event.decoded?.name} {JSON.stringify(event.decoded?.params)}
        </li>
      ))}
    </ul>
  );
}
