/** Users and teams: what they have now, what they have had, what they are entitled to; tokens for those who may see them. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, request } from "./api";
import { clock, count, duration } from "./model";
import { failed, tell } from "./ui/parts";

interface Sums {
  name: string;
  gpus: number;
  running: number;
  queued: number;
  limits?: { queued: number; running: number }; // 0: none
  jobs: number;
  completed: number;
  failed: number;
  cancelled: number;
  ran_s: number;
  gpu_hours: number;
}

interface Usage {
  since_s: number;
  now_s: number;
  gpus_total: number;
  users: (Sums & { team: string; role: string | null })[];
  teams: (Sums & {
    quota: { gpus: number; borrow: boolean } | null;
    month: { gpu_hours: number; budget: number | null };
  })[];
}

interface Token {
  id: string;
  user: string;
  role: string;
  note: string;
  made_s: number;
  expires_s: number | null;
  last_used_s: number | null;
  last_used_from: string;
}

const TIMES: [string, number][] = [
  ["24 h", 86400],
  ["7 days", 7 * 86400],
  ["30 days", 30 * 86400],
  ["a year", 365 * 86400],
];
const EVERY_MS = 10_000;

export function UsersView() {
  const usage = useSignal<Usage | null>(null);
  const tokens = useSignal<Token[]>([]);
  const time = useSignal(7 * 86400);
  const load = async (): Promise<void> => {
    const since = Date.now() / 1000 - time.value;
    const [sums, keys] = await Promise.all([
      get<Usage>(`/v1/usage?since=${since.toFixed(0)}`),
      get<{ tokens: Token[] }>("/v1/tokens"),
    ]);
    usage.value = sums;
    tokens.value = keys.tokens;
  };
  useEffect(() => {
    const again = (): void => void load().catch(failed);
    again();
    const timer = setInterval(again, EVERY_MS);
    return () => clearInterval(timer);
  }, [time.value]);
  const found = usage.value;
  return (
    <section class="page users" aria-labelledby="users-title">
      <header class="bar">
        <h1 id="users-title">Users and teams</h1>
        {found && <p class="summary">{summary(found)}</p>}
        <div class="spacer" />
        <fieldset class="segments">
          <legend class="hidden">Time</legend>
          {TIMES.map(([name, seconds]) => (
            <button
              type="button"
              key={name}
              aria-pressed={time.value === seconds}
              onClick={() => (time.value = seconds)}
            >
              {name}
            </button>
          ))}
        </fieldset>
      </header>
      {!found && <p role="status">loading…</p>}
      {found && <Users usage={found} />}
      {found && <Teams usage={found} />}
      {tokens.value.length > 0 && <Tokens tokens={tokens.value} load={load} />}
    </section>
  );
}

function summary(usage: Usage): string {
  const hours = usage.users.reduce((sum, one) => sum + one.gpu_hours, 0);
  const held = usage.users.reduce((sum, one) => sum + one.gpus, 0);
  return `${held} of ${count(usage.gpus_total, "GPU")} held now · ${number(hours)} GPU hours`;
}

const number = (value: number): string =>
  value.toLocaleString([], { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 });

const HEAD = (
  <>
    <th class="metered">GPUs now</th>
    <th class="number">Running</th>
    <th class="number">Waiting</th>
    <th class="metered">GPU hours</th>
    <th class="number">Ran</th>
    <th class="number">Completed</th>
    <th class="number">Failed</th>
    <th class="number">Cancelled</th>
  </>
);

function Users({ usage }: { usage: Usage }) {
  const most = Math.max(1e-9, ...usage.users.map((one) => one.gpu_hours));
  return (
    <div class="card" data-testid="users">
      <h2>Users</h2>
      {usage.users.length === 0 ? (
        <p class="faint">Nobody has submitted a job in this time.</p>
      ) : (
        <div class="table-scroll" tabIndex={0} role="region" aria-label="Users">
          <table>
            <thead>
              <tr>
                <th>User</th>
                <th>Role</th>
                {HEAD}
              </tr>
            </thead>
            <tbody>
              {usage.users.map((one) => (
                <tr key={one.name}>
                  <th scope="row">
                    {one.name || "—"} {one.team && <small>{one.team}</small>}
                  </th>
                  <td>{one.role ?? <span class="faint">not added</span>}</td>
                  <Cells sums={one} of={usage.gpus_total} most={most} />
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}

function Teams({ usage }: { usage: Usage }) {
  const most = Math.max(1e-9, ...usage.teams.map((one) => one.gpu_hours));
  return (
    <div class="card" data-testid="teams">
      <h2>Teams</h2>
      {usage.teams.length === 0 ? (
        <p class="faint">
          No team yet: <code>swell user add NAME --team TEAM</code>, or <code>team:</code> in a job file.
          Quotas are in <code>options: quotas:</code> of config.yaml.
        </p>
      ) : (
        <div class="table-scroll" tabIndex={0} role="region" aria-label="Teams">
          <table>
            <thead>
              <tr>
                <th>Team</th>
                <th>Quota</th>
                <th class="metered" title="GPU hours of this calendar month (UTC), of the team’s budget">
                  This month
                </th>
                {HEAD}
              </tr>
            </thead>
            <tbody>
              {usage.teams.map((one) => (
                <tr key={one.name}>
                  <th scope="row">{one.name}</th>
                  <td>{quotaText(one.quota)}</td>
                  <td class="metered">
                    <Month {...one.month} />
                  </td>
                  <Cells sums={one} of={one.quota?.gpus ?? usage.gpus_total} most={most} />
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}

/** Against the team's budget, if it has one. */
function Month({ gpu_hours, budget }: { gpu_hours: number; budget: number | null }) {
  if (budget === null) return <>{number(gpu_hours)}</>;
  const text = `${number(gpu_hours)} of ${number(budget)}`;
  return <Meter value={gpu_hours} most={budget} text={text} over={gpu_hours >= budget} />;
}

