import { defineConfig } from "vite";

// During development, the page and the service have one origin.
export default defineConfig({
  server: { proxy: { "/rest": process.env.ORRERY ?? "http://127.0.0.1:8484" } },
});
