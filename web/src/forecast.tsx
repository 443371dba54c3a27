/** Queue forecast: what is expected to run when. Solid: sure to be running then; pale: how sure nobody can be. */

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Link } from "wouter-preact";
import { jobs, jobsVersion, now } from "./live";
import { between, count, hasEnded, holds, type Job } from "./model";
import { colourOf } from "./theme";
import { State, Ticks } from "./ui/parts";

const MAX_ROWS = 300;

interface Row {
  job: Job;
  start: [number, number];
  end: [number, number] | null;
}

function rowsAt(at: number): Row[] {
  const found: Row[] = [];
  for (const job of jobs.values()) {
    if (hasEnded(job)) continue;
    const start: [number, number] | null = holds(job) ? [at, at] : job.starts_s;
    if (start) found.push({ job, start: [Math.max(at, start[0]), Math.max(at, start[1])], end: job.eta_s });
  }
  return found.sort(
    (a, b) => a.start[0] - b.start[0] || (a.end?.[0] ?? 9e15) - (b.end?.[0] ?? 9e15) || a.job.id - b.job.id,
  );
}

export function ForecastView() {
  const tick = useSignal(0);
  useEffect(() => {
    const timer = setInterval(() => tick.value++, 2000);
    return () => clearInterval(timer);
  }, []);
  const at = now();
  const rows = useMemo(() => rowsAt(at), [jobsVersion.value, tick.value]);
  const active = [...jobs.values()].filter((job) => !hasEnded(job)).length;
  const shown = rows.slice(0, MAX_ROWS);
  const last = Math.max(60, ...shown.map((row) => (row.end?.[1] ?? row.start[1]) - at)) * 1.05;
  const part = (t: number): number => Math.min(100, Math.max(0, (100 * (t - at)) / last));
  return (
    <section class="page forecast" aria-labelledby="forecast-title">
      <header class="bar">
        <h1 id="forecast-title">Queue forecast</h1>
        <p class="summary">
          {count(active, "job")} not ended; forecast for {shown.length}. If nobody submitted anything more.
        </p>
      </header>
      {shown.length === 0 ? (
        <p class="card empty">
          {active
            ? "No forecast yet: jobs must say, or show, how long they take (epochs in the job file help)."
            : "Nothing runs and nothing waits."}
        </p>
      ) : (
        <div class="card gantt" data-testid="gantt">
          <div class="gantt-row axis" aria-hidden="true">
            <span />
            <span class="track">
              <Ticks last={last} />
            </span>
          </div>
          <ol>
            {shown.map((row) => (
              <GanttRow key={row.job.id} row={row} part={part} at={at} />
            ))}
          </ol>
        </div>
      )}
      <p class="faint">
        Solid: expected to run then. Pale: it may start later, or take longer. Fading: nobody knows how long
        it takes.
      </p>
    </section>
  );
}

function GanttRow({ row, part, at }: { row: Row; part: (t: number) => number; at: number }) {
  const { job, start, end } = row;
  const colour = colourOf(job.id);
  const sure = (end ? part(end[0]) : part(start[1])) - part(start[1]);
  const starts = holds(job) ? "runs" : `starts in ${between(start[0] - at, start[1] - at)}`;
  const ends = end ? `, ends in ${between(end[0] - at, end[1] - at)}` : ", length unknown";
  return (
    <li class="gantt-row" data-job={job.id}>
      <span class="who">
        <i class="swatch" style={{ background: colour }} />
        <Link href={`/jobs/${job.id}`}>{job.name}</Link> <State job={job} />
      </span>
      <span class="track" role="img" aria-label={`${job.name} ${starts}${ends}`} title={`${starts}${ends}`}>
        <i
          class={end ? "maybe" : "maybe open"}
          style={{
            left: `${part(start[0])}%`,
            width: `${end ? Math.max(0.4, part(end[1]) - part(start[0])) : 100 - part(start[0])}%`,
            background: colour,
          }}
        />
        {sure > 0 && (
          <i class="sure" style={{ left: `${part(start[1])}%`, width: `${sure}%`, background: colour }} />
        )}
      </span>
      <span class="says" title={`${starts}${ends}`}>
        {starts}
        {ends}
      </span>
    </li>
  );
}
