/** The API browser: every route of /v1/openapi.json, what it takes and answers, and a form to call it. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, Refused, request } from "./api";
import {
  bodyOf,
  type Document,
  fieldsOf,
  filled,
  type Operation,
  operationsOf,
  type Parameter,
  typeOf,
} from "./openapi";
import { failed } from "./ui/parts";

const MAX_SHOWN = 20_000;

export function DocsView() {
  const document = useSignal<Document | null>(null);
  const wanted = useSignal("");
  useEffect(() => {
    get<Document>("/v1/openapi.json").then((found) => (document.value = found), failed);
  }, []);
  const found = document.value;
  const words = wanted.value.toLowerCase().split(/\s+/);
  const shown = found
    ? operationsOf(found).filter((one) => words.every((word) => one.text.includes(word)))
    : [];
  const tags = [...new Set(shown.map((one) => one.tag))];
  return (
    <section class="page docs" aria-labelledby="docs-title">
      <header class="bar">
        <h1 id="docs-title">API</h1>
        {found && (
          <p class="summary">
            {shown.length} routes of Swell {found.info.version}, from <code>GET /v1/openapi.json</code>
          </p>
        )}
        <div class="spacer" />
        <input
          type="search"
          aria-label="Search routes"
          placeholder="Search routes"
          value={wanted.value}
          onInput={(event) => (wanted.value = event.currentTarget.value)}
        />
      </header>
      {!found && <p role="status">loading…</p>}
      {found && shown.length === 0 && <p class="card empty">No route has these words.</p>}
      {found &&
        tags.map((tag) => (
          <div class="card" key={tag} data-testid={`docs-${tag}`}>
            <h2>{tag}</h2>
            {shown
              .filter((one) => one.tag === tag)
              .map((one) => (
                <RouteItem key={one.id} document={found} operation={one} />
              ))}
          </div>
        ))}
    </section>
  );
}

/** What a route takes is made when it is opened: most never are. */
function RouteItem({ document, operation }: { document: Document; operation: Operation }) {
  const opened = useSignal(false);
  return (
    <details class="route" onToggle={(event) => (opened.value = event.currentTarget.open)}>
      <summary>
        <b class={`verb ${operation.method}`}>{operation.method.toUpperCase()}</b>{" "}
        <code>{operation.path}</code> <span class="faint">{operation.summary}</span>
      </summary>
      {opened.value && <Opened document={document} operation={operation} />}
    </details>
  );
}

function Opened({ document, operation }: { document: Document; operation: Operation }) {
  const body = bodyOf(operation);
  return (
    <div class="route-body">
      {operation.description && <p>{operation.description}</p>}
      {body && (
        <>
          <h3>Body: {typeOf(body.schema)}</h3>
          <dl>
            {fieldsOf(document, body.schema).map(([name, schema, required]) => (
              <div key={name}>
                <dt>
                  <code>{name}</code> <small>{typeOf(schema)}</small> {required && <small>needed</small>}
                </dt>
                <dd>{schema.description}</dd>
              </div>
            ))}
          </dl>
        </>
      )}
      <Try operation={operation} body={body?.type ?? ""} />
      <h3>Answers</h3>
      <dl>
        {Object.entries(operation.responses).map(([status, answer]) => (
          <div key={status}>
            <dt>
              <code>{status}</code>
            </dt>
            <dd>{answer.description}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function Try({ operation, body }: { operation: Operation; body: string }) {
  const values = useSignal<Record<string, string>>({});
  const text = useSignal("");
  const answer = useSignal("");
  const path = filled(operation, values.value);
  const send = async (event: Event): Promise<void> => {
    event.preventDefault();
    answer.value = "…";
    try {
      const sent = body && text.value ? text.value : undefined;
      const found = await request<unknown>(operation.method.toUpperCase(), path, sent, body || undefined);
      answer.value = JSON.stringify(found, null, 2).slice(0, MAX_SHOWN);
    } catch (error) {
      const status = error instanceof Refused && error.status ? `${error.status}: ` : "";
      answer.value = `${status}${(error as Error).message}`;
    }
  };
  return (
    <form onSubmit={send}>
      <h3>Call it</h3>
      {operation.parameters.map((one) => (
        <Field key={one.name} of={one} values={values} />
      ))}
      {body && (
        <label>
          Body ({body})
          <textarea
            rows={4}
            value={text.value}
            onInput={(event) => (text.value = event.currentTarget.value)}
          />
        </label>
      )}
      <pre class="command">{commandOf(operation.method.toUpperCase(), path, body)}</pre>
      {operation.streams ? (
        <p class="faint">Its answer is a stream or a file: read it with a program.</p>
      ) : (
        <button type="submit" class={operation.method === "get" ? "primary" : "danger"}>
          {operation.method === "get" ? "Ask" : "Do it"}
        </button>
      )}
      {answer.value && (
        <pre class="answer" role="status" data-testid="answer">
          {answer.value}
        </pre>
      )}
    </form>
  );
}

function Field({ of, values }: { of: Parameter; values: { value: Record<string, string> } }) {
  return (
    <label>
      {of.name} <small class="faint">{typeOf(of.schema)}</small>
      <input
        required={of.required ?? false}
        placeholder={of.description ?? ""}
        value={values.value[of.name] ?? ""}
        onInput={(event) => (values.value = { ...values.value, [of.name]: event.currentTarget.value })}
      />
    </label>
  );
}

/** The same call from a shell. The token is read from its file: it is on no screen and in no list of processes. */
function commandOf(method: string, path: string, body: string): string {
  const sent = body ? ` -H 'Content-Type: ${body}' --data @body` : "";
  return `curl -H @<(echo "Authorization: Bearer $(cat ~/.swell/token)") -X ${method}${sent} '${location.origin}${path}'`;
}
