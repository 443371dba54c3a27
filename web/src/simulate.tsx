/** Simulate: the present queue, a generated workload or a file under several policies, before any is switched to. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, post } from "./api";
import { cluster } from "./live";
import { count } from "./model";
import { ComparisonView } from "./sim/comparison";
import type { Comparison } from "./sim/model";

type Source = "queue" | "generated" | "trace";
const SOURCES: [Source, string][] = [
  ["queue", "The present queue"],
  ["generated", "A generated workload"],
  ["trace", "A file"],
];
const MOST = 4;
const MAX_BYTES = 2_000_000;
const FIRST = ["swell", "elastic-fifo"];

interface Wanted {
  source: Source;
  policies: string[];
  jobs: number;
  hours: number;
  seed: number;
  cluster: string;
  file: { name: string; content: string } | null;
}

export function SimulateView() {
  const known = useSignal<string[]>([]);
  const wanted = useSignal<Wanted>({
    source: "generated",
    policies: [],
    jobs: 60,
    hours: 4,
    seed: 1,
    cluster: "",
    file: null,
  });
  const found = useSignal<Comparison[] | null>(null);
  const wrong = useSignal("");
  const asking = useSignal(false);
  const set = (change: Partial<Wanted>): void => {
    wanted.value = { ...wanted.value, ...change };
  };
  useEffect(() => {
    void get<{ name: string; policies: string[] }>("/v1/policy").then(
      (policy) => {
        known.value = policy.policies;
        const first = [...new Set([policy.name, ...FIRST])].filter((name) => policy.policies.includes(name));
        if (wanted.value.policies.length === 0) set({ policies: first.slice(0, 2) });
      },
      (error: Error) => (wrong.value = error.message),
    );
  }, []);
  const run = async (event: Event): Promise<void> => {
    event.preventDefault();
    asking.value = true;
    wrong.value = "";
    try {
      found.value = await post<Comparison[]>("/v1/simulate", bodyOf(wanted.value));
    } catch (error) {
      wrong.value = (error as Error).message;
    } finally {
      asking.value = false;
    }
  };
  return (
    <section class="page simulate" aria-labelledby="simulate-title">
      <header class="bar">
        <h1 id="simulate-title">Simulate</h1>
        <p class="summary">What policies would do to the same jobs. Nothing is changed.</p>
      </header>
      <form class="card" onSubmit={(event) => void run(event)}>
        <fieldset class="segments">
          <legend class="hidden">Workload</legend>
          {SOURCES.map(([source, name]) => (
            <button
              type="button"
              key={source}
              aria-pressed={wanted.value.source === source}
              onClick={() => set({ source })}
            >
              {name}
            </button>
          ))}
        </fieldset>
        <Workload wanted={wanted.value} set={set} wrong={(text) => (wrong.value = text)} />
        <Policies known={known.value} chosen={wanted.value.policies} set={(policies) => set({ policies })} />
        <div class="bar">
          <button
            type="submit"
            class="primary"
            disabled={
              asking.value ||
              wanted.value.policies.length === 0 ||
              (wanted.value.source === "trace" && !wanted.value.file)
            }
          >
            {asking.value ? "Simulating…" : "Simulate"}
          </button>
          <span class="faint">Worked out beside the daemon, for at most a minute.</span>
        </div>
        <p class="wrong" role="status" data-testid="simulate-wrong">
          {wrong.value}
        </p>
      </form>
      {found.value?.map((one) => (
        <ComparisonView key={one.workload} comparison={one} />
      ))}
      {!found.value && !asking.value && (
        <p class="card empty">Choose jobs and up to {MOST} policies: their lanes appear here side by side.</p>
      )}
    </section>
  );
}

function bodyOf(wanted: Wanted): unknown {
  const { source, policies, jobs, hours, seed } = wanted;
  if (source === "queue") return { workload: source, policies };
  const where = { workload: source, policies, cluster: wanted.cluster.trim() };
  return source === "trace"
    ? { ...where, trace: wanted.file }
    : { ...where, generated: { jobs, hours, seed } };
}

function Workload(props: {
  wanted: Wanted;
  set: (change: Partial<Wanted>) => void;
  wrong: (text: string) => void;
}) {
  const { wanted, set } = props;
  if (wanted.source === "queue")
    return (
      <p class="faint">
        Jobs that run or wait now, on the machines there are, if nobody submits anything more.
      </p>
    );
  const gpus = cluster.value.nodes.reduce((sum, one) => sum + one.gpus_total, 0);
  return (
    <div class="fields">
      {wanted.source === "trace" ? (
        <label>
          File
          <input
            type="file"
            accept=".yaml,.yml,.json,.jsonl,.log,.csv"
            onChange={(event) => void read(event.currentTarget.files?.[0], set, props.wrong)}
          />
        </label>
      ) : (
        <>
          <NumberField name="Jobs" value={wanted.jobs} max={500} set={(jobs) => set({ jobs })} />
          <NumberField
            name="arrive over, hours"
            value={wanted.hours}
            max={336}
            step={0.5}
            set={(hours) => set({ hours })}
          />
          <NumberField name="Seed" value={wanted.seed} min={0} max={9999} set={(seed) => set({ seed })} />
        </>
      )}
      <label>
        Cluster
        <input
          type="text"
          value={wanted.cluster}
          maxLength={200}
          placeholder={gpus ? `as it is: ${count(gpus, "GPU")}` : "what fits"}
          onInput={(event) => set({ cluster: event.currentTarget.value })}
        />
      </label>
      <p class="faint">
        {wanted.source === "trace" && (
          <>
            Job files with <code>at:</code> and <code>takes:</code>, what <code>swell events --json</code>{" "}
            prints, or a trace as CSV (Philly, Helios, Alibaba).{" "}
          </>
        )}
        Another cluster: <code>4x8xA100,2x4</code> is four machines of eight A100s and two of four GPUs.
      </p>
    </div>
  );
}

async function read(
  file: File | undefined,
  set: (change: Partial<Wanted>) => void,
  wrong: (text: string) => void,
): Promise<void> {
  wrong("");
  if (!file) return set({ file: null });
  if (file.size > MAX_BYTES) {
    set({ file: null });
    return wrong(`${file.name} is larger than 2 MB; \`swell sim run --workload\` takes any size`);
  }
  set({ file: { name: file.name, content: await file.text() } });
}

function NumberField(props: {
  name: string;
  value: number;
  min?: number;
  max: number;
  step?: number;
  set: (value: number) => void;
}) {
  return (
    <label>
      {props.name}
      <input
        type="number"
        required
        min={props.min ?? props.step ?? 1}
        max={props.max}
        step={props.step ?? 1}
        value={props.value}
        onInput={(event) => {
          const value = event.currentTarget.valueAsNumber;
          if (Number.isFinite(value)) props.set(value);
        }}
      />
    </label>
  );
}

function Policies(props: { known: string[]; chosen: string[]; set: (chosen: string[]) => void }) {
  const full = props.chosen.length >= MOST;
  return (
    <fieldset class="ticks">
      <legend>Policies, up to {MOST}</legend>
      {props.known.map((name) => {
        const on = props.chosen.includes(name);
        const toggled = on ? props.chosen.filter((one) => one !== name) : [...props.chosen, name];
        return (
          <label class="tick" key={name}>
            <input type="checkbox" checked={on} disabled={full && !on} onChange={() => props.set(toggled)} />{" "}
            {name}
          </label>
        );
      })}
    </fieldset>
  );
}
