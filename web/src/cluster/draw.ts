/** The picture of the cluster on a canvas: lanes of GPUs over time. Pure drawing: everything comes as arguments. */
import { standing } from "../model";
import { COLOURS } from "../theme";
import {
  type Block,
  firstReaching,
  type Group,
  type Layout,
  type Mark,
  type Picture,
  useOver,
} from "./blocks";

export interface View {
  from: number; // seconds
  to: number;
  scroll: number; // pixels
}

export interface Ink {
  text: string;
  faint: string;
  line: string;
  lane: string;
  panel: string;
  accent: string;
  good: string;
  warn: string;
  bad: string;
  dark: boolean;
}

export interface Scene {
  ctx: CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D;
  width: number;
  height: number;
  layout: Layout;
  picture: Picture;
  view: View;
  ink: Ink;
  now: number;
  axis: Axis;
  hover: { job: number; mark: Mark | null } | null;
}

/** How times are written. */
export interface Axis {
  zone_s: number; // added to times before they are rounded
  tick: (t: number, step: number) => string;
  now: (t: number) => string; // beside the line at now; empty: no line
}

export const wallClock = (): Axis => ({
  zone_s: new Date().getTimezoneOffset() * 60,
  tick,
  now: () => "now",
});

/** Time since the beginning of a simulation. */
export const elapsed: Axis = { zone_s: 0, tick: (t) => since(t), now: (t) => since(t) };

function since(t: number): string {
  if (t < 600) return `${Math.round(t)} s`;
  if (t < 2 * 3600) return `${Math.round(t / 60)} min`;
  if (t < 72 * 3600) return `${Number((t / 3600).toFixed(1))} h`;
  return `${Number((t / 86400).toFixed(1))} d`;
}

export const GUTTER = 118;
export const TOP = 84; // time and use, above the lanes
const USE_H = 44;
const FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif";
const NARROW = 3; // pixels: below this a block is a plain stroke

export const xOf = (scene: { view: View; width: number }, t: number): number =>
  GUTTER + ((t - scene.view.from) / (scene.view.to - scene.view.from)) * (scene.width - GUTTER);

/** All of it, anew. */
export function draw(scene: Scene): void {
  scene.ctx.clearRect(0, 0, scene.width, scene.height);
  drawTimes(scene);
  drawFrame(scene);
}

/**
 * The same while time is being moved: what depends on time is drawn once, twice as wide as can be seen, and then only
 * shifted, until the view leaves it or something else changes.
 */
export class Panner {
  private tile: OffscreenCanvas | null = null;
  private from = 0; // time at its left
  private known: unknown[] = [];

  draw(scene: Scene, ratio: number): void {
    const { ctx, view, width, height, now } = scene;
    const span = view.to - view.from;
    const scale = (width - GUTTER) / span;
    const key = [scene.picture, scene.layout, scene.ink, scene.hover?.job, scene.hover?.mark, view.scroll];
    key.push(width, height, ratio, Math.round(span * 1000), Math.floor(now / Math.max(1, 1 / scale)));
    const inside = view.from >= this.from && view.to <= this.from + 2 * span;
    if (!this.tile || !inside || key.some((part, i) => part !== this.known[i])) {
      this.known = key;
      this.render(scene, span, ratio);
    }
    ctx.clearRect(0, 0, width, height);
    const left = Math.round((GUTTER + (view.from - this.from) * scale) * ratio);
    const [w, h] = [(width - GUTTER) * ratio, height * ratio];
    ctx.drawImage(this.tile as OffscreenCanvas, left, 0, w, h, GUTTER, 0, width - GUTTER, height);
    drawFrame(scene);
  }

  private render(scene: Scene, span: number, ratio: number): void {
    const width = GUTTER + 2 * (scene.width - GUTTER);
    const [w, h] = [Math.round(width * ratio), Math.round(scene.height * ratio)];
    if (this.tile?.width !== w || this.tile?.height !== h) this.tile = new OffscreenCanvas(w, h);
    const ctx = this.tile.getContext("2d") as OffscreenCanvasRenderingContext2D;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, scene.height);
    this.from = scene.view.from - span / 2;
    const view = { from: this.from, to: this.from + 2 * span, scroll: scene.view.scroll };
    drawTimes({ ...scene, ctx, width, view });
  }
}

