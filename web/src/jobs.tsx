/** The Jobs view: all jobs in memory, filtered, sorted, acted on; only the rows that can be seen are made. */
import { signal } from "@preact/signals";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo } from "preact/compat";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { act, setPriority, type Verb, verbsOf } from "./actions";
import { jobs, jobsVersion, now } from "./live";
import { between, clock, duration, hasEnded, holds, type Job } from "./model";
import { colourOf } from "./theme";
import { GpuRange, Progress, State } from "./ui/parts";

type Filter = "all" | "running" | "waiting" | "ended" | "failed";
const FILTERS: [Filter, string, (job: Job) => boolean][] = [
  ["all", "All", () => true],
  ["running", "Running", holds],
  ["waiting", "Waiting", (job) => job.state === "queued"],
  ["ended", "Ended", hasEnded],
  ["failed", "Failed", (job) => job.state === "failed" || job.state === "lost"],
];

const COLUMNS: [string, string, ((job: Job) => number | string) | null][] = [
  ["id", "Job", (job) => job.id],
  ["name", "Name", (job) => job.name],
  ["user", "Owner", (job) => job.user],
  ["state", "State", (job) => job.state],
  ["gpus", "GPUs", (job) => job.gpus.held * 1000 + job.gpus.max],
  ["progress", "Progress", (job) => job.progress.fraction ?? -1],
  ["eta", "When", (job) => job.ended_s ?? job.eta_s?.[0] ?? job.submitted_s],
  ["why", "Why", null],
];

// Kept when one goes to a job and back.
const filter = signal<Filter>("all");
const text = signal("");
const sort = signal<{ by: string; down: boolean }>({ by: "id", down: true });
const chosen = signal<ReadonlySet<number>>(new Set());

function matches(job: Job, words: string[]): boolean {
  const all =
    `${job.id} ${job.name} ${job.user} ${job.team} ${job.state} ${job.batch} ${job.where.join(" ")}`.toLowerCase();
  return words.every((word) => all.includes(word));
}

function select(): Job[] {
  const keep = FILTERS.find(([name]) => name === filter.value)?.[2] ?? (() => true);
  const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found: Job[] = [];
  for (const job of jobs.values()) if (keep(job) && matches(job, words)) found.push(job);
  const key = COLUMNS.find(([name]) => name === sort.value.by)?.[2] ?? ((job: Job) => job.id);
  const sign = sort.value.down ? -1 : 1;
  return found.sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    return x < y ? -sign : x > y ? sign : b.id - a.id;
  });
}

export function when(job: Job): string {
  const at = now();
  if (job.ended_s !== null) return `ended ${duration(at - job.ended_s)} ago`;
  if (holds(job))
    return job.eta_s
      ? `ends in ${between(job.eta_s[0] - at, job.eta_s[1] - at)}`
      : `runs ${duration(job.ran_s)}`;
  if (job.starts_s) return `starts in ${between(job.starts_s[0] - at, job.starts_s[1] - at)}`;
  return `waits ${duration(at - job.submitted_s)}`;
}

/** Two lines for each job; as in styles.css. */
const narrow = signal(false);
const width = matchMedia("(max-width: 900px)");
const fit = (): void => {
  narrow.value = width.matches;
};
width.addEventListener("change", fit);
fit();

export function JobsView() {
  const rows = useMemo(select, [jobsVersion.value, filter.value, text.value, sort.value]);
  const counts = useMemo(
    () => FILTERS.map(([, , keep]) => [...jobs.values()].filter(keep).length),
    [jobsVersion.value],
  );
  const area = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => area.current,
    estimateSize: () => (narrow.value ? 64 : 44),
    overscan: 8,
  });
  useEffect(() => virtual.measure(), [narrow.value]);
  const picked = chosen.value.size ? rows.filter((job) => chosen.value.has(job.id)) : [];
  const [, go] = useLocation();
  /** For all rows at once: a link with hooks of its own in every row makes scrolling slow. */
  const follow = (event: MouseEvent): void => {
    const link = (event.target as HTMLElement).closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(link.pathname);
  };

  return (
    <section class="jobs" aria-labelledby="jobs-title">
      <header class="bar">
        <h1 id="jobs-title">Jobs</h1>
        <fieldset class="segments">
          <legend class="hidden">Which jobs</legend>
          {FILTERS.map(([name, label], i) => (
            <button
              type="button"
              key={name}
              aria-pressed={filter.value === name}
              onClick={() => (filter.value = name)}
            >
              {label} <small>{counts[i]?.toLocaleString()}</small>
            </button>
          ))}
        </fieldset>
        <div class="spacer" />
        <input
          type="search"
          placeholder="Search name, owner, machine…"
          aria-label="Search jobs"
          value={text.value}
          onInput={(event) => (text.value = event.currentTarget.value)}
        />
        <Link href="/submit" class="button primary">
          New job
        </Link>
      </header>
      <Bulk picked={picked} shown={rows.length} />
      <div class="grid" role="table" aria-rowcount={rows.length + 1} aria-label="Jobs">
        <div class="row head" role="row" aria-rowindex={1}>
          <span role="cell" class="pick">
            <input
              type="checkbox"
              aria-label="Select all shown jobs"
              checked={rows.length > 0 && picked.length === rows.length}
              onChange={(event) =>
                (chosen.value = new Set(event.currentTarget.checked ? rows.map((job) => job.id) : []))
              }
            />
          </span>
          {COLUMNS.map(([name, label, key]) => (
            <Head key={name} name={name} label={label} sortable={key !== null} />
          ))}
        </div>
        {/* biome-ignore lint/a11y/useKeyWithClickEvents: Enter on a link is a click */}
        <div class="body" ref={area} data-testid="rows" tabIndex={0} role="rowgroup" onClick={follow}>
          <div style={{ height: `${virtual.getTotalSize()}px`, position: "relative" }}>
            {virtual.getVirtualItems().map((item) => {
              const job = rows[item.index];
              return job ? <Row key={job.id} job={job} top={item.start} index={item.index} /> : null;
            })}
          </div>
          {rows.length === 0 && (
            <p class="empty">
              {jobs.size === 0 ? "No job yet. Submit one, or: " : "No job matches. "}
              {jobs.size === 0 && <code>swell run --gpus 1-4 -- python train.py</code>}
            </p>
          )}
        </div>
      </div>
    </section>
  );
}

