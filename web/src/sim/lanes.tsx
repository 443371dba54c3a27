/** The lanes of one simulation: the whole of it, up to the moment that is played. */
import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { type LaneMachine, layoutOf, type Picture, pictureOf } from "../cluster/blocks";
import { draw, elapsed, hit, TOP } from "../cluster/draw";
import { inkNow } from "../cluster/ink";
import { count, duration, type Span } from "../model";
import { colourOf, theme } from "../theme";
import type { Comparison, Simulated } from "./model";

const LANES_H = 300; // pixels that lanes may take, about

interface Props {
  comparison: Comparison;
  run: Simulated;
  end: number;
  at: Signal<number>;
  chosen: Signal<number>; // job that is pointed at, in any of the pictures; 0: none
}

export function SimLanes({ comparison, run, end, at, chosen }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const tip = useSignal<{ span: Span; x: number; y: number } | null>(null);
  const layout = useMemo(() => {
    const gpus = comparison.machines.reduce((sum, one) => sum + one.gpus.length, 0);
    const lane_h = Math.max(3, Math.min(26, Math.floor(LANES_H / Math.max(1, gpus))));
    return layoutOf(comparison.machines.map(lanesOf), lane_h, lane_h >= 14 ? 22 : 0);
  }, [comparison]);
  const picture = useMemo(() => pictureOf(run.spans, layout), [run, layout]);
  const height = TOP + layout.height;
  const scene = (width: number, now: number) => ({
    width,
    height,
    layout,
    picture,
    view: { from: 0, to: end, scroll: 0 },
    now,
    hover: chosen.value ? { job: chosen.value, mark: null } : null,
  });

  const paint = (): void => {
    const paper = canvas.current;
    const ctx = paper?.getContext("2d");
    if (!paper || !ctx || !paper.clientWidth) return;
    const [width, ratio] = [paper.clientWidth, Math.min(2, devicePixelRatio)];
    if (paper.width !== Math.round(width * ratio)) paper.width = Math.round(width * ratio);
    if (paper.height !== Math.round(height * ratio)) paper.height = Math.round(height * ratio);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const axis = at.value < end ? elapsed : { ...elapsed, now: () => "" };
    draw({ ...scene(width, at.value), ctx, ink: inkNow(), axis });
  };
  useEffect(() => {
    const frame = requestAnimationFrame(paint);
    return () => cancelAnimationFrame(frame);
  }, [at.value, chosen.value, theme.value, picture]);
  useEffect(() => {
    const resized = new ResizeObserver(paint);
    if (canvas.current) resized.observe(canvas.current);
    return () => resized.disconnect();
  }, [picture]);

  const point = (event: PointerEvent): void => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const found = hit(scene(box.width, at.value), x, y);
    const span = found.mark?.span ?? found.block?.span;
    tip.value = span ? { span, x: Math.min(x + 14, box.width - 260), y: y + 16 } : null;
    chosen.value = span?.job ?? 0;
  };
  return (
    <div class="sim-lanes">
      <canvas
        ref={canvas}
        style={{ height: `${height}px` }}
        role="img"
        aria-label={`GPUs over time under ${run.policy}: ${describe(run, picture)}`}
        onPointerMove={point}
        onPointerLeave={() => {
          tip.value = null;
          chosen.value = 0;
        }}
      />
      {tip.value && <SimTip span={tip.value.span} x={tip.value.x} y={tip.value.y} />}
    </div>
  );
}

const lanesOf = (machine: { name: string; gpus: string[] }): LaneMachine => ({
  name: machine.name,
  condition: "ready",
  contact: "here",
  why: "",
  gpus: machine.gpus.map((type, index) => ({ index, type })),
});

function describe(run: Simulated, picture: Picture): string {
  const of = (kind: string): number => picture.marks.filter((mark) => mark.kind === kind).length;
  return `${count(run.figures.jobs, "job")}, grown ${of("grow")} times, shrunk ${of("shrink")}, preempted ${of("preempt")}`;
}

function SimTip({ span, x, y }: { span: Span; x: number; y: number }) {
  const gpus = span.where.reduce((sum, [, list]) => sum + list.length, 0);
  return (
    <div class="tip" style={{ left: `${Math.max(8, x)}px`, top: `${y}px` }} role="tooltip">
      <h2>
        <i class="swatch" style={{ background: colourOf(span.job) }} /> {span.name} <small>#{span.job}</small>
      </h2>
      <dl>
        <dt>held</dt>
        <dd>
          {count(gpus, "GPU")} for {duration((span.to_s ?? span.from_s) - span.from_s)}
        </dd>
        <dt>from</dt>
        <dd>{duration(span.from_s)} after the beginning</dd>
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
      </dl>
    </div>
  );
}