function quotaText(quota: { gpus: number; borrow: boolean } | null): string {
  if (!quota) return "none";
  return `${count(quota.gpus, "GPU")}${quota.borrow ? "" : ", at most"}`;
}

function Cells({ sums, of, most }: { sums: Sums; of: number; most: number }) {
  return (
    <>
      <td class="metered">
        <Meter value={sums.gpus} most={of} text={`${sums.gpus} of ${of}`} over={sums.gpus > of} />
      </td>
      <td class="number">{limited(sums.running, sums.limits?.running)}</td>
      <td class="number">{limited(sums.queued, sums.limits?.queued)}</td>
      <td class="metered">
        <Meter value={sums.gpu_hours} most={most} text={number(sums.gpu_hours)} />
      </td>
      <td class="number">{duration(sums.ran_s)}</td>
      <td class="number">{sums.completed}</td>
      <td class="number">{sums.failed}</td>
      <td class="number">{sums.cancelled}</td>
    </>
  );
}

/** 3, or 3 of 4 where there is a limit. */
const limited = (value: number, limit: number | undefined): string =>
  limit ? `${value} of ${limit}` : `${value}`;

function Meter({ value, most, text, over }: { value: number; most: number; text: string; over?: boolean }) {
  const percent = Math.min(100, (100 * value) / Math.max(most, 1e-9));
  return (
    <span class={`meter ${over ? "over" : ""}`}>
      <span class="track" aria-hidden="true">
        <i style={{ width: `${percent}%` }} />
      </span>
      <span>{text}</span>
    </span>
  );
}

function Tokens({ tokens, load }: { tokens: Token[]; load: () => Promise<void> }) {
  const revoke = async (token: Token): Promise<void> => {
    try {
      await request("DELETE", `/v1/tokens/${encodeURIComponent(token.id)}`);
      tell(`token ${token.id} of ${token.user} works no longer`);
      await load();
    } catch (error) {
      failed(error);
    }
  };
  return (
    <div class="card" data-testid="tokens">
      <h2>Tokens</h2>
      <div class="table-scroll" tabIndex={0} role="region" aria-label="Tokens">
        <table>
          <thead>
            <tr>
              <th>User</th>
              <th>Token</th>
              <th>Role</th>
              <th>Note</th>
              <th>Made</th>
              <th>Expires</th>
              <th>Last used</th>
              <th>
                <span class="hidden">Revoke</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {tokens.map((token) => (
              <tr key={token.id}>
                <th scope="row">{token.user}</th>
                <td>
                  <code>{token.id}</code>
                </td>
                <td>{token.role}</td>
                <td>{token.note || "—"}</td>
                <td>{clock(token.made_s, true)}</td>
                <td>{token.expires_s ? clock(token.expires_s, true) : "never"}</td>
                <td>{lastUse(token)}</td>
                <td>
                  <button type="button" class="quiet danger" onClick={() => void revoke(token)}>
                    Revoke
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="faint">Uses are counted since the daemon started.</p>
    </div>
  );
}

function lastUse(token: Token): string {
  if (!token.last_used_s) return "not yet";
  return `${clock(token.last_used_s, true)}${token.last_used_from ? ` from ${token.last_used_from}` : ""}`;
}
