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
  step?: boolean; // holds until the next point
}

interface Props {
  title: string;
  x: string;
  data: uPlot.AlignedData;
  lines: Line[];
  height?: number;
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
          stroke: one.points ? "transparent" : one.colour,
          width: 2,
          ...(one.step && STEPPED ? { paths: STEPPED } : {}),
          ...(one.dash ? { dash: [6, 4] } : {}),
          ...(one.points
            ? { points: { show: true, size: 9, fill: one.colour, stroke: one.colour } }
            : { points: { show: false } }),
          spanGaps: true,
        }),
      ),
    ],
    legend: { live: true },
    cursor: { drag: { x: true, y: false } },
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
      <figcaption>{props.title}</figcaption>
      <div ref={box} />
    </figure>
  );
}
