// Modules of the package name each other without an extension, as bundlers allow.
import { register } from "node:module";

const hooks = `
export async function resolve(specifier, context, next) {
  const isBare = specifier.startsWith("./") && !specifier.endsWith(".js");
  return next(isBare ? specifier + ".js" : specifier, context);
}`;
register("data:text/javascript," + encodeURIComponent(hooks));