/** What moves with time. */
function drawTimes(scene: Scene): void {
  const { ctx, width, height, ink } = scene;
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, TOP, width, height - TOP);
  ctx.clip();
  drawLanes(scene);
  drawTicks(scene, TOP, height, false);
  ctx.beginPath();
  ctx.rect(GUTTER, TOP, width - GUTTER, height - TOP);
  ctx.clip();
  drawBlocks(scene);
  drawMarks(scene);
  ctx.restore();
  ctx.fillStyle = ink.panel;
  ctx.fillRect(0, 0, width, TOP);
  drawUse(scene);
  drawTicks(scene, 0, TOP, true);
}

/** What stays where it is. */
function drawFrame(scene: Scene): void {
  const { ctx, ink } = scene;
  ctx.fillStyle = ink.panel;
  ctx.fillRect(0, 0, GUTTER, scene.height);
  drawGutter(scene);
  ctx.fillStyle = ink.faint;
  ctx.font = `11px ${FONT}`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.fillText("in use", GUTTER - 10, TOP - 6 - USE_H / 2 - 7);
  ctx.fillText(`of ${scene.layout.lanes.length} GPUs`, GUTTER - 10, TOP - 6 - USE_H / 2 + 7);
  drawNow(scene);
}

const laneY = (scene: Scene, lane: number): number =>
  TOP + (scene.layout.lanes[lane]?.y ?? 0) - scene.view.scroll;

function drawLanes(scene: Scene): void {
  const { ctx, layout, width, ink } = scene;
  ctx.fillStyle = ink.lane;
  for (let i = 0; i < layout.lanes.length; i++) {
    const y = laneY(scene, i);
    if (y > scene.height || y + layout.lane_h < TOP) continue;
    ctx.fillRect(GUTTER, y + 1, width - GUTTER, layout.lane_h - 2);
  }
}

function drawGutter(scene: Scene): void {
  const { ctx, layout, ink, height } = scene;
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, TOP, scene.width, height - TOP);
  ctx.clip();
  ctx.textBaseline = "middle";
  for (const group of layout.groups) {
    const y = TOP + group.y - scene.view.scroll;
    if (y > height || y + layout.head_h + group.count * layout.lane_h < TOP) continue;
    const { machine } = group;
    if (layout.head_h === 0) {
      drawSide(scene, group, y);
      continue;
    }
    ctx.font = `600 12px ${FONT}`;
    ctx.fillStyle = ink.text;
    ctx.textAlign = "left";
    ctx.fillText(machine.name, 10, y + layout.head_h / 2 + 1);
    const state = standing(machine);
    if (state !== "ready") {
      ctx.fillStyle = state === "lost" ? ink.bad : ink.warn;
      const at = 16 + ctx.measureText(machine.name).width;
      ctx.font = `600 11px ${FONT}`;
      ctx.fillText(machine.why ? `${state}: ${machine.why}` : state, at, y + layout.head_h / 2 + 1);
    }
    ctx.font = `11px ${FONT}`;
    ctx.textAlign = "right";
    for (let i = 0; i < group.count; i++) {
      const lane = layout.lanes[group.first + i];
      if (!lane || (layout.lane_h < 11 && i % 2)) continue;
      ctx.fillStyle = ink.faint;
      const label = lane.type === "gpu" ? `slot ${lane.gpu}` : `${lane.type} ${lane.gpu}`;
      ctx.fillText(label, GUTTER - 10, TOP + lane.y - scene.view.scroll + layout.lane_h / 2 + 0.5);
    }
  }
  ctx.restore();
}

/** A machine whose lanes are too thin for labels: its name beside them. */
function drawSide({ ctx, layout, ink }: Scene, group: Group, y: number): void {
  ctx.font = `11px ${FONT}`;
  ctx.textAlign = "right";
  ctx.fillStyle = ink.faint;
  const middle = y + (group.count * layout.lane_h) / 2;
  ctx.fillText(`${group.machine.name} ×${group.count}`, GUTTER - 10, middle);
}

