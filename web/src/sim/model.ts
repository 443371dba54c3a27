/** Several policies on the same jobs, as `sim.comparison` writes them. Times are seconds from the beginning. */
import type { Span } from "../model";

export interface SimJob {
  job: number;
  name: string;
  state: string;
  submitted_s: number;
  started_s: number | null;
  ended_s: number;
  jct_s: number;
  gpu_s: number;
  restarts: number;
}

export interface Figures {
  jobs: number;
  mean_jct_s?: number;
  median_jct_s?: number;
  p99_jct_s?: number;
  makespan_s?: number;
  mean_wait_s?: number;
  utilisation?: number;
  restarts_per_job?: number;
  worst_rho?: number;
  unfinished?: number;
}

export interface Simulated {
  policy: string;
  figures: Figures;
  jobs: SimJob[];
  spans: Span[];
  truncated: boolean;
}

export interface Comparison {
  workload: string;
  machines: { name: string; gpus: string[] }[];
  runs: Simulated[];
}

/** When the last of the jobs ends, under whichever policy is slowest. */
export function endOf(comparison: Comparison): number {
  let end = 1;
  for (const run of comparison.runs) {
    for (const span of run.spans) end = Math.max(end, span.to_s ?? span.from_s);
    for (const job of run.jobs) end = Math.max(end, job.ended_s);
  }
  return end;
}
