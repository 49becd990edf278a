// The data directory of the service, for the commands that pages show.

/** A path that a shell takes as one word as it is. */
const PLAIN = /^[\w./-]+$/;

/** What commands look for when nothing is said. */
const USUAL = "orrery-data";

const told = globalThis.document?.documentElement.dataset.dir;

/** The directory, where the service tells it; otherwise a word in its place. */
export const DATA_DIR = told ? quoted(told) : "DIRECTORY";

/** The flag that commands need, with a blank before it; empty where they find the directory by themselves. */
export const DATA_DIR_FLAG = told && told !== USUAL ? ` --data-dir ${quoted(told)}` : "";

/** A path as one word for a shell. */
function quoted(path) {
  return PLAIN.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}
