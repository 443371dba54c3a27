/** The Cluster view: every GPU a lane over time. */
import { useSignal, useSignalEffect } from "@preact/signals";
import { useCallback, useEffect, useMemo, useRef } from "preact/hooks";
import { useLocation } from "wouter-preact";
import { cluster, jobs, jobsVersion, now } from "../live";
import { clock, duration, holds } from "../model";
import { theme } from "../theme";
import { type Layout, layoutOf, type Picture, pictureOf } from "./blocks";
import { draw, GUTTER, hit, type Ink, Panner, type Scene, TOP, type View, wallClock } from "./draw";
import { inkNow } from "./ink";
import { loading, loadSince, spans, timelineVersion, truncated } from "./timeline";
import { type Hover, Tip } from "./tip";

const PRESETS: [string, number][] = [
  ["1 min", 60],
  ["5 min", 300],
  ["30 min", 1800],
  ["2 h", 7200],
  ["12 h", 43200],
  ["2 days", 172800],
  ["7 days", 604800],
];
const AHEAD = 0.06; // of the width is kept free to the right of now
const MIN_SPAN_S = 10;
const MAX_SPAN_S = 60 * 86400;

export function ClusterView() {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const view = useRef<View>({ from: now() - 300 * (1 - AHEAD), to: now() + 300 * AHEAD, scroll: 0 });
  const live = useSignal(true);
  const span_s = useSignal(300);
  const hover = useSignal<Hover | null>(null);
  const asTable = useSignal(false);
  const dirty = useRef(true);
  const fitted = useRef(false);
  const made = useRef<{ layout: Layout; picture: Picture; spans: number; machines: unknown } | null>(null);
  const ink = useRef<Ink | null>(null);
  const axis = useRef(wallClock());
  const [, go] = useLocation();

  const redraw = useCallback(() => {
    dirty.current = true;
  }, []);
  useSignalEffect(() => {
    theme.value;
    ink.current = null;
    redraw();
  });
  const setSpan = useCallback(
    (seconds: number, around?: number) => {
      const v = view.current;
      const wanted = Math.min(MAX_SPAN_S, Math.max(MIN_SPAN_S, seconds));
      if (live.value && around === undefined) {
        v.from = now() - wanted * (1 - AHEAD);
        v.to = now() + wanted * AHEAD;
      } else {
        const at = around ?? (v.from + v.to) / 2;
        const part = (at - v.from) / (v.to - v.from);
        v.from = at - part * wanted;
        v.to = v.from + wanted;
      }
      span_s.value = wanted;
      void loadSince(v.from - wanted / 2, now()).catch(() => undefined);
      redraw();
    },
    [live, span_s, redraw],
  );
  useSignalEffect(() => {
    timelineVersion.value;
    cluster.value;
    redraw();
    const { from, to } = view.current;
    void loadSince(from - 0.5 * (to - from), now()).then(fit, () => undefined);
  });
  /** At first: what there is of a young cluster fills the picture. */
  const fit = (): void => {
    const first = Math.min(...[...spans.values()].map((span) => span.from_s));
    if (fitted.current || loading.value || !Number.isFinite(first)) return;
    fitted.current = true;
    const age = now() - first;
    if (live.value && age < 200) setSpan(Math.max(20, Math.ceil((age * 1.25) / 5) * 5));
  };

  const pan = useCallback(
    (seconds: number) => {
      const v = view.current;
      v.from += seconds;
      v.to += seconds;
      live.value =
        v.from < now() && v.to > now() && seconds > 0 && v.to - now() >= AHEAD * (v.to - v.from) * 0.5;
      void loadSince(v.from - (v.to - v.from) / 2, now()).catch(() => undefined);
      redraw();
    },
    [live, redraw],
  );

  useEffect(() => {
    const area = frame.current;
    const paper = canvas.current;
    const ctx = paper?.getContext("2d");
    if (!area || !paper || !ctx) return;
    let request = 0;
    let drawn_s = 0;
    const panner = new Panner();
    const paint = (): void => {
      request = requestAnimationFrame(paint);
      const v = view.current;
      const [width, height] = [area.clientWidth, area.clientHeight];
      const per_px = (v.to - v.from) / Math.max(1, width - GUTTER);
      if (live.value && now() - drawn_s > Math.max(0.05, per_px / 2)) dirty.current = true;
      if (!dirty.current || width === 0) return;
      dirty.current = false;
      drawn_s = now();
      if (live.value) {
        const wanted = v.to - v.from;
        v.from = now() - wanted * (1 - AHEAD);
        v.to = now() + wanted * AHEAD;
      }
      const ratio = Math.min(2, devicePixelRatio);
      if (paper.width !== Math.round(width * ratio) || paper.height !== Math.round(height * ratio)) {
        paper.width = Math.round(width * ratio);
        paper.height = Math.round(height * ratio);
        paper.style.width = `${width}px`;
        paper.style.height = `${height}px`;
      }
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      v.scroll = area.scrollTop;
      const current = prepare();
      ink.current ??= inkNow();
      const scene: Scene = {
        ctx,
        width,
        height,
        ...current,
        view: v,
        ink: ink.current,
        now: now(),
        axis: axis.current,
        hover: null,
      };
      const over = hover.value;
      if (over) scene.hover = { job: over.span.job, mark: over.mark };
      if (live.value) draw(scene);
      else panner.draw(scene, ratio);
    };
    const prepare = (): { layout: Layout; picture: Picture } => {
      const machines = cluster.value.nodes;
      if (
        !made.current ||
        made.current.spans !== timelineVersion.value ||
        made.current.machines !== machines
      ) {
        const gpus = machines.reduce((sum, machine) => sum + machine.gpus.length, 0);
        const room = (area.clientHeight - TOP - machines.length * 34) / Math.max(1, gpus);
        const layout = layoutOf(machines, Math.max(14, Math.min(76, Math.floor(room))));
        const picture = pictureOf(spans.values(), layout);
        made.current = { layout, picture, spans: timelineVersion.value, machines };
        const sizer = area.firstElementChild as HTMLElement;
        sizer.style.height = `${Math.max(area.clientHeight, layout.height + TOP)}px`;
      }
      return made.current;
    };
    const resized = new ResizeObserver(() => {
      made.current = null;
      redraw();
    });
    resized.observe(area);
    request = requestAnimationFrame(paint);
    return () => {
      cancelAnimationFrame(request);
      resized.disconnect();
    };
  }, [hover, live, redraw]);

  // -- pointer and keys

  const held = useRef<{ x: number; moved: boolean } | null>(null);
  const fingers = useRef(new Map<number, number>()); // pointers that are down, by where they are
  /** Two fingers: what was between them stays between them. */
  const pinch = (event: PointerEvent): void => {
    const area = frame.current;
    const [a, b] = [...fingers.current.values()] as [number, number];
    fingers.current.set(event.pointerId, event.clientX);
    const [c, d] = [...fingers.current.values()] as [number, number];
    held.current = { x: event.clientX, moved: true };
    if (!area || Math.abs(c - d) < 12 || Math.abs(a - b) < 12) return;
    const v = view.current;
    const part = ((a + b) / 2 - area.getBoundingClientRect().left - GUTTER) / box_width(area);
    live.value = false;
    setSpan(((v.to - v.from) * Math.abs(a - b)) / Math.abs(c - d), v.from + part * (v.to - v.from));
  };
  const find = (event: PointerEvent): Hover | null => {
    const area = frame.current;
    if (!area || !made.current) return null;
    const box = area.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const { layout, picture } = made.current;
    const scene = { width: area.clientWidth, height: area.clientHeight, layout, picture, view: view.current };
    const found = hit({ ...scene, now: now(), hover: null }, x, y);
    const span = found.mark?.span ?? found.block?.span;
    return span ? { x, y, span, mark: found.mark } : null;
  };
  const drag = (event: PointerEvent, from: { x: number; moved: boolean }): void => {
    const by = event.clientX - from.x;
    if (Math.abs(by) <= 3 && !from.moved) return;
    held.current = { x: event.clientX, moved: true };
    const v = view.current;
    live.value = false;
    pan((-by * (v.to - v.from)) / ((frame.current?.clientWidth ?? 1000) - GUTTER));
  };
  const move = (event: PointerEvent): void => {
    if (fingers.current.size === 2 && fingers.current.has(event.pointerId)) pinch(event);
    else if (held.current) drag(event, held.current);
    else {
      hover.value = find(event);
      redraw();
    }
  };
  const up = (event: PointerEvent): void => {
    fingers.current.delete(event.pointerId);
    const clicked = held.current && !held.current.moved;
    held.current = null;
    const found = clicked ? find(event) : null;
    if (found) go(`/jobs/${found.span.job}`);
  };
  const wheel = (event: WheelEvent): void => {
    const area = frame.current;
    if (!area) return;
    const v = view.current;
    const across =
      Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const box = area.getBoundingClientRect();
      const part = Math.max(0, (event.clientX - box.left - GUTTER) / (box.width - GUTTER));
      const around = live.value && part > 0.85 ? undefined : v.from + part * (v.to - v.from);
      if (around !== undefined) live.value = false;
      setSpan((v.to - v.from) * Math.exp(event.deltaY / 300), around);
    } else if (across) {
      event.preventDefault();
      live.value = false;
      pan((across * (v.to - v.from)) / box_width(area));
    }
  };
  const key = (event: KeyboardEvent): void => {
    const width = view.current.to - view.current.from;
    const act: Record<string, () => void> = {
      ArrowLeft: () => {
        live.value = false;
        pan(-width / 8);
      },
      ArrowRight: () => pan(width / 8),
      "+": () => setSpan(width / 1.5),
      "=": () => setSpan(width / 1.5),
      "-": () => setSpan(width * 1.5),
      Home: () => {
        live.value = true;
        redraw();
      },
    };
    const found = act[event.key];
    if (!found || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    found();
  };

  return (
    <section class="cluster" aria-labelledby="cluster-title">
      <header class="bar">
        <h1 id="cluster-title">Cluster</h1>
        <Summary />
        <div class="spacer" />
        <fieldset class="segments">
          <legend class="hidden">Time shown</legend>
          {PRESETS.map(([name, seconds]) => (
            <button
              type="button"
              key={name}
              aria-pressed={Math.abs(span_s.value - seconds) < 1}
              onClick={() => setSpan(seconds)}
            >
              {name}
            </button>
          ))}
        </fieldset>
        <button
          type="button"
          class="live-button"
          aria-pressed={live.value}
          onClick={() => {
            live.value = true;
            setSpan(span_s.value);
          }}
        >
          <span class="dot" /> Live
        </button>
        <button
          type="button"
          class="quiet"
          aria-pressed={asTable.value}
          onClick={() => (asTable.value = !asTable.value)}
        >
          As a table
        </button>
      </header>
      {truncated.value && (
        <p class="note">
          More runs happened in this time than can be shown; the oldest are left out. Zoom in.
        </p>
      )}
      {asTable.value ? (
        <LanesTable />
      ) : (
        <div
          class="lanes"
          ref={frame}
          tabIndex={0}
          role="application"
          aria-label="GPUs over time. Arrow keys pan, plus and minus zoom, Home goes back to now. The button As a table shows the same as text."
          onPointerDown={(event) => {
            if (event.button !== 0) return;
            fingers.current.set(event.pointerId, event.clientX);
            held.current = { x: event.clientX, moved: fingers.current.size > 1 };
          }}
          onPointerMove={move}
          onPointerUp={up}
          onPointerCancel={() => fingers.current.clear()}
          onPointerLeave={(event) => {
            fingers.current.delete(event.pointerId);
            held.current = null;
            hover.value = null;
            redraw();
          }}
          onWheel={wheel}
          onScroll={redraw}
          onKeyDown={key}
        >
          <div class="sizer">
            <canvas ref={canvas} data-testid="lanes" />
          </div>
          {cluster.value.nodes.every((machine) => machine.gpus.length === 0) && (
            <p class="empty">
              No GPUs yet. <code>swell up --gpus 4</code> declares slots on this machine;{" "}
              <code>swell node add</code> adds machines.
            </p>
          )}
          {hover.value && <Tip hover={hover.value} area={frame.current} />}
        </div>
      )}
      <footer class="legend">
        <span>
          <i class="sign good">▲</i> grew
        </span>
        <span>
          <i class="sign warn">▼</i> shrank
        </span>
        <span>
          <i class="sign warn">⇄</i> moved
        </span>
        <span>
          <i class="sign bad">✕</i> preempted
        </span>
        <span>
          <i class="sign bad">!</i> failed
        </span>
        <span class="wide-only">hatched: starting or stopping</span>
        <span class="wide-only">drag to pan, Ctrl + wheel or two fingers to zoom, click for the job</span>
        {loading.value && <span role="status">loading…</span>}
      </footer>
    </section>
  );
}

