/**
 * Who we are: a session that ends by itself, never the daemon's token.
 *
 * It is kept in sessionStorage, which belongs to this origin (a cookie would be sent to every port of the machine),
 * and handed to new tabs of the same origin on request.
 */
import { signal } from "@preact/signals";

interface Session {
  token: string;
  ends_s: number;
  user: string; // in whose name this page acts, for the record
}

const KEY = "swell-session";
const channel = new BroadcastChannel("swell-session");

export const session = signal<Session | null>(stored());
/** Why there is none, for the form that asks for one. */
export const farewell = signal("");

function stored(): Session | null {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Session | null;
    return found && found.ends_s > Date.now() / 1000 ? found : null;
  } catch {
    return null;
  }
}

channel.onmessage = (event: MessageEvent<{ ask?: true; give?: Session; end?: true }>) => {
  if (event.data.ask && session.value) channel.postMessage({ give: session.value });
  if (event.data.give && !session.value) keep(event.data.give);
  if (event.data.end) drop("You logged out in another tab.");
};

function keep(found: Session): void {
  sessionStorage.setItem(KEY, JSON.stringify(found));
  farewell.value = "";
  session.value = found;
}

function drop(why: string): void {
  sessionStorage.removeItem(KEY);
  farewell.value = why;
  session.value = null;
}

export function expired(): void {
  if (session.value) drop("Your session has ended. Log in again; nothing you submitted is affected.");
}

export function logOut(): void {
  drop("You are logged out.");
  channel.postMessage({ end: true });
}

/** With the token of the daemon. Throws what the daemon says. */
export async function logIn(by: { token: string }): Promise<void> {
  keep(await opened({ Authorization: `Bearer ${by.token.trim()}` }, {}));
}

async function opened(by: Record<string, string>, body: { code?: string }): Promise<Session> {
  const answer = await fetch("/v1/ui/sessions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...by },
    body: JSON.stringify(body),
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.detail ?? "the daemon did not let us in");
  return found as Session;
}

/** At the start: a code behind the #, which is removed at once, or a session of another tab. */
export async function begin(): Promise<void> {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) history.replaceState(null, "", location.pathname);
  const [, found] = await Promise.all([ofAnotherTab(), code ? byCode(code) : null]);
  if (found && (isOurs(found) || confirm(question(found)))) keep(found);
}

async function byCode(code: string): Promise<Session | null> {
  try {
    return await opened({}, { code });
  } catch (error) {
    farewell.value = (error as Error).message;
    return null;
  }
}

async function ofAnotherTab(): Promise<void> {
  if (session.value) return;
  channel.postMessage({ ask: true });
  await new Promise((done) => setTimeout(done, 120));
}

/** A link of somebody else's must not make us work in their name unnoticed: what we submit would be theirs to read. */
function isOurs(found: Session): boolean {
  return !session.value || session.value.user === found.user;
}

function question(found: Session): string {
  const [now, then] = [session.value, found].map((one) => one?.user || "the daemon's owner");
  return `You are logged in as ${now}. This link logs you in as ${then}: go on as ${then}?`;
}
