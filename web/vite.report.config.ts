import { preact } from "@preact/preset-vite";
import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

/** The page of `swell sim report`: all of it in one file, into which the results are written. */
export default defineConfig({
  plugins: [preact(), viteSingleFile()],
  publicDir: false,
  build: {
    outDir: "../src/swell/web/static",
    emptyOutDir: false, // the dashboard is there already
    target: "es2022",
    rollupOptions: { input: "report.html" },
  },
});
