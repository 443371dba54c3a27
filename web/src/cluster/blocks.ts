/** Spans become blocks: what one job held on neighbouring GPUs of one machine, as a rectangle of lanes and time. */
import type { Span } from "../model";
import { colourIndex } from "../theme";

export interface Lane {
  node: string;
  gpu: number;
  type: string;
  y: number;
}

/** What the picture needs to know of a machine. */
export interface LaneMachine {
  name: string;
  condition: string;
  contact: string;
  why: string;
  gpus: { index: number; type: string }[];
}

export interface Group {
  machine: LaneMachine;
  y: number;
  first: number;
  count: number;
}

export interface Layout {
  lanes: Lane[];
  groups: Group[];
  lane_h: number;
  head_h: number; // of the line above each machine's lanes; 0: its name is beside them
  height: number;
  index: Map<string, number>; // "node:gpu" -> lane
}

export interface Block {
  span: Span;
  t0: number;
  t1: number; // Infinity while it is held
  lane: number;
  lanes: number;
  colour: number;
}

/** A change worth a sign: what happened, to whom, when, where. */
export interface Mark {
  t: number;
  lane: number;
  kind: "grow" | "shrink" | "preempt" | "move" | "fail";
  span: Span;
  text: string;
}

export interface Picture {
  blocks: Block[]; // by t0
  reach: Float64Array; // the largest t1 of all blocks up to here
  marks: Mark[];
}

export const HEAD_H = 26;

export function layoutOf(machines: LaneMachine[], lane_h: number, head_h = HEAD_H): Layout {
  const layout: Layout = { lanes: [], groups: [], lane_h, head_h, height: 0, index: new Map() };
  let y = 0;
  for (const machine of machines) {
    if (machine.gpus.length === 0) continue;
    layout.groups.push({ machine, y, first: layout.lanes.length, count: machine.gpus.length });
    y += head_h;
    for (const gpu of machine.gpus) {
      layout.index.set(`${machine.name}:${gpu.index}`, layout.lanes.length);
      layout.lanes.push({ node: machine.name, gpu: gpu.index, type: gpu.type, y });
      y += lane_h;
    }
    y += head_h ? 8 : 4;
  }
  layout.height = y;
  return layout;
}

export function pictureOf(spans: Iterable<Span>, layout: Layout): Picture {
  const blocks: Block[] = [];
  const byJob = new Map<number, Span[]>();
  for (const span of spans) {
    for (const [node, gpus] of span.where) addBlocks(blocks, span, node, gpus, layout);
    const known = byJob.get(span.job);
    if (known) known.push(span);
    else byJob.set(span.job, [span]);
  }
  blocks.sort((a, b) => a.t0 - b.t0);
  const reach = new Float64Array(blocks.length);
  let furthest = Number.NEGATIVE_INFINITY;
  blocks.forEach((block, i) => {
    furthest = Math.max(furthest, block.t1);
    reach[i] = furthest;
  });
  const marks = [...byJob.values()].flatMap((own) => marksOf(own, layout)).sort((a, b) => a.t - b.t);
  return { blocks, reach, marks };
}

function addBlocks(blocks: Block[], span: Span, node: string, gpus: number[], layout: Layout): void {
  const lanes = gpus
    .map((gpu) => layout.index.get(`${node}:${gpu}`))
    .filter((lane) => lane !== undefined)
    .sort((a, b) => a - b);
  let start = 0;
  for (let i = 1; i <= lanes.length; i++) {
    if (i < lanes.length && lanes[i] === (lanes[i - 1] as number) + 1) continue;
    blocks.push({
      span,
      t0: span.from_s,
      t1: span.to_s ?? Number.POSITIVE_INFINITY,
      lane: lanes[start] as number,
      lanes: i - start,
      colour: colourIndex(span.job),
    });
    start = i;
  }
}

const sizeOf = (span: Span): number => span.where.reduce((sum, [, gpus]) => sum + gpus.length, 0);
const nodesOf = (span: Span): string =>
  span.where
    .map(([node]) => node)
    .sort()
    .join(", ");

function marksOf(own: Span[], layout: Layout): Mark[] {
  own.sort((a, b) => a.from_s - b.from_s);
  const marks: Mark[] = [];
  own.forEach((span, i) => {
    const lane = topLane(span, layout);
    if (lane < 0) return;
    const before = own[i - 1];
    if (before) {
      const mark = changeOf(before, span, lane);
      if (mark) marks.push(mark);
    }
    const left = endOf(span, lane);
    if (left) marks.push(left);
  });
  return marks;
}

function changeOf(before: Span, span: Span, lane: number): Mark | null {
  const [was, is] = [sizeOf(before), sizeOf(span)];
  const because = span.reason ? `: ${span.reason}` : "";
  if (is > was)
    return { t: span.from_s, lane, kind: "grow", span, text: `grew from ${was} to ${is} GPUs${because}` };
  if (is < was)
    return { t: span.from_s, lane, kind: "shrink", span, text: `shrank from ${was} to ${is} GPUs${because}` };
  if (nodesOf(before) !== nodesOf(span)) {
    const text = `moved from ${nodesOf(before)} to ${nodesOf(span)}${because}`;
    return { t: span.from_s, lane, kind: "move", span, text };
  }
  return null;
}

function endOf(span: Span, lane: number): Mark | null {
  if (!span.to_s) return null;
  if (span.stop === "preempted")
    return {
      t: span.to_s,
      lane,
      kind: "preempt",
      span,
      text: `preempted: ${span.stop_reason || "others came first"}`,
    };
  if (span.exit && !["finished", "stopped", "resized"].includes(span.exit))
    return { t: span.to_s, lane, kind: "fail", span, text: `ended: ${span.exit}` };
  return null;
}

function topLane(span: Span, layout: Layout): number {
  let top = -1;
  for (const [node, gpus] of span.where)
    for (const gpu of gpus) {
      const lane = layout.index.get(`${node}:${gpu}`);
      if (lane !== undefined && (top < 0 || lane < top)) top = lane;
    }
  return top;
}

/** The first block that may reach beyond `t`. */
export function firstReaching(picture: Picture, t: number): number {
  let [low, high] = [0, picture.reach.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((picture.reach[middle] as number) < t) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** [time, GPUs in use] steps over a window, at most so many. */
export function useOver(
  picture: Picture,
  from: number,
  to: number,
  now: number,
  steps: number,
): Float64Array {
  const used = new Float64Array(steps);
  const width = (to - from) / steps;
  for (let i = firstReaching(picture, from); i < picture.blocks.length; i++) {
    const block = picture.blocks[i] as Block;
    if (block.t0 >= to) break;
    const [a, b] = [Math.max(from, block.t0), Math.min(to, block.t1, now)];
    if (b <= a) continue;
    const [first, last] = [(a - from) / width, (b - from) / width];
    for (let s = Math.floor(first); s < Math.min(steps, Math.ceil(last)); s++) {
      const part = Math.min(last, s + 1) - Math.max(first, s);
      used[s] = (used[s] as number) + part * block.lanes;
    }
  }
  return used;
}
