// The page that is open: its heading and title, its parts, and what is repeated while it is open.

import { Stale, Unreachable } from "./api.js";
import { having, make, put } from "./dom.js";
import { whenAnswering } from "./health.js";
import { problem } from "./problem.js";
import { setTitle } from "./title.js";

let ids = 0;

export class View {
  /**
   * `params` are the variable parts of the page's path, `query` the parameters of its address (`URLSearchParams`).
   * `signal` is aborted when the page is left: requests of the page are sent with it. `go` opens another page, as that
   * of the router does.
   */
  constructor(root, params, query, signal, go) {
    Object.assign(this, { root, params, query, signal, go });
    /** First loads of all parts, for restoring the scroll position. */
    this.loads = [];
    this.filled = new WeakSet();
    /** What was told of an error in a body, by body. */
    this.told = new WeakMap();
  }

  /** Adds the heading of the page, and sets the title of the window. Nodes `beside` it stand in the same line. */
  heading(text, ...beside) {
    const heading = having(make("h1", "", text), { tabindex: -1 });
    this.add(make("div", "heading", heading, ...beside));
    setTitle(text);
    return heading;
  }

  /** Adds nodes to the page. */
  add(...children) {
    this.root.append(...children.flat());
  }

  /**
   * Adds a section with a title, and fills its body by calling `load(body)`, which may be asynchronous. An error is
   * told in the body. With `every`, that is repeated so many milliseconds after the previous call ended.
   */
  part(title, load, { every = 0, beside = [] } = {}) {
    ids += 1;
    const id = `part-${ids}`;
    const body = make("div", "body");
    const head = make("div", "heading", having(make("h2", "", title), { id }), ...beside);
    const section = having(make("section", "", head, body), { "aria-labelledby": id });
    this.add(section);
    const reload = () => this.fill(body, load, every > 0);
    this.loads.push(every > 0 ? this.every(every, reload) : reload());
    return { section, body, reload };
  }

  /**
   * Calls `load(body)` and tells an error in the body. When the service does not answer, what has been read before
   * stays, and what has not is read when it answers again; a part that is repeated is read anyway.
   */
  async fill(body, load, isRepeated = false) {
    try {
      await load(body);
      if (!this.signal.aborted) this.filled.add(body);
    } catch (error) {
      if (this.signal.aborted || error instanceof Stale) return;
      if (error instanceof Unreachable && this.filled.has(body)) return;
      this.filled.delete(body);
      // The same error again leaves what is told, so that a token can be typed into it.
      const said = `${error.constructor.name} ${error.status} ${error.message}`;
      const before = this.told.get(body);
      if (isRepeated && before?.said === said && before.shown === body.firstChild) return;
      put(body, problem(error));
      this.told.set(body, { said, shown: body.firstChild });
      if (error instanceof Unreachable && !isRepeated) whenAnswering(() => this.fill(body, load), this.signal);
    }
  }

  /**
   * Calls `work` now, and again so many milliseconds after the previous call ended, while the page is open. Further
   * calls are skipped while the window is hidden. Returns a promise of the first call.
   */
  every(milliseconds, work) {
    const round = async (isFirst) => {
      if (this.signal.aborted) return;
      if (isFirst || !document.hidden) await work();
      if (!this.signal.aborted) setTimeout(round, milliseconds, false);
    };
    return round(true);
  }

  /** Sets parameters of the page's address without opening it again. An empty value or null removes a parameter. */
  setQuery(values) {
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === "") this.query.delete(name);
      else this.query.set(name, value);
    }
    const url = new URL(location.href);
    url.search = this.query;
    history.replaceState(history.state, "", url);
  }
}
