/** Requests and server-sent events with the session's token. */
import { expired, session } from "./session";

export interface Problem {
  path: string;
  what: string;
  fix: string;
  line?: number;
}

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly problems: Problem[] = [],
  ) {
    super(message);
  }
}

function headers(more: Record<string, string> = {}): Record<string, string> {
  const user = encodeURIComponent(session.value?.user || "dashboard");
  return { Authorization: `Bearer ${session.value?.token ?? ""}`, "Swell-User": user, ...more };
}

async function refused(answer: Response): Promise<Refused> {
  if (answer.status === 401) expired();
  const body = await answer.json().catch(() => ({}));
  return new Refused(
    answer.status,
    body.detail ?? `the daemon answered ${answer.status}`,
    body.problems ?? [],
  );
}

export async function request<T>(
  method: string,
  path: string,
  body?: unknown,
  type = "application/json",
): Promise<T> {
  const data = body === undefined ? null : typeof body === "string" ? body : JSON.stringify(body);
  const sent = headers(body === undefined ? {} : { "Content-Type": type });
  if (method === "POST" && path === "/v1/jobs") sent["Idempotency-Key"] = crypto.randomUUID();
  let answer: Response;
  try {
    answer = await fetch(path, { method, headers: sent, body: data });
  } catch {
    throw new Refused(0, "the daemon does not answer; it may be restarting");
  }
  if (!answer.ok) throw await refused(answer);
  return (await answer.json()) as T;
}

export const get = <T>(path: string): Promise<T> => request<T>("GET", path);
export const post = <T>(path: string, body?: unknown): Promise<T> => request<T>("POST", path, body);

export async function bytes(path: string): Promise<Uint8Array> {
  const answer = await fetch(path, { headers: headers() });
  if (!answer.ok) throw await refused(answer);
  return new Uint8Array(await answer.arrayBuffer());
}

/** The answer itself, to be read as it comes. */
export async function open(path: string): Promise<Response> {
  const answer = await fetch(path, { headers: headers() });
  if (!answer.ok) throw await refused(answer);
  return answer;
}

export interface Message {
  event: string;
  data: unknown;
  id: string;
}

/** Messages of one connection, until it ends. Throws Refused, or what the network says. */
export async function* stream(path: string, last: string, stop: AbortSignal): AsyncGenerator<Message> {
  const sent = headers({ Accept: "text/event-stream" });
  if (last) sent["Last-Event-ID"] = last;
  const answer = await fetch(path, { headers: sent, signal: stop });
  if (!answer.ok || !answer.body) throw await refused(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop() ?? "";
    for (const part of parts) {
      const message = parsed(part);
      yield message ?? { event: "", data: null, id: "" };
    }
  }
}

function parsed(text: string): Message | null {
  const message: Message = { event: "message", data: null, id: "" };
  for (const line of text.split("\n")) {
    const at = line.indexOf(": ");
    const [key, value] = [line.slice(0, at), line.slice(at + 2)];
    if (key === "event") message.event = value;
    else if (key === "id") message.id = value;
    else if (key === "data") message.data = JSON.parse(value);
  }
  return message.data === null ? null : message;
}
