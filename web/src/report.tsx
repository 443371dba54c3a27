/** The page of `swell sim report`: results that are in the file itself, drawn as the dashboard draws them. */
import { render } from "preact";
import { ComparisonView } from "./sim/comparison";
import type { Comparison } from "./sim/model";
import "./styles.css";
import { theme, toggleTheme } from "./theme";

function Report({ results }: { results: Comparison[] }) {
  return (
    <>
      <header class="top">
        <span class="brand">Swell</span>
        <span class="faint">Simulation report</span>
        <div class="spacer" />
        <button type="button" class="quiet" onClick={toggleTheme} aria-label="Switch between light and dark">
          {theme.value === "dark" ? "☀" : "☾"}
        </button>
      </header>
      <main id="content">
        <section class="page">
          <h1>What the policies did</h1>
          {results.map((one) => (
            <ComparisonView key={one.workload} comparison={one} />
          ))}
        </section>
      </main>
    </>
  );
}

const text = document.getElementById("results")?.textContent ?? "null";
render(
  <Report results={(JSON.parse(text) as Comparison[] | null) ?? []} />,
  document.getElementById("app") as HTMLElement,
);
