/** One job: its runs, its speed, its losses, its output, why it is where it is, and what can be done to it. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { act, setPriority, type Verb, verbsOf } from "./actions";
import { get, post, request, stream } from "./api";
import { type Epoch, Lately, Metrics, type Speed, SpeedUp } from "./curves";
import { FilesCard } from "./files";
import { when } from "./jobs";
import { jobs, now, onJob } from "./live";
import { LogView } from "./log";
import { clock, count, duration, hasEnded, type JobDetail, memory, type Run } from "./model";
import { draft } from "./submit";
import { colourOf } from "./theme";
import { failed, GpuRange, Progress, State, tell } from "./ui/parts";

interface Explanation {
  summary: string;
  sentences: string[];
  ahead: { job: number; name: string; state: string; gpus: number; priority: number }[];
  advice: string;
  starts: string;
}

interface Epochs {
  epochs: Epoch[];
  last: string; // number of the last event seen
}

const LOOK_BACK = 5000; // events

export function JobView({ id }: { id: number }) {
  const job = useSignal<JobDetail | null>(null);
  const runs = useSignal<Run[]>([]);
  const speed = useSignal<Speed | null>(null);
  const why = useSignal<Explanation | null>(null);
  const epochs = useSignal<Epochs>({ epochs: [], last: "" });
  const series = useSignal<Record<string, [number, number][]>>({});
  const wrong = useSignal("");
  const loading = useRef<Promise<void>>(Promise.resolve());
  const removing = useRef(false);
  const [, go] = useLocation();

  useEffect(() => {
    let gone = false;
    let busy = false;
    let again = false;
    const load = async (): Promise<void> => {
      busy = true;
      try {
        job.value = await get<JobDetail>(`/v1/jobs/${id}`);
        const parts = await Promise.all([
          get<{ runs: Run[] }>(`/v1/jobs/${id}/runs`),
          get<Speed>(`/v1/jobs/${id}/speed`),
          get<Explanation>(`/v1/jobs/${id}/explain`),
          addEpochs(id, epochs.value),
          get<{ series: Record<string, [number, number][]> }>(`/v1/jobs/${id}/series`),
        ]);
        if (gone) return;
        [runs.value, speed.value, why.value] = [parts[0].runs, parts[1], parts[2]];
        [epochs.value, series.value] = [parts[3], parts[4].series];
        wrong.value = "";
      } catch (error) {
        wrong.value = (error as Error).message;
      } finally {
        busy = false;
        if (again && !gone) {
          again = false;
          setTimeout(reload, 2000);
        }
      }
    };
    const reload = (): void => {
      if (gone) return;
      if (!busy && !removing.current) loading.current = load();
      else again = true;
    };
    reload();
    const stop = onJob(id, reload);
    return () => {
      gone = true;
      stop();
    };
  }, [id]);

  if (!job.value)
    return (
      <section class="page">
        <h1>Job {id}</h1>
        <p role="status">{wrong.value || "loading…"}</p>
      </section>
    );
  /** Nothing of it is asked for while it is removed: the daemon would not know it. */
  const remove = async (): Promise<void> => {
    removing.current = true;
    await loading.current;
    try {
      await request("DELETE", `/v1/jobs/${id}`);
      tell(`job ${id} is removed, with all it left on disk`);
      go("/jobs");
    } catch (error) {
      removing.current = false;
      failed(error);
    }
  };
  const shown = { ...job.value, ...jobs.get(id) } as JobDetail;
  return (
    <section class="page job" aria-labelledby="job-title">
      <header class="bar">
        <h1 id="job-title">
          <i class="swatch big" style={{ background: colourOf(id) }} /> {shown.name} <small>#{id}</small>
        </h1>
        <State job={shown} />
        <div class="spacer" />
        <Actions job={shown} remove={remove} />
      </header>
      <p class="why-line">{shown.why}</p>
      <div class="cards">
        <Facts job={shown} />
        {why.value && <Why why={why.value} />}
      </div>
      <Runs runs={runs.value} job={shown} />
      <div class="cards">
        {speed.value && shown.gpus.max > 0 && <SpeedUp speed={speed.value} job={shown} />}
        <Metrics epochs={epochs.value.epochs} unit={shown.progress.unit} />
        <Lately series={series.value} />
      </div>
      <LogView job={id} attempts={shown.attempts} />
      <FilesCard job={shown} />
      <details class="card">
        <summary>Specification</summary>
        <pre tabIndex={0}>{JSON.stringify(shown.spec, null, 2)}</pre>
      </details>
    </section>
  );
}

