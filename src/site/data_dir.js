// The data directory of the service, for the commands that pages show.

/** What commands look for when nothing is said. */
const USUAL = "orrery-data";

const told = document.documentElement.dataset.dir;

/** The directory, where the service tells it; otherwise a word in its place. */
export const DATA_DIR = told || "DIRECTORY";

/** The flag that commands need, with a blank before it; empty where they find the directory by themselves. */
export const DATA_DIR_FLAG = told && told !== USUAL ? ` --data-dir ${told}` : "";