function drawBlocks(scene: Scene): void {
  const { picture, view, layout, hover, now } = scene;
  const scale = (scene.width - GUTTER) / (view.to - view.from);
  const thin: number[][] = COLOURS.map(() => []);
  const wide: Block[] = [];
  const end = new Int32Array(layout.lanes.length).fill(-1); // how far each lane is painted: what is hidden is left out
  for (let i = firstReaching(picture, view.from); i < picture.blocks.length; i++) {
    const block = picture.blocks[i] as Block;
    if (block.t0 >= view.to || block.t0 > now) break;
    if (block.t1 <= view.from) continue;
    const y = laneY(scene, block.lane);
    if (y > scene.height || y + block.lanes * layout.lane_h < TOP) continue;
    const x0 = GUTTER + (block.t0 - view.from) * scale;
    const x1 = GUTTER + (Math.min(block.t1, now) - view.from) * scale;
    if (x1 - x0 >= NARROW) wide.push(block);
    else if (x1 > (end[block.lane] as number)) {
      const left = Math.max(x0, end[block.lane] as number);
      const w = Math.max(1, x1 - left);
      (thin[block.colour] as number[]).push(left, y, w, block.lanes, block.span.job);
      end[block.lane] = left + w;
    }
  }
  drawThin(scene, thin);
  for (const block of wide) drawWide(scene, block, scale, hover !== null && hover.job !== block.span.job);
}

function drawThin({ ctx, layout, hover }: Scene, thin: number[][]): void {
  thin.forEach((rects, colour) => {
    if (rects.length === 0) return;
    ctx.fillStyle = COLOURS[colour] as string;
    for (let i = 0; i < rects.length; i += 5) {
      if (hover) ctx.globalAlpha = hover.job === rects[i + 4] ? 1 : 0.25;
      const [x, y, w, n] = [
        rects[i] as number,
        rects[i + 1] as number,
        rects[i + 2] as number,
        rects[i + 3] as number,
      ];
      ctx.fillRect(x, y + 1, w, n * layout.lane_h - 2);
    }
    ctx.globalAlpha = 1;
  });
}

function drawWide(scene: Scene, block: Block, scale: number, dim: boolean): void {
  const { ctx, view, layout, now } = scene;
  const { span } = block;
  const x = GUTTER + (block.t0 - view.from) * scale;
  const right = GUTTER + (Math.min(block.t1, now) - view.from) * scale;
  const [y, h] = [laneY(scene, block.lane) + 1, block.lanes * layout.lane_h - 2];
  const colour = COLOURS[block.colour] as string;
  ctx.globalAlpha = dim ? 0.22 : 1;
  const started = span.started_s ? Math.max(x, GUTTER + (span.started_s - view.from) * scale) : right;
  const radius = Math.min(5, h / 2, (right - x) / 2);
  ctx.fillStyle = colour;
  ctx.beginPath();
  ctx.roundRect(x, y, right - x, h, radius);
  ctx.fill();
  if (started > x + 1) veil(scene, x, y, Math.min(right, started) - x, h, "rgba(255,255,255,0.45)");
  if (span.stop_s && span.stop_s < now) {
    const from = Math.max(x, GUTTER + (span.stop_s - view.from) * scale);
    if (right - from > 1) veil(scene, from, y, right - from, h, "rgba(10,14,24,0.28)");
  }
  if (block.t1 > now) {
    ctx.fillStyle = scene.ink.dark ? "rgba(255,255,255,0.9)" : "rgba(15,23,42,0.75)";
    ctx.fillRect(right - 2, y, 2, h);
  }
  label(scene, block, Math.max(x, GUTTER), y, right, h);
  ctx.globalAlpha = 1;
}

