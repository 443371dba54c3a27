/** The dashboard: one page, its views by path, behind a log-in. */
import { effect, useSignal } from "@preact/signals";
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { Link, Route, Switch, useLocation } from "wouter-preact";
import { ClusterView } from "./cluster/view";
import { DocsView } from "./docs";
import { ForecastView } from "./forecast";
import { JobView } from "./job";
import { JobsView } from "./jobs";
import { cluster, connection, daemonVersion, follow } from "./live";
import { MachinesView } from "./machines";
import { duration } from "./model";
import { PoliciesView } from "./policies";
import { begin, farewell, logIn, logOut, session } from "./session";
import { SimulateView } from "./simulate";
import "./styles.css";
import { SubmitView } from "./submit";
import { theme, toggleTheme } from "./theme";
import { Notice } from "./ui/parts";
import { UsersView } from "./users";

const VIEWS: [string, string, string][] = [
  ["/", "Cluster", "c"],
  ["/jobs", "Jobs", "j"],
  ["/forecast", "Forecast", "f"],
  ["/policies", "Policies", "p"],
  ["/simulate", "Simulate", "s"],
  ["/machines", "Machines", "m"],
  ["/users", "Users", "u"],
  ["/submit", "New job", "n"],
];

function App() {
  return session.value ? <Shell /> : <LogIn />;
}

function Shell() {
  const [path, go] = useLocation();
  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      const target = event.composedPath()[0] as HTMLElement;
      const typing = target.closest?.("input, textarea, select, [contenteditable]");
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/") {
        event.preventDefault();
        document.querySelector<HTMLInputElement>("input[type=search]")?.focus();
      }
      const view = VIEWS.find(([, , key]) => key === event.key);
      if (view) go(view[0]);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [go]);
  useEffect(() => {
    const view = VIEWS.find(([to]) => to === path);
    document.title = `${view?.[1] ?? (path === "/docs" ? "API" : path.slice(1))} · Swell`;
  }, [path]);
  return (
    <>
      <a class="skip" href="#content">
        Skip to content
      </a>
      <header class="top">
        <Link href="/" class="brand" aria-label="Swell: cluster">
          <Logo /> Swell
        </Link>
        <nav aria-label="Views">
          {VIEWS.map(([to, name, key]) => (
            <Link
              key={to}
              href={to}
              title={`${name} (${key})`}
              aria-current={path === to || (to === "/jobs" && path.startsWith("/jobs/")) ? "page" : undefined}
            >
              {name}
            </Link>
          ))}
        </nav>
        <div class="spacer" />
        <Status />
        <Link href="/docs" class="quiet wide-only" title="Every route of the API">
          API
        </Link>
        <button type="button" class="quiet" onClick={toggleTheme} aria-label="Switch between light and dark">
          {theme.value === "dark" ? "☀" : "☾"}
        </button>
        {session.value?.user && <span class="faint wide-only">{session.value.user}</span>}
        <button type="button" class="quiet" onClick={logOut}>
          Log out
        </button>
      </header>
      <Stale />
      <main id="content" tabIndex={-1}>
        <Switch>
          <Route path="/" component={ClusterView} />
          <Route path="/jobs" component={JobsView} />
          <Route path="/jobs/:id">{(params) => <JobView key={params.id} id={Number(params.id)} />}</Route>
          <Route path="/forecast" component={ForecastView} />
          <Route path="/policies" component={PoliciesView} />
          <Route path="/simulate" component={SimulateView} />
          <Route path="/machines" component={MachinesView} />
          <Route path="/users" component={UsersView} />
          <Route path="/submit" component={SubmitView} />
          <Route path="/docs" component={DocsView} />
          <Route>
            <p class="card empty">There is no such page.</p>
          </Route>
        </Switch>
      </main>
      <Notice />
    </>
  );
}

function Logo() {
  return (
    <svg viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="#12294a" />
      <rect x="5" y="7" width="9" height="4" rx="2" fill="#4ea1ff" />
      <rect x="5" y="14" width="22" height="4" rx="2" fill="#2dd4a7" />
      <rect x="5" y="21" width="15" height="4" rx="2" fill="#ffb454" />
    </svg>
  );
}

function Status() {
  const { state } = connection.value;
  const degraded = cluster.value.health.degraded;
  const says = { live: "live", stale: "stale", connecting: "connecting…" }[state];
  return (
    <span class={`status ${state}`} data-testid="status" title={`swell ${daemonVersion.value}`}>
      <span class="dot" /> {degraded ? "cannot write" : says}
    </span>
  );
}

/** What is shown may be old: said plainly, with how old. */
function Stale() {
  const tick = useSignal(0);
  const { state, since_s, why } = connection.value;
  useEffect(() => {
    const timer = setInterval(() => tick.value++, 1000);
    return () => clearInterval(timer);
  }, []);
  const age = Date.now() / 1000 - since_s + 0 * tick.value;
  const degraded = cluster.value.health.degraded;
  if (state === "live" && degraded)
    return (
      <p class="stale" role="alert">
        The daemon cannot write to its disk: {degraded}. Running jobs go on.
      </p>
    );
  if (state !== "stale" || age < 1) return null;
  return (
    <p class="stale" role="alert" data-testid="stale">
      What you see is {duration(age)} old: {why}. Trying again; running jobs are not affected.
    </p>
  );
}

function LogIn() {
  const token = useSignal("");
  const wrong = useSignal("");
  const provider = useSignal(false);
  useEffect(() => {
    const ask = async (): Promise<void> => {
      const answer = await fetch("/v1/health");
      provider.value = Boolean((await answer.json()).oidc);
    };
    ask().catch(() => undefined); // a daemon that does not answer is told of at the next attempt to log in
  }, []);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await logIn({ token: token.value });
    } catch (error) {
      wrong.value = (error as Error).message;
    }
  };
  return (
    <main class="login">
      <form class="card" onSubmit={submit}>
        <h1>
          <Logo /> Swell
        </h1>
        {farewell.value && (
          <p class="note" role="alert" data-testid="farewell">
            {farewell.value}
          </p>
        )}
        {provider.value && (
          <p>
            <a class="button primary" href="/v1/ui/oidc">
              Log in with your organisation’s account
            </a>
          </p>
        )}
        <p>
          <code>swell ui</code> opens this page and logs you in. Or paste the token of the daemon:
        </p>
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autocomplete="off"
          required
          aria-invalid={Boolean(wrong.value)}
          aria-describedby="token-wrong"
          value={token.value}
          onInput={(event) => (token.value = event.currentTarget.value)}
        />
        <p class="wrong" id="token-wrong" role="status">
          {wrong.value}
        </p>
        <button type="submit" class="primary">
          Log in
        </button>
        <p class="faint">
          It is in the file <code>token</code> in the daemon’s home, <code>~/.swell</code>.
        </p>
      </form>
    </main>
  );
}

void begin().then(() => {
  render(<App />, document.getElementById("app") as HTMLElement);
  let following = false;
  effect(() => {
    if (session.value && !following) {
      following = true;
      void follow().finally(() => (following = false));
    }
  });
});
