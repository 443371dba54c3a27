/** Policies side by side: figures, lanes that can be played, completion times, jobs. Needs no daemon: the page of
 * `swell sim report` is made of it, too. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { count, duration } from "../model";
import { colourOf, lineColour } from "../theme";
import { Completion } from "../ui/completion";
import { SimLanes } from "./lanes";
import { type Comparison, endOf, type Figures, type SimJob, type Simulated } from "./model";

const PLAY_MS = 16_000; // from the beginning to the end
const ROWS = 200;

export function ComparisonView({ comparison }: { comparison: Comparison }) {
  const gpus = comparison.machines.reduce((sum, one) => sum + one.gpus.length, 0);
  const times = useMemo(
    () => comparison.runs.map((run) => ({ label: run.policy, times_s: run.jobs.map((job) => job.jct_s) })),
    [comparison],
  );
  return (
    <section class="comparison" aria-label={`Simulation of ${comparison.workload}`} data-testid="comparison">
      <div class="cards">
        <div class="card">
          <h2>
            {comparison.workload}{" "}
            <small>
              on {count(comparison.machines.length, "machine")} with {count(gpus, "GPU")}
            </small>
          </h2>
          <FigureTable runs={comparison.runs} />
        </div>
        <div class="card">
          <Completion title="Percent of the jobs done so long after their submission" of={times} />
        </div>
      </div>
      <Lanes comparison={comparison} />
      <div class="card">
        <h2>Jobs</h2>
        <JobTable runs={comparison.runs} />
      </div>
    </section>
  );
}

const percent = (value: number): string => `${Math.round(100 * value)} %`;
const ROWS_OF_FIGURES: [string, keyof Figures, (value: number) => string, boolean][] = [
  ["Mean time to completion", "mean_jct_s", duration, true],
  ["Median", "median_jct_s", duration, true],
  ["99 of 100 done within", "p99_jct_s", duration, true],
  ["Makespan: all done within", "makespan_s", duration, true],
  ["Mean wait before the first start", "mean_wait_s", duration, true],
  ["GPUs in use", "utilisation", percent, false],
  ["Restarts per job", "restarts_per_job", (value) => value.toFixed(1), true],
];

function FigureTable({ runs }: { runs: Simulated[] }) {
  const left = runs.filter((run) => run.figures.unfinished);
  return (
    <>
      <div class="table-scroll" tabIndex={0} role="region" aria-label="Figures">
        <table class="figures">
          <thead>
            <tr>
              <th>
                <span class="hidden">Figure</span>
              </th>
              {runs.map((run, i) => (
                <th class="number" key={run.policy}>
                  <i class="swatch" style={{ background: lineColour(i) }} /> {run.policy}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {ROWS_OF_FIGURES.map(([name, key, text, small]) => (
              <FigureRow
                key={key}
                name={name}
                values={runs.map((run) => run.figures[key])}
                text={text}
                small={small}
              />
            ))}
          </tbody>
        </table>
      </div>
      {left.map((run) => (
        <p class="note" key={run.policy}>
          {run.policy}: {count(run.figures.unfinished ?? 0, "job")} did not end, and{" "}
          {run.figures.unfinished === 1 ? "is" : "are"} not in these figures.
        </p>
      ))}
    </>
  );
}

/** +12 %, −4 %, or 3.5 × for what is far off. */
function farOff(value: number, best: number): string {
  const ratio = value / best;
  if (ratio >= 2) return `${ratio.toFixed(ratio < 10 ? 1 : 0)} ×`;
  const percent = Math.round(100 * (ratio - 1));
  return percent > 0 ? `+${percent} %` : `−${-percent} %`;
}

/** The best is marked, and by how much the others are off it. */
function FigureRow(props: {
  name: string;
  values: (number | undefined)[];
  text: (value: number) => string;
  small: boolean;
}) {
  const known = props.values.filter((value): value is number => value !== undefined);
  const best = props.small ? Math.min(...known) : Math.max(...known);
  return (
    <tr>
      <th scope="row">{props.name}</th>
      {props.values.map((value, i) => {
        const off = value !== undefined && best ? (100 * (value - best)) / best : 0;
        const isBest = value === best && known.length > 1;
        return (
          <td class={`number ${isBest ? "best" : ""}`} key={i}>
            {value === undefined ? "—" : props.text(value)}
            {value !== undefined && Math.abs(off) >= 1 && <small>{farOff(value, best)}</small>}
          </td>
        );
      })}
    </tr>
  );
}