function Head({ name, label, sortable }: { name: string; label: string; sortable: boolean }) {
  const { by, down } = sort.value;
  const direction = by !== name ? "none" : down ? "descending" : "ascending";
  return (
    <span role="columnheader" class={name} aria-sort={direction}>
      {sortable ? (
        <button
          type="button"
          class="quiet"
          onClick={() => (sort.value = { by: name, down: by === name ? !down : name === "id" })}
        >
          {label} <span aria-hidden="true">{direction === "none" ? "" : down ? "↓" : "↑"}</span>
        </button>
      ) : (
        label
      )}
    </span>
  );
}

/** Made once for a job as it is: rows that stay in sight while one scrolls are left alone. */
const Row = memo(({ job, top, index }: { job: Job; top: number; index: number }) => {
  const pick = (on: boolean): void => {
    const next = new Set(chosen.value);
    if (on) next.add(job.id);
    else next.delete(job.id);
    chosen.value = next;
  };
  return (
    <div
      class="row"
      role="row"
      aria-rowindex={index + 2}
      style={{ transform: `translateY(${top}px)` }}
      data-job={job.id}
    >
      <span role="cell" class="pick">
        <input
          type="checkbox"
          aria-label={`Select job ${job.id}`}
          checked={chosen.value.has(job.id)}
          onChange={(event) => pick(event.currentTarget.checked)}
        />
      </span>
      <span role="cell" class="id">
        <i class="swatch" style={{ background: colourOf(job.id) }} /> {job.id}
      </span>
      <span role="cell" class="name">
        <a href={`/jobs/${job.id}`}>{job.name}</a>
      </span>
      <span role="cell" class="user">
        {job.user}
      </span>
      <span role="cell" class="state">
        <State job={job} />
      </span>
      <span role="cell" class="gpus">
        <GpuRange job={job} />
      </span>
      <span role="cell" class="progress">
        <Progress job={job} />
      </span>
      <span role="cell" class="eta" title={`submitted ${clock(job.submitted_s, true)}`}>
        {when(job)}
      </span>
      <span role="cell" class="why" title={job.why}>
        {job.why}
      </span>
    </div>
  );
});

function Bulk({ picked, shown }: { picked: Job[]; shown: number }) {
  const verbs: Verb[] = ["pause", "resume", "requeue", "cancel"];
  const able = (verb: Verb): Job[] => picked.filter((job) => verbsOf(job).includes(verb));
  if (picked.length === 0)
    return (
      <p class="bulk faint" role="status">
        {shown.toLocaleString()} shown
      </p>
    );
  return (
    <div class="bulk" role="toolbar" aria-label="Actions on selected jobs">
      <b role="status">{picked.length.toLocaleString()} selected</b>
      {verbs.map((verb) => (
        <button
          type="button"
          key={verb}
          class={verb === "cancel" ? "danger" : ""}
          disabled={able(verb).length === 0}
          onClick={() => void act(able(verb), verb)}
        >
          {verb[0]?.toUpperCase() + verb.slice(1)}
        </button>
      ))}
      <label>
        Priority{" "}
        <select
          value=""
          onChange={(event) => {
            void setPriority(
              picked.filter((job) => !hasEnded(job)),
              event.currentTarget.value,
            );
            event.currentTarget.value = "";
          }}
        >
          <option value="">set…</option>
          {["low", "normal", "high", "urgent"].map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <button type="button" class="quiet" onClick={() => (chosen.value = new Set())}>
        Select none
      </button>
    </div>
  );
}
