/** uPlot with our colours. */
import { useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme } from "../theme";

const STEPPED = uPlot.paths.stepped?.({ align: 1 });

export interface Line {
  label: string;
  colour: string;
  points?: boolean; // measured: dots without a line
  dash?: boolean;
  edge?: boolean; // of the band: not drawn, its value is shown
  step?: boolean; // holds until the next point
}

interface Props {
  title: string;
  x: string;
  data: uPlot.AlignedData;
  lines: Line[];
  height?: number;
  band?: [number, number]; // filled between these two lines, upper first
}

function options(props: Props, width: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const [faint, line] = [style.getPropertyValue("--faint").trim(), style.getPropertyValue("--line").trim()];
  const axis: uPlot.Axis = {
    stroke: faint,
    grid: { stroke: line, width: 1 },
    ticks: { stroke: line, width: 1 },
  };
  return {
    width,
    height: props.height ?? 220,
    scales: { x: { time: false } },
    axes: [{ ...axis, label: props.x, labelSize: 22, size: 40 }, axis],
    series: [
      { label: props.x, value: (_, found) => (found === null ? "" : found.toLocaleString()) },
      ...props.lines.map(
        (one): uPlot.Series => ({
          label: one.label,
          value: (_, found) => (found === null ? "" : Number(found.toPrecision(4)).toLocaleString()),
          stroke: one.points || one.edge ? "transparent" : one.colour,
          width: 2,
          ...(one.step && STEPPED ? { paths: STEPPED } : {}),
          ...(one.dash ? { dash: [6, 4] } : {}),
          ...(one.points
            ? { points: { show: true, size: 9, fill: one.colour, stroke: one.colour } }
            : { points: { show: (plot: uPlot) => (plot.data[0]?.length ?? 0) < 2 } }), // of which no line can be drawn
          spanGaps: true,
        }),
      ),
    ],
    bands: props.band ? [{ series: props.band, fill: `${props.lines[0]?.colour}2e` }] : [],
    legend: { live: true, markers: { width: 2, ...markersOf(props.lines) } },
    cursor: { drag: { x: true, y: false } },
  };
}

/** In the legend: full for what was measured, a ring for a line, pale for the band. */
function markersOf(lines: Line[]): Pick<uPlot.Legend.Markers, "stroke" | "fill"> {
  const of = (i: number): Line | undefined => lines[i - 1];
  return {
    stroke: (_, i) => (of(i)?.edge ? "transparent" : (of(i)?.colour ?? "transparent")),
    fill: (_, i) =>
      (of(i)?.points ? of(i)?.colour : of(i)?.edge ? `${of(i)?.colour}2e` : "transparent") ?? "",
  };
}

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shape = `${theme.value}|${props.lines.map((one) => one.label).join()}|${props.x}`;
  useSignalEffect(() => {
    theme.value;
  });
  useEffect(() => {
    const area = box.current;
    if (!area) return;
    plot.current = new uPlot(options(props, area.clientWidth || 400), props.data, area);
    const resized = new ResizeObserver(() =>
      plot.current?.setSize({ width: area.clientWidth, height: props.height ?? 220 }),
    );
    resized.observe(area);
    return () => {
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(props.data), [props.data]);
  return (
    <figure class="chart">
      {props.title && <figcaption>{props.title}</figcaption>}
      <div ref={box} />
    </figure>
  );
}
