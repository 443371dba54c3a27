/** The colours of the page, for the canvas. */
import { theme } from "../theme";
import type { Ink } from "./draw";

export function inkNow(): Ink {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    text: of("text"),
    faint: of("faint"),
    line: of("line"),
    lane: of("lane"),
    panel: of("panel"),
    accent: of("accent"),
    good: of("good"),
    warn: of("warn"),
    bad: of("bad"),
    dark: theme.value === "dark",
  };
}
