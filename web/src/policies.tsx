/** Policies: the one that decides, what another would do to the jobs there are, and the switch. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Link } from "wouter-preact";
import { get, post, request } from "./api";
import { cluster } from "./live";
import { duration } from "./model";
import { colourOf } from "./theme";
import { Completion } from "./ui/completion";
import { failed, Ticks, tell } from "./ui/parts";

interface Policy {
  name: string;
  placer: string;
  options: Record<string, unknown>;
  policies: string[];
  placers: string[];
}

interface Outlook {
  starts_in_s: number;
  ends_in_s: number;
}

interface WhatIf {
  jobs: { job: number; name: string; before: Outlook | null; after: Outlook | null }[];
  before: Summary;
  after: Summary;
}

interface Summary {
  jobs: number;
  mean_s: number | null;
  p99_s: number | null;
  last_s: number | null;
}

export function PoliciesView() {
  const policy = useSignal<Policy | null>(null);
  const wanted = useSignal("");
  const placer = useSignal("");
  const effect = useSignal<(WhatIf & { policy: string }) | null>(null);
  const asking = useSignal(false);
  useEffect(() => {
    void get<Policy>("/v1/policy").then((found) => {
      policy.value = found;
      wanted.value ||= found.name;
      placer.value ||= found.placer;
    }, failed);
  }, [cluster.value.policy]);
  if (!policy.value) return <p role="status">loading…</p>;
  const ask = async (): Promise<void> => {
    asking.value = true;
    try {
      const found = await post<WhatIf>("/v1/what-if", { policy: wanted.value, placer: placer.value });
      effect.value = { ...found, policy: wanted.value };
    } catch (error) {
      failed(error);
    } finally {
      asking.value = false;
    }
  };
  const set = async (): Promise<void> => {
    try {
      policy.value = await request<Policy>("PUT", "/v1/policy", { name: wanted.value, placer: placer.value });
      tell(`${wanted.value} decides from now on`);
    } catch (error) {
      failed(error);
    }
  };
  const same = wanted.value === policy.value.name && placer.value === policy.value.placer;
  return (
    <section class="page policies" aria-labelledby="policies-title">
      <header class="bar">
        <h1 id="policies-title">Policies</h1>
        <p class="summary" data-testid="current-policy">
          <b>{policy.value.name}</b> decides how many, <b>{policy.value.placer}</b> which ones
        </p>
      </header>
      <div class="card chooser">
        <label>
          Policy{" "}
          <select value={wanted.value} onChange={(event) => (wanted.value = event.currentTarget.value)}>
            {policy.value.policies.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label>
          Placement{" "}
          <select value={placer.value} onChange={(event) => (placer.value = event.currentTarget.value)}>
            {policy.value.placers.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <button type="button" disabled={asking.value} onClick={() => void ask()}>
          {asking.value ? "Looking ahead…" : "What if?"}
        </button>
        <button type="button" class="primary" disabled={same} onClick={() => void set()}>
          Switch to it
        </button>
      </div>
      {effect.value && <Effects effect={effect.value} current={policy.value.name} />}
    </section>
  );
}

function Effects({ effect, current }: { effect: WhatIf & { policy: string }; current: string }) {
  const rows: [string, (one: Summary) => number | null][] = [
    ["Mean time to completion", (one) => one.mean_s],
    ["99 of 100 done within", (one) => one.p99_s],
    ["All done within", (one) => one.last_s],
  ];
  const ends = useMemo(
    () =>
      (["before", "after"] as const).map((when) => ({
        label: when === "before" ? current : effect.policy,
        times_s: effect.jobs.flatMap((one) => one[when]?.ends_in_s ?? []),
      })),
    [effect],
  );
  if (effect.jobs.length === 0)
    return <p class="card faint">No job runs or waits: a change would do nothing now.</p>;
  return (
    <>
      <div class="cards">
        <div class="card" data-testid="what-if">
          <h2>
            {effect.policy} instead of {current}
          </h2>
          <table>
            <thead>
              <tr>
                <th>From now</th>
                <th>{current}</th>
                <th>{effect.policy}</th>
                <th>Change</th>
              </tr>
            </thead>
            <tbody>
              {rows.map(([name, of]) => (
                <Compared key={name} name={name} before={of(effect.before)} after={of(effect.after)} />
              ))}
            </tbody>
          </table>
        </div>
        <div class="card" data-testid="what-if-ends">
          <Completion title="Percent of the jobs done, from now on" of={ends} />
        </div>
      </div>
      <div class="card">
        <h2>
          Job by job{" "}
          <small>
            ring: its end under {current}; dot: under {effect.policy}
          </small>
        </h2>
        <Dumbbells effect={effect} />
      </div>
    </>
  );
}

function Compared({ name, before, after }: { name: string; before: number | null; after: number | null }) {
  const change = before && after !== null ? (100 * (after - before)) / before : 0;
  const tone = change < -1 ? "good" : change > 1 ? "bad" : "faint";
  return (
    <tr>
      <td>{name}</td>
      <td>{before === null ? "—" : duration(before)}</td>
      <td>{after === null ? "—" : duration(after)}</td>
      <td class={tone}>
        {Math.abs(change) < 1
          ? "the same"
          : `${Math.abs(change).toFixed(0)} % ${change < 0 ? "sooner" : "later"}`}
      </td>
    </tr>
  );
}

/** When each job ends before (ring) and after (dot). */
function Dumbbells({ effect }: { effect: WhatIf }) {
  const shown = effect.jobs
    .filter((one) => one.before && one.after)
    .sort((a, b) => gain(b) - gain(a))
    .slice(0, 60);
  const last = Math.max(
    1,
    ...shown.flatMap((one) => [one.before?.ends_in_s ?? 0, one.after?.ends_in_s ?? 0]),
  );
  return (
    <ol class="dumbbells">
      <li class="axis" aria-hidden="true">
        <span />
        <span class="track">
          <Ticks last={last} />
        </span>
      </li>
      {shown.map((one) => {
        const [before, after] = [(one.before as Outlook).ends_in_s, (one.after as Outlook).ends_in_s];
        const [low, high] = [Math.min(before, after), Math.max(before, after)];
        const by = after - before;
        const says =
          Math.abs(by) < 1 ? "the same" : `${duration(Math.abs(by))} ${by < 0 ? "sooner" : "later"}`;
        return (
          <li key={one.job}>
            <Link href={`/jobs/${one.job}`} title={one.name}>
              {one.name}
            </Link>
            <span class="track" role="img" aria-label={`ends ${says}`}>
              <i
                class={`between ${by < 0 ? "good" : "bad"}`}
                style={{ left: `${(100 * low) / last}%`, width: `${(100 * (high - low)) / last}%` }}
              />
              <i class="ring" style={{ left: `${(100 * before) / last}%` }} />
              <i class="dot" style={{ left: `${(100 * after) / last}%`, background: colourOf(one.job) }} />
            </span>
            <span class="says">{says}</span>
          </li>
        );
      })}
    </ol>
  );
}

const gain = (one: WhatIf["jobs"][number]): number =>
  Math.abs((one.before?.ends_in_s ?? 0) - (one.after?.ends_in_s ?? 0));
