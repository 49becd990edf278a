import { defineConfig } from "vite";

// During development, the page and the service have one origin.
export default defineConfig({
  server: {
    proxy: {
      "/rest": {
        target: process.env.ORRERY ?? "http://127.0.0.1:8484",
        // By itself, Vite's proxy leaves the browser's connection open when the service is killed.
        configure: (proxy) =>
          proxy.on("proxyRes", (answer, _request, response) => answer.on("error", () => response.destroy())),
      },
    },
  },
});