/** Starting is paler, stopping darker: the time that a change costs can be seen. */
function veil({ ctx }: Scene, x: number, y: number, w: number, h: number, colour: string): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, w, h);
  ctx.clip();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 2.5;
  ctx.beginPath();
  for (let at = x - h; at < x + w; at += 6) {
    ctx.moveTo(at, y + h);
    ctx.lineTo(at + h, y);
  }
  ctx.stroke();
  ctx.restore();
}

function label({ ctx }: Scene, block: Block, x: number, y: number, right: number, h: number): void {
  const room = right - x - 12;
  if (room < 22 || h < 10) return;
  const size = Math.min(13, Math.max(10, h * 0.5));
  ctx.font = `600 ${size}px ${FONT}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.fillStyle = "#0b1526";
  const gpus = block.span.where.reduce((sum, [, list]) => sum + list.length, 0);
  const texts = [`${block.span.name}  ×${gpus}`, block.span.name];
  const id = `#${block.span.job}`;
  if (room < SHORTEST && ctx.measureText(id).width <= room) texts.push(id);
  const text =
    texts.find((one) => ctx.measureText(one).width <= room) ?? shortened(ctx, block.span.name, room);
  if (text) ctx.fillText(text, x + 7, y + h / 2 + 0.5);
}

const SHORTEST = 80; // pixels for the beginning of a name; with less room its number says more

function shortened(ctx: Scene["ctx"], name: string, room: number): string {
  if (room < SHORTEST) return "";
  const width = ctx.measureText(name).width;
  return `${name.slice(0, Math.max(1, Math.floor((name.length * (room - 12)) / width)))}…`;
}

const SIGN = { grow: "▲", shrink: "▼", preempt: "✕", move: "⇄", fail: "!" } as const;

export const markColour = (ink: Ink, kind: Mark["kind"]): string =>
  kind === "grow" ? ink.good : kind === "shrink" || kind === "move" ? ink.warn : ink.bad;

function drawMarks(scene: Scene): void {
  const { ctx, picture, view, ink, hover, now } = scene;
  const last = new Map<number, number>();
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (const mark of picture.marks) {
    if (mark.t < view.from || mark.t > Math.min(view.to, now)) continue;
    const [x, y] = [xOf(scene, mark.t), laneY(scene, mark.lane) + 1];
    if (x - (last.get(mark.lane) ?? -99) < 15 || y < TOP - 10 || y > scene.height) continue; // would cover another
    last.set(mark.lane, x);
    ctx.globalAlpha = hover && hover.job !== mark.span.job ? 0.25 : 1;
    ctx.beginPath();
    ctx.arc(x, y + 1, hover?.mark === mark ? 9 : 7, 0, 2 * Math.PI);
    ctx.fillStyle = markColour(ink, mark.kind);
    ctx.fill();
    ctx.lineWidth = 1.5;
    ctx.strokeStyle = ink.panel;
    ctx.stroke();
    ctx.fillStyle = ink.dark ? "#0b1526" : "#ffffff";
    ctx.font = `700 ${mark.kind === "grow" || mark.kind === "shrink" ? 8 : 9}px ${FONT}`;
    ctx.fillText(SIGN[mark.kind], x, y + 1.5);
  }
  ctx.globalAlpha = 1;
}

function drawUse(scene: Scene): void {
  const { ctx, width, view, ink, layout, picture, now } = scene;
  const total = Math.max(1, layout.lanes.length);
  const steps = Math.max(1, Math.min(400, Math.floor((width - GUTTER) / 2)));
  const used = useOver(picture, view.from, view.to, now, steps);
  const [base, step] = [TOP - 6, (width - GUTTER) / steps];
  const gradient = ctx.createLinearGradient(0, base - USE_H, 0, base);
  gradient.addColorStop(0, ink.accent);
  gradient.addColorStop(1, ink.dark ? "rgba(56,150,255,0.12)" : "rgba(15,111,255,0.10)");
  ctx.fillStyle = gradient;
  ctx.globalAlpha = 0.75;
  ctx.beginPath();
  ctx.moveTo(GUTTER, base);
  for (let i = 0; i < steps; i++) {
    const top = base - USE_H * Math.min(1, (used[i] as number) / total);
    ctx.lineTo(GUTTER + i * step, top);
    ctx.lineTo(GUTTER + (i + 1) * step, top);
  }
  ctx.lineTo(width, base);
  ctx.closePath();
  ctx.fill();
  ctx.globalAlpha = 1;
  ctx.strokeStyle = ink.line;
  ctx.lineWidth = 1;
  ctx.strokeRect(GUTTER + 0.5, base - USE_H + 0.5, width - GUTTER - 1, USE_H);
}

