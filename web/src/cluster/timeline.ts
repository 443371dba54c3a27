/** Who had which GPUs when: spans from GET /v1/timeline, carried on by what runs do. No drawing here. */
import { signal } from "@preact/signals";
import { get } from "../api";
import type { Job, Span } from "../model";

export interface RunEvent {
  type: string;
  run: string;
  job: number;
  at_s: number;
  reason?: string;
  why?: string;
  allocation?: { parts: { node: string; gpus: number[] }[]; share: unknown };
}

export const spans = new Map<string, Span>();
/** Counts changes of `spans`. */
export const timelineVersion = signal(0);
export const loading = signal(false);
export const truncated = signal(false);
let loadedFrom_s = Number.POSITIVE_INFINITY;
let open = new Map<string, Span>();
let missed: [RunEvent, Job | undefined][] = []; // what happened while the answer was on its way

const key = (span: Span): string => `${span.job}.${span.attempt}@${span.from_s}`;

export function forgetTimeline(): void {
  spans.clear();
  open = new Map();
  missed = [];
  loadedFrom_s = Number.POSITIVE_INFINITY;
  timelineVersion.value++;
}

/** Have all that happened since then, and some of what was before: one is about to look at it. */
export async function loadSince(needed_s: number, now_s: number): Promise<void> {
  if (needed_s >= loadedFrom_s || loading.value) return;
  const from_s = Math.max(0, needed_s - (now_s - needed_s));
  const before = spans.size;
  loading.value = true;
  const to = Number.isFinite(loadedFrom_s) ? loadedFrom_s : now_s + 60;
  try {
    const found = await get<{ spans: Span[]; truncated: boolean }>(`/v1/timeline?from=${from_s}&to=${to}`);
    for (const span of found.spans) add(span);
    truncated.value = found.truncated;
    loadedFrom_s = from_s;
  } finally {
    loading.value = false;
    const late = missed.splice(0);
    for (const [event, job] of late) applyRunEvent(event, job);
    if (spans.size !== before || late.length) timelineVersion.value++;
  }
}

function add(span: Span): void {
  const known = spans.get(key(span));
  if (known?.to_s) return;
  spans.set(key(span), known ? Object.assign(known, span) : span);
  if (!span.to_s) open.set(`${span.job}.${span.attempt}`, spans.get(key(span)) as Span);
}

export function applyRunEvent(event: RunEvent, job: Job | undefined): void {
  if (loading.value) {
    missed.push([event, job]);
    return;
  }
  const current = open.get(event.run);
  if (current && current.from_s >= event.at_s && event.type !== "RunEnded") return; // in the answer already
  if (event.type === "RunPlanned" || event.type === "RunResized") {
    if (current) Object.assign(current, { to_s: event.at_s, exit: "resized" });
    const where = (event.allocation?.parts ?? []).map((part): [string, number[]] => [part.node, part.gpus]);
    add({
      job: event.job,
      attempt: Number(event.run.split(".")[1]),
      name: job?.name ?? current?.name ?? `job ${event.job}`,
      user: job?.user ?? current?.user ?? "",
      from_s: event.at_s,
      where,
      started_s: current?.started_s ?? null,
      share: Boolean(event.allocation?.share),
      reason: event.reason ?? "",
    });
  } else if (current && event.type === "RunStarted") {
    current.started_s = event.at_s;
  } else if (current && event.type === "RunStopRequested") {
    Object.assign(current, { stop: event.why ?? "", stop_reason: event.reason ?? "", stop_s: event.at_s });
  } else if (current && event.type === "RunStopWithdrawn") {
    Object.assign(current, { stop: "", stop_reason: "", stop_s: null });
  } else if (current && event.type === "RunEnded") {
    Object.assign(current, { to_s: event.at_s, exit: event.reason ?? "" });
    open.delete(event.run);
  }
  timelineVersion.value++;
}
