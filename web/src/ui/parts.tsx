/** Small parts that several views use. */
import { signal } from "@preact/signals";
import { gpusText, type Job, ticksUntil, tickText } from "../model";
import { colourOf } from "../theme";

/** A line at the bottom of the page: what was done, or why not. */
export const notice = signal<{ text: string; bad: boolean } | null>(null);
let hide = 0;

export function tell(text: string, bad = false): void {
  notice.value = { text, bad };
  clearTimeout(hide);
  hide = window.setTimeout(() => (notice.value = null), bad ? 10_000 : 4000);
}

export function failed(error: unknown): void {
  tell(error instanceof Error ? error.message : String(error), true);
}

export function Notice() {
  const said = notice.value;
  return (
    <div class="notice" role="status" aria-live="polite" hidden={!said} data-bad={said?.bad ? "yes" : "no"}>
      {said?.text}
      {said && (
        <button type="button" class="quiet" onClick={() => (notice.value = null)}>
          Close
        </button>
      )}
    </div>
  );
}

export function State({ job }: { job: Job }) {
  const waits = job.state === "starting" && job.preparing ? "preparing" : job.state;
  const name = job.paused && job.state === "queued" ? "paused" : waits;
  return <span class={`state ${name}`}>{name}</span>;
}

export function Progress({ job }: { job: Job }) {
  const { unit, epochs_done, epochs_total, fraction } = job.progress;
  const done = epochs_done.toLocaleString();
  if (fraction === null) return <span class="faint">{epochs_done ? `${unit} ${done}` : "—"}</span>;
  const percent = Math.round(100 * fraction);
  return (
    <span class="progress" title={`${done} of ${epochs_total.toLocaleString()} ${unit}s`}>
      <progress max={100} value={percent} aria-label={`progress of job ${job.id}`} />
      <span>{percent} %</span>
    </span>
  );
}

/** min — now — max as a little ruler. */
export function GpuRange({ job }: { job: Job }) {
  const { min, max, held } = job.gpus;
  if (max === 0) return <span class="faint">CPU only</span>;
  const cells = Math.min(max, 16);
  const on = Math.round((held * cells) / max);
  return (
    <span class="gpu-range" title={`holds ${held}, may have ${min} to ${max}`}>
      <span aria-hidden="true" class="cells" style={{ width: `${9 * cells - 2}px` }}>
        <i style={{ width: `${9 * on}px`, background: colourOf(job.id) }} />
      </span>
      <span>{gpusText(job)}</span>
    </span>
  );
}

/** Times from now on, above tracks that end at `last` seconds. */
export function Ticks({ last }: { last: number }) {
  return (
    <>
      {ticksUntil(last).map((t) => (
        <i key={t} class={(100 * t) / last > 94 ? "end" : ""} style={{ left: `${(100 * t) / last}%` }}>
          {t === 0 ? "now" : `+${tickText(t)}`}
        </i>
      ))}
    </>
  );
}