const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
];

function drawTicks(scene: Scene, top: number, bottom: number, labels: boolean): void {
  const { ctx, view, width, ink } = scene;
  const span = view.to - view.from;
  const step = STEPS.find((one) => (one / span) * (width - GUTTER) >= 90) ?? 604800;
  const zone = scene.axis.zone_s;
  const first = Math.ceil((view.from - zone) / step) * step + zone;
  ctx.strokeStyle = ink.line;
  ctx.lineWidth = 1;
  ctx.font = `11px ${FONT}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "center";
  for (let t = first; t <= view.to; t += step) {
    const x = Math.round(xOf(scene, t)) + 0.5;
    if (x < GUTTER) continue;
    ctx.globalAlpha = 0.7;
    ctx.beginPath();
    ctx.moveTo(x, labels ? TOP - USE_H - 10 : top);
    ctx.lineTo(x, bottom);
    ctx.stroke();
    ctx.globalAlpha = 1;
    if (labels && x > GUTTER + 20 && x < width - 24) {
      ctx.fillStyle = ink.faint;
      ctx.fillText(scene.axis.tick(t, step), x, 14);
    }
  }
}

function tick(t: number, step: number): string {
  const at = new Date(t * 1000);
  const day = at.toLocaleDateString([], { month: "short", day: "numeric" });
  if (step >= 86400) return day;
  const midnight = at.getHours() + at.getMinutes() + at.getSeconds() === 0;
  if (midnight) return day;
  return at.toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    ...(step < 60 ? { second: "2-digit" as const } : {}),
  });
}

function drawNow(scene: Scene): void {
  const { ctx, height, ink, now, view } = scene;
  const text = scene.axis.now(now);
  if (now < view.from || now > view.to || !text) return;
  const x = Math.round(xOf(scene, now)) + 0.5;
  ctx.strokeStyle = ink.accent;
  ctx.lineWidth = 1.5;
  ctx.setLineDash([4, 3]);
  ctx.beginPath();
  ctx.moveTo(x, 35);
  ctx.lineTo(x, height);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.fillStyle = ink.accent;
  ctx.font = `600 11px ${FONT}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  const half = ctx.measureText(text).width / 2 + 4;
  ctx.fillText(text, Math.max(GUTTER + half, Math.min(x, scene.width - half)), 28);
}

/** What is under the pointer. */
export function hit(
  scene: Omit<Scene, "ctx" | "ink" | "axis">,
  px: number,
  py: number,
): { block: Block | null; mark: Mark | null } {
  const { picture, view, layout, now } = scene;
  const top = (lane: number): number => TOP + (layout.lanes[lane]?.y ?? 0) - view.scroll;
  for (const mark of picture.marks) {
    if (mark.t < view.from || mark.t > Math.min(view.to, now)) continue;
    if (Math.hypot(xOf(scene, mark.t) - px, top(mark.lane) + 2 - py) <= 9) return { block: null, mark };
  }
  if (px < GUTTER || py < TOP) return { block: null, mark: null };
  const t = view.from + ((px - GUTTER) / (scene.width - GUTTER)) * (view.to - view.from);
  const slack = (view.to - view.from) / (scene.width - GUTTER);
  for (let i = firstReaching(picture, t - slack); i < picture.blocks.length; i++) {
    const block = picture.blocks[i] as Block;
    if (block.t0 > Math.min(t + slack, now)) break;
    const y = top(block.lane);
    if (Math.min(block.t1, now) >= t - slack && py >= y && py < y + block.lanes * layout.lane_h)
      return { block, mark: null };
  }
  return { block: null, mark: null };
}
