/** Curves of a job: how fast it is on how many GPUs, what its epochs reported, what was measured within them. */
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { clock, duration, type JobDetail } from "./model";
import { lineColour, theme } from "./theme";
import { Chart, type Line } from "./ui/chart";

export interface Speed {
  family: string;
  reference_type: string;
  source: string;
  confidence: number;
  epoch_1_s: number;
  curves: Record<string, [number, number][]>;
  points: { gpus: number; gpu_type: string; epochs: number; epoch_s: number; speed: number }[];
}

export interface Epoch {
  epoch: number;
  metrics: Record<string, number>;
  epoch_s: number;
  gpus: number;
}

export function SpeedUp({ speed, job }: { speed: Speed; job: JobDetail }) {
  const types = Object.keys(speed.curves).filter(
    (type) =>
      Object.keys(speed.curves).length === 1 ||
      speed.points.some((p) => p.gpu_type === type) ||
      type === speed.reference_type,
  );
  const xs = useMemo(() => {
    const all = new Set([
      0,
      ...types.flatMap((type) => (speed.curves[type] ?? []).map(([n]) => n)),
      ...speed.points.map((p) => p.gpus),
    ]);
    return [...all].sort((a, b) => a - b);
  }, [speed]);
  const curve = types.map((type) => {
    const known = new Map<number, number>([[0, 0], ...(speed.curves[type] ?? [])]);
    return xs.map((x) => known.get(x) ?? null);
  });
  const points = types.map((type) => {
    const own = new Map(
      speed.points.filter((p) => p.gpu_type === type || types.length === 1).map((p) => [p.gpus, p.speed]),
    );
    return xs.map((x) => own.get(x) ?? null);
  });
  const bandOf = types.find((type) => speed.points.some((p) => p.gpu_type === type)) ?? types[0] ?? "";
  const [low, high] = bandAround(xs, speed, bandOf);
  const which = (type: string, what: string): string => (types.length > 1 ? `${type}, ${what}` : what);
  const lines: Line[] = [
    { label: "at least", colour: lineColour(types.indexOf(bandOf)), edge: true },
    { label: "at most", colour: lineColour(types.indexOf(bandOf)), edge: true },
    ...types.map((type, i) => ({ label: which(type, "model"), colour: lineColour(i) })),
    ...types.map((type, i) => ({ label: which(type, "measured"), colour: lineColour(i), points: true })),
    { label: "ideal", colour: theme.value === "dark" ? "#7d8aa3" : "#77839a", dash: true },
  ];
  const says: Record<string, string> = {
    measured: "from its own epochs",
    family: "from earlier jobs of its family",
    prior: "a guess before anything was measured",
  };
  return (
    <div class="card" data-testid="speed">
      <Chart
        title={`Speed-up: ${says[speed.source] ?? speed.source} (confidence ${Math.round(100 * speed.confidence)} %)`}
        x="GPUs"
        data={[xs, low, high, ...curve, ...points, xs] as uPlot.AlignedData}
        lines={lines}
        band={[2, 1]}
      />
      <p class="faint">
        1 is one {speed.reference_type || "GPU"}
        {speed.epoch_1_s ? `, where ${span(job.progress.unit, speed.epoch_1_s)}` : ""}. Job may have{" "}
        {job.gpus.min} to {job.gpus.max}. Pale: what the measured sizes leave open.
      </p>
    </div>
  );
}

/**
 * All that a concave curve through what was measured can be: between two sizes no lower than the line that joins them, no
 * higher than its neighbours' lines drawn on; beyond the last no lower than that, nowhere above ideal. The model's curve
 * is within, since measurements scatter.
 */
function bandAround(xs: number[], speed: Speed, type: string): [number[], number[]] {
  const model = new Map<number, number>([[0, 0], ...(speed.curves[type] ?? [])]);
  const own = speed.points.filter((p) => p.gpu_type === type).map((p): [number, number] => [p.gpus, p.speed]);
  const known = new Map<number, number>([
    [0, 0],
    ...(own.length ? own : [[1, model.get(1) ?? 1] as [number, number]]),
  ]);
  const at = [...known].sort((a, b) => a[0] - b[0]);
  const line = (i: number, x: number): number => {
    const [[x0, y0], [x1, y1]] = [at[i], at[i + 1]] as [[number, number], [number, number]];
    return y0 + ((x - x0) * (y1 - y0)) / (x1 - x0);
  };
  const bounds = xs.map((x) => {
    const i = at.findLastIndex(([gpus]) => gpus <= x);
    const here = known.get(x);
    const inside = i + 1 < at.length;
    const low = here ?? (inside ? line(i, x) : (at[i]?.[1] ?? 0));
    const above = [...(i > 0 ? [line(i - 1, x)] : []), ...(i + 2 < at.length ? [line(i + 1, x)] : [])];
    const high = here ?? Math.min(x * Math.max(1, model.get(1) ?? 1), ...above);
    const curve = model.get(x) ?? low;
    return [Math.min(low, curve), Math.max(high, low, curve)] as [number, number];
  });
  return [bounds.map(([low]) => low), bounds.map(([, high]) => high)];
}

