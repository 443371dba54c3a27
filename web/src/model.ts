/** What the API answers, and how it is written for people. */

export interface Gpu {
  index: number;
  type: string;
  memory_mib: number;
  health: string;
  why: string;
  others: boolean;
  jobs: number[];
  utilisation_percent: number | null;
  memory_used_mib: number | null;
}

export interface Machine {
  name: string;
  condition: string;
  contact: string; // here, away, returning, lost
  why: string;
  address: string;
  executor: string;
  cpus: number;
  memory_mib: number;
  labels: Record<string, string>;
  rack: string;
  gpus: Gpu[];
  gpus_total: number;
  gpus_free: number;
}

export interface Job {
  id: number;
  name: string;
  user: string;
  team: string;
  state: string;
  paused: boolean;
  preparing?: string;
  priority: number;
  batch: string;
  gpus: { held: number; min: number; max: number; share: boolean };
  progress: { unit: string; epochs_done: number; epochs_total: number; fraction: number | null };
  eta_s: [number, number] | null;
  starts_s: [number, number] | null;
  where: string[];
  why: string;
  idle: { gpus: number; since_s: number } | null;
  submitted_s: number;
  started_s: number | null;
  ended_s: number | null;
  waited_s: number;
  ran_s: number;
  lost_s: number;
  attempts: number;
  failures: number;
  preemptions: number;
  resizes: number;
  migrations: number;
  run: string | null;
  exit_reason: string | null;
  exit_code: number | null;
  message: string;
}

export interface JobDetail extends Job {
  spec: Record<string, unknown>;
  job_file: Record<string, unknown>;
  metrics: Record<string, number>;
  uses_library: boolean;
  may_be_stopped: boolean;
  gpu_s: number;
  restart_cost_s: number | null;
  gpu_memory_mib: number;
}

export interface Run {
  id: string;
  attempt: number;
  gpus: number;
  gpu_type: string;
  where: string[];
  reason: string;
  planned_s: number;
  started_s: number | null;
  ended_s: number | null;
  stop: { why: string; reason: string; by: string; at_s: number } | null;
  exit_reason: string | null;
  exit_code: number | null;
  message: string;
  lost_s: number;
}

/** What one run held from when to when; without `to_s` it still holds it. */
export interface Span {
  job: number;
  attempt: number;
  name: string;
  user: string;
  from_s: number;
  where: [string, number[]][];
  to_s?: number | null;
  started_s?: number | null;
  reason?: string;
  share?: boolean;
  stop?: string;
  stop_reason?: string;
  stop_s?: number | null;
  exit?: string;
}

export interface Cluster {
  nodes: Machine[];
  policy: string;
  placer: string;
  health: { degraded?: string; jobs?: Record<string, number>; passes?: number };
}

export const ENDED = new Set(["completed", "failed", "cancelled", "lost"]);
export const HOLDING = new Set(["starting", "running", "stopping"]);

export const hasEnded = (job: Job): boolean => ENDED.has(job.state);
export const holds = (job: Job): boolean => HOLDING.has(job.state);

/** 45 s, 12 min, 3.5 h, 2.1 days. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "—";
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

/** 3 – 12 min, 45 s – 3 min. */
export function between(low: number, high: number): string {
  const [a, b] = [duration(low), duration(high)];
  const [n, unit] = a.split(" ");
  return a === b ? a : `${b.endsWith(` ${unit}`) ? n : a} – ${b}`;
}

/** Whether it answers goes first: what it was told to do says nothing while it is away. */
export const standing = (machine: { condition: string; contact: string }): string =>
  machine.contact === "here" ? machine.condition : machine.contact;

const TICKS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** Round times from 0 to `last`, at most six of them. */
export function ticksUntil(last: number): number[] {
  const step = TICKS_S.find((one) => last / one <= 6) ?? Math.ceil(last / 6 / 86400) * 86400;
  return Array.from({ length: Math.floor(last / step) + 1 }, (_, i) => i * step);
}

/** Of a round time: 45 s, 75 min, 1.5 h, 2 h. */
export function tickText(seconds: number): string {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600 || (seconds < 7200 && seconds % 1800)) return `${Number((seconds / 60).toFixed(1))} min`;
  if (seconds < 2 * 86400) return `${Number((seconds / 3600).toFixed(1))} h`;
  return `${Number((seconds / 86400).toFixed(1))} days`;
}

export function clock(seconds: number, withDay = false): string {
  const at = new Date(seconds * 1000);
  const time = at.toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  });
  return withDay || Date.now() / 1000 - seconds > 20 * 3600
    ? `${at.toLocaleDateString([], { month: "short", day: "numeric" })} ${time}`
    : time;
}

export function gpusText(job: Job): string {
  const { min, max, held } = job.gpus;
  if (max === 0) return "CPU only";
  const range = min === max ? `${min}` : `${min}–${max}`;
  return holds(job) ? `${held} of ${range}` : range;
}

export function count(n: number, noun: string): string {
  return n === 1 ? `1 ${noun}` : `${n.toLocaleString()} ${noun}s`;
}

export function size(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(1)} ${units[power - 1]}`;
}

export function memory(mib: number): string {
  return mib >= 1024 ? `${(mib / 1024).toFixed(mib >= 10240 ? 0 : 1)} GiB` : `${mib} MiB`;
}
