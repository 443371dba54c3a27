/** What programs write for terminals, made readable in a page: bars that redraw themselves, links, colours. */
import Anser from "anser";

export interface Piece {
  text: string;
  style: Record<string, string>;
}

type Rgb = [number, number, number];
const PAPER: Rgb = [11, 19, 34]; // .log .paper
const INK: Rgb = [219, 230, 247];
const READABLE = 4.5; // to 1, as WCAG AA has it

const NOT_COLOURS =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  /\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-ln-~]|\x1b[()][\dA-Z]|\x1b[=>78cDEHM]/g;

/** A line of which "\r" begins anew, as progress bars do, is what was written last. */
export function overwritten(text: string): string {
  if (!text.includes("\r")) return text;
  const end = text.endsWith("\r") ? text.length - 1 : text.length;
  return text.slice(text.lastIndexOf("\r", end - 1) + 1);
}

/** As a terminal would show it in the end, colours still in it. */
export const settled = (text: string): string =>
  overwritten(text).replace(/\r$/, "").replace(NOT_COLOURS, "");

/** A line by its colours; one piece without any is the common case. */
export function pieces(line: string): Piece[] {
  const text = settled(line);
  if (!text.includes("\u001b")) return [{ text, style: {} }];
  return Anser.ansiToJson(text, { json: true, remove_empty: true }).map((part) => {
    const style: Record<string, string> = {};
    if (part.bg) style.backgroundColor = `rgb(${part.bg})`;
    if (part.fg || part.bg) style.color = readable(part.fg, part.bg);
    if (part.decorations.includes("bold")) style.fontWeight = "700";
    if (part.decorations.includes("underline")) style.textDecoration = "underline";
    return { text: part.content, style };
  });
}

/** The text of a line without colours, to be searched. */
export const plain = (line: string): string => {
  const text = settled(line);
  return text.includes("\u001b") ? Anser.ansiToText(text) : text;
};

const known = new Map<string, string>();

/** A colour that can be read on its ground: dark blue on our dark paper could not be. */
function readable(fg: string | null, bg: string | null): string {
  const key = `${fg}/${bg}`;
  const found = known.get(key) ?? lifted(fg ? rgb(fg) : INK, bg ? rgb(bg) : PAPER);
  known.set(key, found);
  return found;
}

function lifted(ink: Rgb, ground: Rgb): string {
  const goal = luminance(ground) < 0.18 ? 255 : 0;
  let part = 0;
  const mixed = (): Rgb => ink.map((one) => Math.round(one + part * (goal - one))) as Rgb;
  while (part < 1 && contrast(mixed(), ground) < READABLE) part += 0.05;
  return `rgb(${mixed().join(", ")})`;
}

const rgb = (text: string): Rgb => text.split(",").map(Number) as Rgb;

function luminance(colour: Rgb): number {
  const [r, g, b] = colour.map((one) => {
    const part = one / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as Rgb;
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: Rgb, b: Rgb): number {
  const [x, y] = [luminance(a) + 0.05, luminance(b) + 0.05];
  return Math.max(x, y) / Math.min(x, y);
}