const box_width = (area: HTMLElement): number => area.clientWidth - GUTTER;

function Summary() {
  jobsVersion.value;
  const machines = cluster.value.nodes;
  const total = machines.reduce((sum, machine) => sum + machine.gpus_total, 0);
  const used = machines.reduce(
    (sum, machine) => sum + machine.gpus.filter((gpu) => gpu.jobs.length).length,
    0,
  );
  let [running, queued] = [0, 0];
  for (const job of jobs.values()) {
    if (holds(job)) running++;
    else if (job.state === "queued") queued++;
  }
  return (
    <p class="summary" data-testid="summary">
      <b>
        {used} of {total}
      </b>{" "}
      GPUs in use · <b>{running}</b> running · <b>{queued}</b> waiting
    </p>
  );
}

/** The same picture as text, for those who cannot see it. */
function LanesTable() {
  timelineVersion.value;
  const rows = useMemo(
    () => [...spans.values()].sort((a, b) => b.from_s - a.from_s).slice(0, 500),
    [timelineVersion.value],
  );
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Who had which GPUs when">
      <table>
        <thead>
          <tr>
            <th>Job</th>
            <th>GPUs</th>
            <th>From</th>
            <th>For</th>
            <th>Why</th>
            <th>How it ended</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((span) => (
            <tr key={`${span.job}.${span.attempt}.${span.from_s}`}>
              <td>
                <a href={`/jobs/${span.job}`}>
                  {span.name} #{span.job}
                </a>
              </td>
              <td>{span.where.map(([node, list]) => `${node}:${list.join(",")}`).join(" ")}</td>
              <td>{clock(span.from_s, true)}</td>
              <td>{duration((span.to_s ?? now()) - span.from_s)}</td>
              <td>{span.reason}</td>
              <td>
                {span.to_s ? [span.stop, span.stop_reason, span.exit].filter(Boolean).join(": ") : "holds it"}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
