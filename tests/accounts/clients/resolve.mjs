// Adds `.js` to imports of `./…` without it: bundlers resolve such imports of the package, but Node does not.
import { register } from "node:module";

const hooks = `
export async function resolve(specifier, context, next) {
  const isBare = specifier.startsWith("./") && !specifier.endsWith(".js");
  return next(isBare ? specifier + ".js" : specifier, context);
}`;
register("data:text/javascript," + encodeURIComponent(hooks));