/** Reports of epochs: those of the last events, then what came since. */
async function addEpochs(id: number, known: Epochs): Promise<Epochs> {
  const found = [...known.epochs];
  let last = known.last;
  const where = last ? `after=${last}` : `last=${LOOK_BACK}`;
  for await (const message of stream(
    `/v1/events?follow=false&job=${id}&${where}`,
    "",
    AbortSignal.timeout(20_000),
  )) {
    if (message.id) last = message.id;
    if (message.event === "EpochEnded") found.push(message.data as Epoch);
  }
  return { epochs: found.length > known.epochs.length ? found : known.epochs, last };
}

const TITLES: Partial<Record<Verb, string>> = {
  requeue: "Back into the queue: it goes on from its last checkpoint when its turn comes",
  pause: "Stop at the next checkpoint and wait until it is resumed",
};

function Actions({ job, remove }: { job: JobDetail; remove: () => Promise<void> }) {
  const [, go] = useLocation();
  const clone = (): void => {
    draft.value = cloneOf(job);
    go("/submit");
  };
  return (
    <div class="actions" role="toolbar" aria-label="Actions">
      {verbsOf(job).map((verb) => (
        <button
          type="button"
          key={verb}
          class={verb === "cancel" ? "danger" : ""}
          title={TITLES[verb]}
          onClick={() => void act([job], verb)}
        >
          {verb[0]?.toUpperCase() + verb.slice(1)}
        </button>
      ))}
      {!hasEnded(job) && (
        <label>
          Priority{" "}
          <select
            value={String(job.priority)}
            onChange={(event) => void setPriority([job], event.currentTarget.value)}
            aria-label="Priority"
          >
            {[
              [-10, "low"],
              [0, "normal"],
              [10, "high"],
              [20, "urgent"],
            ].map(([value, name]) => (
              <option key={name} value={String(value)}>
                {name}
              </option>
            ))}
            {![-10, 0, 10, 20].includes(job.priority) && (
              <option value={String(job.priority)}>{job.priority}</option>
            )}
          </select>
        </label>
      )}
      {hasEnded(job) && (
        <button type="button" onClick={() => void resubmit(job, go)}>
          Submit again
        </button>
      )}
      <button type="button" onClick={clone}>
        Clone and edit
      </button>
      {hasEnded(job) && (
        <button type="button" class="danger" onClick={() => void remove()}>
          Remove
        </button>
      )}
    </div>
  );
}

async function resubmit(job: JobDetail, go: (to: string) => void): Promise<void> {
  try {
    const answer = await post<{ ids: number[] }>("/v1/jobs", job.job_file);
    tell(`submitted again as job ${answer.ids[0]}`);
    go(`/jobs/${answer.ids[0]}`);
  } catch (error) {
    failed(error);
  }
}

/** Its job file as YAML (of which JSON values are a part). */
function cloneOf(job: JobDetail): string {
  const lines = Object.entries(job.job_file).map(([key, value]) => `${key}: ${JSON.stringify(value)}`);
  const secrets = job.spec.secrets as string[];
  if (secrets.length) lines.push(`# values of secrets are not shown; set them in env: ${secrets.join(", ")}`);
  return `${lines.join("\n")}\n`;
}

