// node receiver.mjs
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const { WEBHOOK_SECRET: secret, PORT: port = 9100 } = process.env;
if (!secret) throw new Error("set WEBHOOK_SECRET to the subscription's secret");

const isSigned = (body, signature) => {
  const expected = createHmac("sha256", secret).update(body).digest();
  const given = Buffer.from(signature ?? "", "hex");
  return given.length === expected.length && timingSafeEqual(given, expected);
};

createServer(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = Buffer.concat(pieces); // the bytes that are signed: do not parse before
  if (!isSigned(body, request.headers["x-service-signature"])) {
    return response.writeHead(401).end();
  }
  const { event } = JSON.parse(body);
  // Delivery is at least once: store this id, or the event's, with the effects, and skip repeats.
  console.log(request.headers["x-service-delivery"], event.contract_id, JSON.stringify(event.body.v0));
  response.writeHead(204).end();
}).listen(port, "127.0.0.1");
