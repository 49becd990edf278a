// Reads events with the official client's `contract.Spec`, and compares each value with the one that
// this project gives. Arguments: a directory with the client, and a file of cases in JSON. Prints how
// many events were equal, how many only one side reads, and the differences.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [directory, file] = process.argv.slice(2);
const { contract } = createRequire(join(directory, 'index.js'))('@stellar/stellar-sdk');
const counts = {};
const others = [];
const count = (what) => { counts[what] = (counts[what] ?? 0) + 1; };

function compare(ours, theirs, at) {
  const differ = () => { throw new Error(`${at}: ${JSON.stringify(ours)} is not ${String(theirs)}`); };
  if (theirs === undefined || theirs === null) {
    if (ours !== null) differ();
  } else if (typeof theirs === 'bigint') {
    if (ours !== String(theirs)) differ();
  } else if (theirs instanceof Uint8Array) {
    if (ours !== Buffer.from(theirs).toString('hex')) differ();
  } else if (Array.isArray(theirs)) {
    // The client writes every map as pairs.
    const items = Array.isArray(ours) ? ours : Object.entries(ours ?? differ());
    if (items.length !== theirs.length) differ();
    theirs.forEach((item, i) => compare(items[i], item, `${at}[${i}]`));
  } else if (typeof theirs === 'object') {
    if (typeof ours !== 'object' || ours === null) differ();
    const tagged = typeof theirs.tag === 'string' && Array.isArray(ours.values);
    const whole = tagged ? { tag: theirs.tag, values: theirs.values ?? [] } : theirs;
    const keys = Object.keys(whole);
    if (keys.length !== Object.keys(ours).length) differ();
    keys.forEach((key) => compare(ours[key], whole[key], `${at}.${key}`));
  } else if (ours !== theirs) {
    differ();
  }
}

for (const { spec, topics, data, ours } of JSON.parse(readFileSync(file))) {
  const theirs = new contract.Spec(spec).parseEvent(topics, data);
  if (ours === null) {
    count(theirs ? 'the client converts what is not of the declared type' : 'neither');
    continue;
  }
  try {
    if (!theirs) throw new Error('the client has none');
    if (theirs.name !== ours.name) throw new Error(`${theirs.name} is not ${ours.name}`);
    compare(ours.params, { ...theirs.data }, '');
    count('equal');
  } catch (error) {
    others.push(`${error.message} ${JSON.stringify({ spec, topics, data })}`);
  }
}
console.log(JSON.stringify({ counts, others }));
