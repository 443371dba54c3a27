/** How many of the jobs are done after how long, one line for each policy. */
import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import { lineColour } from "../theme";
import { Chart } from "./chart";

interface Props {
  title: string;
  of: { label: string; times_s: number[] }[];
}

const UNITS: [number, string][] = [
  [2 * 86400, "days"],
  [2 * 3600, "hours"],
  [120, "minutes"],
];
const SECONDS: Record<string, number> = { days: 86400, hours: 3600, minutes: 60, seconds: 1 };

export function Completion({ title, of }: Props) {
  const most = Math.max(0, ...of.flatMap((one) => one.times_s));
  const unit = UNITS.find(([from]) => most >= from)?.[1] ?? "seconds";
  const data = useMemo(() => {
    const times = of.map((one) =>
      one.times_s.map((s) => s / (SECONDS[unit] as number)).sort((a, b) => a - b),
    );
    const xs = [...new Set([0, ...times.flat()])].sort((a, b) => a - b);
    const shares = times.map((own) => {
      let n = 0;
      return xs.map((x) => {
        while (n < own.length && (own[n] as number) <= x) n++;
        return own.length ? (100 * n) / own.length : null;
      });
    });
    return [xs, ...shares] as uPlot.AlignedData;
  }, [of]);
  const lines = of.map((one, i) => ({ label: one.label, colour: lineColour(i), step: true }));
  return <Chart title={title} x={unit} data={data} lines={lines} />;
}
