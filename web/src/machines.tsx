/** Machines: what they have, who is on them, and whether they may be given more. */
import { Link } from "wouter-preact";
import { post } from "./api";
import { cluster, jobs, jobsVersion } from "./live";
import { count, type Gpu, type Machine, memory, standing } from "./model";
import { colourOf } from "./theme";
import { failed, tell } from "./ui/parts";

async function change(machine: Machine, action: "cordon" | "uncordon" | "drain"): Promise<void> {
  try {
    await post(`/v1/nodes/${encodeURIComponent(machine.name)}/${action}`, { why: "from the dashboard" });
    tell(`${machine.name}: ${action === "uncordon" ? "takes jobs again" : `${action}ed`}`);
  } catch (error) {
    failed(error);
  }
}

export function MachinesView() {
  const { nodes } = cluster.value;
  return (
    <section class="page" aria-labelledby="machines-title">
      <header class="bar">
        <h1 id="machines-title">Machines</h1>
        <p class="summary">
          {count(nodes.length, "machine")},{" "}
          {count(
            nodes.reduce((sum, one) => sum + one.gpus_total, 0),
            "GPU",
          )}
        </p>
      </header>
      <div class="machine-cards">
        {nodes.map((machine) => (
          <MachineCard key={machine.name} machine={machine} />
        ))}
      </div>
      {nodes.length === 0 && <p class="card empty">No machine yet.</p>}
    </section>
  );
}

const MEANS: Record<string, string> = {
  ready: "takes jobs",
  cordoned: "keeps what it runs, takes nothing new",
  draining: "what it runs is checkpointed and moved away",
  quarantined: "set aside by Swell",
  away: "does not answer; its jobs go on by themselves",
  returning: "answers again; what is left of old attempts is ended first",
  lost: "has not answered for too long; its jobs are over",
};

function MachineCard({ machine }: { machine: Machine }) {
  jobsVersion.value;
  const state = standing(machine);
  const busy = machine.gpus.filter((gpu) => gpu.jobs.length).length;
  return (
    <article class="card machine" data-node={machine.name}>
      <h2>
        {machine.name} <span class={`state ${state}`}>{state}</span>
        {state !== machine.condition && machine.condition !== "ready" && <small>{machine.condition}</small>}
      </h2>
      <p class="faint">
        {MEANS[state] ?? ""}
        {machine.why && `: ${machine.why}`}
      </p>
      <p>
        <b>
          {busy} of {machine.gpus_total}
        </b>{" "}
        GPUs in use · {count(machine.cpus, "CPU")} · {memory(machine.memory_mib)} · {machine.executor}{" "}
        {machine.address}
      </p>
      <ul class="gpus">
        {machine.gpus.map((gpu) => (
          <GpuCell key={gpu.index} gpu={gpu} />
        ))}
      </ul>
      <div class="actions">
        {machine.condition === "ready" ? (
          <>
            <button type="button" onClick={() => void change(machine, "cordon")}>
              Cordon
            </button>
            <button type="button" onClick={() => void change(machine, "drain")}>
              Drain
            </button>
          </>
        ) : (
          <button type="button" onClick={() => void change(machine, "uncordon")}>
            Uncordon
          </button>
        )}
      </div>
    </article>
  );
}

/** What the driver measures: how busy it is, and how full. */
function Use({ gpu, used }: { gpu: Gpu; used: number }) {
  const percent = gpu.utilisation_percent;
  return (
    <small class="use">
      {percent !== null && (
        <>
          <meter min={0} max={100} value={percent} aria-label={`utilisation of GPU ${gpu.index}`} /> {percent}{" "}
          % busy,{" "}
        </>
      )}
      {memory(used)} in use
    </small>
  );
}

function GpuCell({ gpu }: { gpu: Gpu }) {
  const first = gpu.jobs[0];
  const job = first === undefined ? undefined : jobs.get(first);
  const state = gpu.others
    ? "used by somebody else"
    : gpu.health !== "ok"
      ? `${gpu.health}: ${gpu.why}`
      : "free";
  return (
    <li
      class={first === undefined ? "" : "busy"}
      style={first === undefined ? {} : { background: colourOf(first) }}
    >
      <small>
        {gpu.type === "gpu" ? "slot" : gpu.type} {gpu.index}
        {gpu.memory_mib ? `, ${memory(gpu.memory_mib)}` : ""}
      </small>
      {first === undefined ? (
        <span>{state}</span>
      ) : (
        <Link href={`/jobs/${first}`}>
          {job?.name ?? `job ${first}`}
          {gpu.jobs.length > 1 && ` +${gpu.jobs.length - 1}`}
        </Link>
      )}
      {gpu.memory_used_mib !== null && <Use gpu={gpu} used={gpu.memory_used_mib} />}
    </li>
  );
}