/** "an epoch takes 12 min", "1,000 steps take 40 s": so many that it is a time people know. */
function span(unit: string, unit_s: number): string {
  if (unit === "epoch" || unit_s >= 10)
    return `${unit === "epoch" ? "an" : "a"} ${unit} takes ${duration(unit_s)}`;
  const many = 10 ** Math.ceil(Math.log10(10 / unit_s));
  return `${many.toLocaleString()} ${unit}s take ${duration(many * unit_s)}`;
}

/** What its epochs reported: at first what is of one size, so that a loss is not flat beside samples per second. */
export function Metrics({ epochs, unit }: { epochs: Epoch[]; unit: string }) {
  const names = useMemo(
    () => [...new Set(epochs.flatMap((one) => Object.keys(one.metrics ?? {})))],
    [epochs],
  );
  const switched = useSignal<Record<string, boolean>>({});
  const alike = useMemo(() => ofOneSize(names, epochs), [epochs]);
  const chosen = names.filter((name) => switched.value[name] ?? alike.has(name));
  const data = useMemo(() => {
    const xs = epochs.map((one) => one.epoch);
    return [
      xs,
      ...chosen.map((name) => epochs.map((one) => one.metrics?.[name] ?? null)),
    ] as uPlot.AlignedData;
  }, [epochs, chosen.join()]);
  if (names.length === 0)
    return (
      <p class="card faint">
        No metric yet. <code>run.log(loss=…)</code> in the training code shows it here.
      </p>
    );
  const flip = (name: string): void => {
    switched.value = { ...switched.value, [name]: !chosen.includes(name) };
  };
  return (
    <div class="card" data-testid="metrics">
      <Chart
        title="Metrics"
        x={unit}
        data={data}
        lines={chosen.map((label) => ({ label, colour: lineColour(names.indexOf(label)) }))}
      />
      {names.length > 1 && (
        <fieldset class="ticks">
          <legend class="hidden">Metrics shown</legend>
          {names.map((name) => (
            <label class="tick" key={name}>
              <input type="checkbox" checked={chosen.includes(name)} onChange={() => flip(name)} /> {name}
            </label>
          ))}
        </fieldset>
      )}
    </div>
  );
}

const ALIKE = 20; // times as large, or as small
const AT_FIRST = 4;

/** Metrics that can be read on the scale of the first. */
function ofOneSize(names: string[], epochs: Epoch[]): Set<string> {
  const largest = (name: string): number =>
    Math.max(...epochs.map((one) => Math.abs(one.metrics?.[name] ?? 0)).filter(Number.isFinite), 1e-12);
  const first = largest(names[0] ?? "");
  const near = names.filter((name) => Math.abs(Math.log(largest(name) / first)) <= Math.log(ALIKE));
  return new Set(near.slice(0, AT_FIRST));
}

/** What the library measured within epochs, since the daemon started. */
export function Lately({ series }: { series: Record<string, [number, number][]> }) {
  const names = Object.keys(series).filter((name) => (series[name]?.length ?? 0) > 1);
  const chosen = useSignal("");
  const name = names.includes(chosen.value) ? chosen.value : names[0];
  const points = name ? (series[name] ?? []) : [];
  const from = points[0]?.[0] ?? 0;
  const data = useMemo(
    () => [points.map(([at]) => (at - from) / 60), points.map(([, value]) => value)] as uPlot.AlignedData,
    [series, name],
  );
  if (!name) return null;
  return (
    <div class="card" data-testid="series">
      <label>
        Within epochs:{" "}
        <select value={name} onChange={(event) => (chosen.value = event.currentTarget.value)}>
          {names.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      <Chart
        title=""
        x={`minutes since ${clock(from)}`}
        data={data}
        lines={[{ label: name, colour: lineColour(2) }]}
      />
    </div>
  );
}