function Facts({ job }: { job: JobDetail }) {
  const facts: [string, preact.ComponentChildren][] = [
    ["Owner", [job.user, job.team && `team ${job.team}`].filter(Boolean).join(", ") || "—"],
    ["GPUs", <GpuRange key="g" job={job} />],
    ["Where", job.where.join(" ") || "—"],
    ["Progress", <Progress key="p" job={job} />],
    ["When", when(job)],
    ["Submitted", clock(job.submitted_s, true)],
    ["Waited", duration(job.waited_s)],
    ["Ran", job.attempts ? `${duration(job.ran_s)} in ${count(job.attempts, "attempt")}` : "not yet"],
    [
      "Changes",
      [
        count(job.resizes, "resize"),
        count(job.preemptions, "preemption"),
        count(job.migrations, "move"),
        count(job.failures, "failure"),
      ].join(", "),
    ],
    ["Work lost", job.lost_s >= 1 ? duration(job.lost_s) : "none"],
    ["A restart costs", job.restart_cost_s === null ? "not measured yet" : duration(job.restart_cost_s)],
    ["GPU memory", job.gpu_memory_mib ? `${memory(job.gpu_memory_mib)} at most` : "not measured"],
  ];
  if (job.message) facts.push(["Ended", job.message]);
  return (
    <dl class="card facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Why({ why }: { why: Explanation }) {
  return (
    <section class="card" aria-labelledby="why-title">
      <h2 id="why-title">Why</h2>
      <ul class="sentences">
        {why.sentences.map((one) => (
          <li key={one}>{one}</li>
        ))}
      </ul>
      {why.starts && <p>{why.starts}</p>}
      {why.advice && (
        <p class="advice">
          <b>What would help:</b> {why.advice}
        </p>
      )}
      {(why.ahead?.length ?? 0) > 0 && (
        <p class="faint">
          Ahead or on the same GPUs:{" "}
          {why.ahead.slice(0, 8).map((one, i) => (
            <span key={one.job}>
              {i > 0 && ", "}
              <Link href={`/jobs/${one.job}`}>{one.name}</Link> ({one.state}, {count(one.gpus, "GPU")})
            </span>
          ))}
          {why.ahead.length > 8 && ` and ${why.ahead.length - 8} more`}
        </p>
      )}
    </section>
  );
}

function Runs({ runs, job }: { runs: Run[]; job: JobDetail }) {
  if (runs.length === 0) return null;
  const from = (runs[0] as Run).planned_s;
  const to = Math.max(...runs.map((run) => run.ended_s ?? now()), from + 1);
  const most = Math.max(1, ...runs.map((run) => run.gpus));
  const part = (t: number): number => (100 * (t - from)) / (to - from);
  return (
    <section class="card runs" aria-labelledby="runs-title">
      <h2 id="runs-title">Runs</h2>
      <div class="steps" aria-hidden="true">
        {runs.map((run) => (
          <i
            key={run.id}
            title={`${run.gpus} GPUs: ${run.reason}`}
            style={{
              left: `${part(run.planned_s)}%`,
              width: `${Math.max(0.3, part(run.ended_s ?? now()) - part(run.planned_s))}%`,
              height: `${(100 * Math.max(0.15, run.gpus)) / most}%`,
              background: colourOf(job.id),
            }}
          />
        ))}
      </div>
      <div class="table-scroll" tabIndex={0} role="region" aria-label="Runs">
        <table>
          <thead>
            <tr>
              <th>Attempt</th>
              <th>From</th>
              <th>For</th>
              <th>GPUs</th>
              <th>Where</th>
              <th>Why this many</th>
              <th>How it ended</th>
            </tr>
          </thead>
          <tbody>
            {[...runs].reverse().map((run) => (
              <tr key={run.id}>
                <td>{run.attempt}</td>
                <td>{clock(run.planned_s)}</td>
                <td>{duration((run.ended_s ?? now()) - run.planned_s)}</td>
                <td>{run.gpus}</td>
                <td>{run.where.join(" ")}</td>
                <td>{run.reason}</td>
                <td>{endOf(run)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function endOf(run: Run): string {
  const stop = run.stop ? `${run.stop.why}${run.stop.reason ? `: ${run.stop.reason}` : ""}` : "";
  if (run.ended_s === null) return stop ? `stopping (${stop})` : "runs";
  const code = run.exit_code ? ` (exit code ${run.exit_code})` : "";
  const lost = run.lost_s >= 1 ? `; ${duration(run.lost_s)} of work lost` : "";
  return stop && run.exit_reason === "stopped"
    ? `${stop}${lost}`
    : `${run.exit_reason}${code}${run.message ? `: ${run.message}` : ""}${lost}`;
}
