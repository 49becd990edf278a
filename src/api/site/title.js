// The title of the window: the state of the service, the page, and the network.

const parts = { mark: "", page: "", network: "" };

function show() {
  const { mark, page, network } = parts;
  document.title = [`${mark}${page || "Orrery"}`, page ? "Orrery" : "", network].filter(Boolean).join(" · ");
}

export function setTitle(page) {
  parts.page = page;
  show();
}

/** Sets the mark of the service's state and the name of the network. */
export function setState(mark, network) {
  Object.assign(parts, { mark, network });
  show();
}
