/** What is true now, kept so by GET /v1/live. Views read the signals; nothing else writes them. */
import { signal } from "@preact/signals";
import { Refused, stream } from "./api";
import { applyRunEvent, forgetTimeline, type RunEvent } from "./cluster/timeline";
import type { Cluster, Job } from "./model";
import { session } from "./session";

/** Counts changes of `jobs`: views that list jobs read it. */
export const jobsVersion = signal(0);
export const jobs = new Map<number, Job>();
export const cluster = signal<Cluster>({ nodes: [], policy: "", placer: "", health: {} });
export const daemonVersion = signal("");
/** "connecting", "live", or "stale" since a time. */
export const connection = signal<{ state: "connecting" | "live" | "stale"; since_s: number; why: string }>({
  state: "connecting",
  since_s: Date.now() / 1000,
  why: "",
});
/** By how much the daemon's clock is ahead of ours. */
let ahead_s = 0;
export const now = (): number => Date.now() / 1000 + ahead_s;

const SILENT_MS = 40_000; // the daemon says something every 15 s
const listeners = new Map<number, Set<() => void>>();

/** Be told when a job changes; returns how to stop that. */
export function onJob(id: number, told: () => void): () => void {
  const known = listeners.get(id) ?? new Set();
  listeners.set(id, known.add(told));
  return () => known.delete(told);
}

interface Change {
  jobs?: Job[];
  removed?: number[];
  happened?: RunEvent[];
  cluster?: Cluster;
  now_s: number;
}

let pending = false;
function changed(): void {
  if (pending) return;
  pending = true;
  setTimeout(() => {
    pending = false;
    jobsVersion.value++;
  }, 50);
}

function take(found: Job[]): void {
  for (const job of found) {
    jobs.set(job.id, job);
    for (const told of listeners.get(job.id) ?? []) told();
  }
  changed();
}

function handle(event: string, data: unknown): void {
  if (event === "reset") {
    const reset = data as Cluster & { now_s: number; version: string };
    jobs.clear();
    forgetTimeline();
    ahead_s = reset.now_s - Date.now() / 1000;
    cluster.value = reset;
    daemonVersion.value = reset.version;
    changed();
  } else if (event === "jobs") {
    take((data as { jobs: Job[] }).jobs);
  } else if (event === "change") {
    const change = data as Change;
    for (const id of change.removed ?? []) jobs.delete(id);
    take(change.jobs ?? []);
    for (const one of change.happened ?? []) applyRunEvent(one, jobs.get(one.job));
    if (change.cluster) cluster.value = change.cluster;
  }
}

function set(state: "connecting" | "live" | "stale", why = ""): void {
  if (connection.value.state !== state || connection.value.why !== why)
    connection.value = {
      state,
      since_s: connection.value.state === state ? connection.value.since_s : Date.now() / 1000,
      why,
    };
}

/** Follow until logged out, coming back whenever the connection is lost. */
export async function follow(): Promise<void> {
  let last = "";
  let wait_ms = 250;
  while (session.value) {
    const stop = new AbortController();
    let timer = setTimeout(() => stop.abort(), SILENT_MS);
    try {
      for await (const message of stream("/v1/live", last, stop.signal)) {
        clearTimeout(timer);
        timer = setTimeout(() => stop.abort(), SILENT_MS);
        set("live");
        wait_ms = 250;
        if (message.event) handle(message.event, message.data);
        if (message.id) last = message.id;
        if (!session.value) stop.abort();
      }
      set("stale", "the daemon closed the connection");
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return;
      set("stale", error instanceof Refused ? error.message : "the daemon does not answer");
    } finally {
      clearTimeout(timer);
    }
    await new Promise((done) => setTimeout(done, wait_ms));
    wait_ms = Math.min(4000, wait_ms * 2);
  }
}
