/** Light and dark, and one colour for each job. */
import { effect, signal } from "@preact/signals";

export type Theme = "light" | "dark";
const system = matchMedia("(prefers-color-scheme: dark)");

export const chosen = signal<Theme | "">(kept());
export const theme = signal<Theme>("light");

/** A page from a file may have no storage. */
function kept(): Theme | "" {
  try {
    return (localStorage.getItem("swell-theme") as Theme | null) ?? "";
  } catch {
    return "";
  }
}

const decide = (): void => {
  theme.value = chosen.value || (system.matches ? "dark" : "light");
};
system.addEventListener("change", decide);
effect(decide);
effect(() => {
  document.documentElement.dataset.theme = theme.value;
});

export function toggleTheme(): void {
  chosen.value = theme.value === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("swell-theme", chosen.value);
  } catch {
    // it holds until the page is closed
  }
}

/* Neighbouring numbers are far apart on the wheel; three tiers of lightness tell the rounds apart. Lightness is even
   within a tier, so that dark text is readable on all of them in both themes. */
const HUES = [250, 45, 160, 345, 95, 295, 20, 195, 125, 320, 70, 225];
const TIERS = [
  [0.76, 0.125],
  [0.84, 0.095],
  [0.69, 0.135],
];
export const COLOURS = TIERS.flatMap(([light, chroma]) =>
  HUES.map((hue) => `oklch(${light} ${chroma} ${hue})`),
);

/** An index into COLOURS. */
export const colourIndex = (job: number): number => (job - 1) % COLOURS.length;
export const colourOf = (job: number): string => COLOURS[colourIndex(job)] as string;

const LINES = {
  light: ["#0b62d6", "#b3480b", "#0a7a55", "#8a3ab9", "#be185d", "#0e7490", "#6b6f00", "#475569"],
  dark: ["#6cb2ff", "#ffb072", "#4fd6a6", "#d79bff", "#f9a8d4", "#67e8f9", "#d9d24b", "#b6c2d9"],
};
/** Of the lines of a chart; readable on the page's ground. */
export const lineColour = (i: number): string => LINES[theme.value][i % LINES.light.length] as string;
