// The title of the window: the state of the service, the page, and the network.

const parts = { mark: "", page: "", network: "" };

function set(changed) {
  const { mark, page, network } = Object.assign(parts, changed);
  document.title = mark + [page, "Orrery", network].filter(Boolean).join(" · ");
}

export const setTitle = (page) => set({ page });

/** Sets the mark of the service's state and the name of the network. */
export const setState = (mark, network) => set({ mark, network });