function Lanes({ comparison }: { comparison: Comparison }) {
  const end = useMemo(() => endOf(comparison) * 1.01, [comparison]);
  const at = useSignal(end);
  const chosen = useSignal(0);
  const playing = useSignal(false);
  useEffect(() => {
    at.value = end;
    playing.value = false;
  }, [end]);
  useEffect(() => {
    if (!playing.value) return;
    let last = performance.now();
    let frame = 0;
    const step = (time: number): void => {
      at.value = Math.min(end, at.value + ((time - last) / PLAY_MS) * end);
      last = time;
      if (at.value >= end) playing.value = false;
      else frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
  }, [playing.value, end]);
  const play = (): void => {
    if (!playing.value && at.value >= end) at.value = 0;
    playing.value = !playing.value;
  };
  return (
    <div class="card watch">
      <div class="bar">
        <h2>GPUs over time</h2>
        <button type="button" onClick={play}>
          {playing.value ? "❚❚ Pause" : "▶ Play"}
        </button>
        <input
          type="range"
          aria-label="Time shown"
          aria-valuetext={`${duration(at.value)} after the beginning`}
          min={0}
          max={end}
          step={end / 1000}
          value={at.value}
          onInput={(event) => {
            playing.value = false;
            at.value = event.currentTarget.valueAsNumber;
          }}
        />
        <span class="faint time">{duration(Math.min(at.value, end / 1.01))}</span>
      </div>
      <div class={`pictures of-${comparison.runs.length}`}>
        {comparison.runs.map((run) => (
          <figure key={run.policy} data-policy={run.policy}>
            <figcaption>
              <b>{run.policy}</b> {done(run.jobs, at.value)}
            </figcaption>
            <SimLanes comparison={comparison} run={run} end={end} at={at} chosen={chosen} />
            {run.truncated && <p class="faint">Not all of it is drawn: there were too many runs.</p>}
          </figure>
        ))}
      </div>
    </div>
  );
}

function done(jobs: SimJob[], at: number): string {
  const ended = jobs.filter((job) => job.ended_s <= at).length;
  return `${ended} of ${count(jobs.length, "job")} done`;
}

function JobTable({ runs }: { runs: Simulated[] }) {
  const all = useSignal(false);
  const rows = useMemo(() => {
    const found = new Map<number, { job: SimJob; times: (SimJob | undefined)[] }>();
    runs.forEach((run, i) => {
      for (const job of run.jobs) {
        const row = found.get(job.job) ?? { job, times: runs.map(() => undefined) };
        row.times[i] = job;
        found.set(job.job, row);
      }
    });
    return [...found.values()].sort((a, b) => a.job.submitted_s - b.job.submitted_s || a.job.job - b.job.job);
  }, [runs]);
  const shown = all.value ? rows : rows.slice(0, ROWS);
  return (
    <>
      <div class="table-scroll" tabIndex={0} role="region" aria-label="Jobs">
        <table>
          <thead>
            <tr>
              <th>Job</th>
              <th class="number">Submitted</th>
              {runs.map((run) => (
                <th class="number" key={run.policy}>
                  {run.policy}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <JobRow key={row.job.job} job={row.job} times={row.times} />
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > shown.length && (
        <button type="button" class="quiet" onClick={() => (all.value = true)}>
          Show all {rows.length.toLocaleString()}
        </button>
      )}
      <p class="faint">Time from submission to end, with GPU hours; the shortest is marked.</p>
    </>
  );
}

function JobRow({ job, times }: { job: SimJob; times: (SimJob | undefined)[] }) {
  const best = Math.min(...times.map((one) => one?.jct_s ?? Number.POSITIVE_INFINITY));
  const worst = Math.max(...times.map((one) => one?.jct_s ?? 0));
  return (
    <tr>
      <th scope="row">
        <i class="swatch" style={{ background: colourOf(job.job) }} /> {job.name} <small>#{job.job}</small>
      </th>
      <td class="number">{duration(job.submitted_s)}</td>
      {times.map((one, i) => (
        <td class={`number ${one && one.jct_s === best && worst > 1.01 * best ? "best" : ""}`} key={i}>
          {one ? duration(one.jct_s) : "—"}
          {one && <small>{(one.gpu_s / 3600).toFixed(1)} h</small>}
        </td>
      ))}
    </tr>
  );
}
