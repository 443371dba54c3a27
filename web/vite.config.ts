import { preact } from "@preact/preset-vite";
import { defineConfig, loadEnv } from "vite";

export default defineConfig(({ mode }) => ({
  plugins: [preact()],
  build: {
    outDir: "../src/swell/web/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy allows files of our own, nothing inline
    modulePreload: { polyfill: false },
  },
  // `SWELL_URL=http://127.0.0.1:PORT npm run dev` works on the page against a daemon that runs.
  server: { proxy: { "/v1": { target: loadEnv(mode, ".", "SWELL_").SWELL_URL ?? "", changeOrigin: true } } },
}));
