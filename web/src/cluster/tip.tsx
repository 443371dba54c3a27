/** What is under the pointer, in words. */
import { jobs, now } from "../live";
import { clock, count, duration, type Job, type Span } from "../model";
import { colourOf } from "../theme";
import type { Mark } from "./blocks";

export interface Hover {
  x: number;
  y: number;
  span: Span;
  mark: Mark | null;
}

export function Tip({ hover, area }: { hover: Hover; area: HTMLDivElement | null }) {
  const { span, mark } = hover;
  const job: Job | undefined = jobs.get(span.job);
  const gpus = span.where.reduce((sum, [, list]) => sum + list.length, 0);
  const until = span.to_s ?? now();
  const { clientWidth: width = 800, clientHeight: height = 600, scrollTop: scrolled = 0 } = area ?? {};
  const left = Math.min(Math.max(8, hover.x + 14), Math.max(8, width - 330));
  const above = hover.y > height / 2;
  const top = scrolled + hover.y + (above ? -12 : 16);
  return (
    <div class={above ? "tip above" : "tip"} style={{ left: `${left}px`, top: `${top}px` }} role="tooltip">
      <h2>
        <i class="swatch" style={{ background: colourOf(span.job) }} /> {span.name} <small>#{span.job}</small>
      </h2>
      {mark && <p class={`mark ${mark.kind}`}>{mark.text}</p>}
      <dl>
        <dt>held</dt>
        <dd>
          {count(gpus, "GPU")} on {span.where.map(([node, list]) => `${node}:${list.join(",")}`).join(" ")}
        </dd>
        <dt>from</dt>
        <dd>
          {clock(span.from_s)}, {duration(until - span.from_s)}
          {span.to_s ? "" : " so far"} (attempt {span.attempt})
        </dd>
        {span.reason && (
          <>
            <dt>because</dt>
            <dd>{span.reason}</dd>
          </>
        )}
        {span.stop && (
          <>
            <dt>stopped</dt>
            <dd>
              {span.stop}
              {span.stop_reason ? `: ${span.stop_reason}` : ""}
            </dd>
          </>
        )}
        {job && (
          <>
            <dt>now</dt>
            <dd>
              {job.state}
              {job.progress.fraction !== null ? `, ${Math.round(100 * job.progress.fraction)} %` : ""}
              {job.user ? `, of ${job.user}` : ""}
            </dd>
          </>
        )}
      </dl>
    </div>
  );
}
