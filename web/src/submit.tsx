/** Submit: a form and a job file that are the same thing, checked by the daemon as one types. */
import { signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { useLocation } from "wouter-preact";
import { type Document, parseDocument } from "yaml";
import { get, type Problem, request } from "./api";
import type { Editor } from "./editor";
import { count, duration } from "./model";
import { failed, tell } from "./ui/parts";

const FIRST = `name: my-training
command: python train.py
gpus: {min: 1, max: 4}
epochs: 10
`;
/** Kept when one goes to another view and back; "clone and edit" fills it. */
export const draft = signal(FIRST);

interface Checked {
  valid: boolean;
  problems: Problem[];
  count?: number;
  jobs: {
    name: string;
    fits: boolean;
    why: string;
    nodes: string[];
    starts_in_s?: number;
    ends_in_s?: number;
  }[];
}

interface Field {
  name: string;
  label: string;
  kind: "text" | "number" | "choice";
  path: string[];
  choices?: string[];
  min?: number;
}

const FIELDS: Field[] = [
  { name: "name", label: "Name", kind: "text", path: ["name"] },
  { name: "command", label: "Command", kind: "text", path: ["command"] },
  { name: "gpus.min", label: "GPUs, at least", kind: "number", path: ["gpus", "min"], min: 0 },
  { name: "gpus.max", label: "GPUs, at most", kind: "number", path: ["gpus", "max"], min: 0 },
  {
    name: "priority",
    label: "Priority",
    kind: "choice",
    path: ["priority"],
    choices: ["normal", "low", "high", "urgent"],
  },
  { name: "epochs", label: "Epochs", kind: "number", path: ["epochs"], min: 0 },
];

type Schema = { properties: Record<string, { description?: string }> };

function parsed(text: string): Document | null {
  const found = parseDocument(text);
  return found.errors.length ? null : found;
}

function textOf(document: Document | null, path: string[]): string {
  let value: unknown = document?.toJS();
  for (const step of path)
    value = value && typeof value === "object" ? (value as Record<string, unknown>)[step] : undefined;
  if (path[0] === "gpus" && value === undefined && typeof document?.get("gpus") === "number")
    value = document.get("gpus");
  if (Array.isArray(value)) return value.join(" ");
  return value === undefined || value === null || typeof value === "object" ? "" : String(value);
}

function changedBy(text: string, field: Field, value: string): string {
  const document = parsed(text) ?? parseDocument("{}");
  if (field.path.length > 1 && typeof document.get("gpus") !== "object") {
    const fixed = Number(document.get("gpus") ?? 1);
    document.set("gpus", document.createNode({ min: fixed, max: fixed }, { flow: true }));
  }
  if (value === "" || (field.kind === "choice" && value === field.choices?.[0]))
    document.deleteIn(field.path);
  else document.setIn(field.path, field.kind === "number" ? Number(value) : value);
  return document.toString();
}

export function SubmitView() {
  const [, go] = useLocation();
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const checked = useSignal<Checked | null>(null);
  const schema = useSignal<Schema | null>(null);
  const sending = useSignal(false);

  useEffect(() => {
    void get<Schema>("/v1/schema/job").then((found) => (schema.value = found), failed);
    let gone = false;
    void import("./editor").then(({ makeEditor }) => {
      if (gone || !host.current) return;
      editor.current = makeEditor(host.current, draft.value, (text) => (draft.value = text));
      editor.current.show(checked.value?.problems ?? []);
    });
    return () => {
      gone = true;
      editor.current?.destroy();
    };
  }, []);

  // As one types, a moment after the last key.
  useEffect(() => {
    const text = draft.value;
    const timer = setTimeout(async () => {
      try {
        const found = await request<Checked>("POST", "/v1/jobs/validate", text, "application/yaml");
        if (text !== draft.value) return;
        checked.value = found;
        editor.current?.show(found.problems);
      } catch (error) {
        failed(error);
      }
    }, 250);
    return () => clearTimeout(timer);
  }, [draft.value]);

  const document = parsed(draft.value);
  const write = (text: string): void => {
    draft.value = text;
    editor.current?.set(text);
  };
  const problemsOf = (field: Field): Problem[] =>
    checked.value?.problems.filter(
      (one) => one.path === field.name || (one.path === "gpus" && field.name === "gpus.min"),
    ) ?? [];
  const submit = async (): Promise<void> => {
    sending.value = true;
    try {
      const answer = await request<{ ids: number[] }>("POST", "/v1/jobs", draft.value, "application/yaml");
      tell(
        `submitted: ${answer.ids.length === 1 ? `job ${answer.ids[0]}` : count(answer.ids.length, "job")}`,
      );
      go(answer.ids.length === 1 ? `/jobs/${answer.ids[0]}` : "/jobs");
    } catch (error) {
      failed(error);
    } finally {
      sending.value = false;
    }
  };

  return (
    <section class="page submit" aria-labelledby="submit-title">
      <header class="bar">
        <h1 id="submit-title">New job</h1>
        <div class="spacer" />
        <button
          type="button"
          class="primary"
          disabled={sending.value || !checked.value?.valid || checked.value.jobs.some((job) => !job.fits)}
          onClick={() => void submit()}
        >
          Submit
        </button>
      </header>
      <div class="submit-columns">
        <form class="card form" onSubmit={(event) => event.preventDefault()}>
          {FIELDS.map((field) => (
            <FormField
              key={field.name}
              field={field}
              value={textOf(document, field.path)}
              disabled={document === null}
              help={schema.value?.properties[field.path[0] as string]?.description ?? ""}
              problems={problemsOf(field)}
              onChange={(value) => write(changedBy(draft.value, field, value))}
            />
          ))}
          {document === null && (
            <p class="faint">The file cannot be read as it is; mend it at the right first.</p>
          )}
          <More
            schema={schema.value}
            document={document}
            add={(name) => write(`${draft.value.trimEnd()}\n${name}: \n`)}
          />
        </form>
        <div class="card editor-card">
          <h2>Job file</h2>
          <div class="editor" ref={host} data-testid="editor" />
        </div>
      </div>
      <Verdict checked={checked.value} />
    </section>
  );
}

interface FieldProps {
  field: Field;
  value: string;
  disabled: boolean;
  help: string;
  problems: Problem[];
  onChange: (value: string) => void;
}

function FormField({ field, value, disabled, help, problems, onChange }: FieldProps) {
  const id = `field-${field.name}`;
  const common = {
    id,
    disabled,
    "aria-invalid": problems.length > 0,
    "aria-describedby": problems.length ? `${id}-wrong` : undefined,
  };
  return (
    <div class="field">
      <label for={id} title={help}>
        {field.label}
      </label>
      {field.kind === "choice" ? (
        <select
          {...common}
          value={value || field.choices?.[0]}
          onChange={(event) => onChange(event.currentTarget.value)}
        >
          {field.choices?.map((choice) => (
            <option key={choice}>{choice}</option>
          ))}
        </select>
      ) : (
        <input
          {...common}
          type={field.kind}
          min={field.min}
          value={value}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )}
      {problems.map((problem) => (
        <p class="wrong" id={`${id}-wrong`} key={problem.what}>
          {problem.what}
          {problem.fix && ` (${problem.fix})`}
        </p>
      ))}
    </div>
  );
}

function More({
  schema,
  document,
  add,
}: {
  schema: Schema | null;
  document: Document | null;
  add: (name: string) => void;
}) {
  if (!schema) return null;
  const there = new Set(Object.keys((document?.toJS() as object | null) ?? {}));
  const names = Object.keys(schema.properties).filter((name) => !there.has(name));
  return (
    <div class="field">
      <label for="more-fields">Another field</label>
      <select
        id="more-fields"
        value=""
        onChange={(event) => {
          if (event.currentTarget.value) add(event.currentTarget.value);
        }}
      >
        <option value="">add…</option>
        {names.map((name) => (
          <option key={name} value={name} title={schema.properties[name]?.description}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}

function Verdict({ checked }: { checked: Checked | null }) {
  if (!checked) return <p class="card faint">checking…</p>;
  if (!checked.valid)
    return (
      <div class="card verdict bad" role="status" data-testid="verdict">
        <h2>Not yet right</h2>
        <ul>
          {checked.problems.map((one) => (
            <li key={`${one.path} ${one.what}`}>
              line {one.line}
              {one.path && `, ${one.path}`}: {one.what}
              {one.fix && ` (${one.fix})`}
            </li>
          ))}
        </ul>
      </div>
    );
  return (
    <div class="card verdict" role="status" data-testid="verdict">
      <h2>
        {checked.count === 1
          ? "If it were submitted now"
          : `${checked.count} jobs, if they were submitted now`}
      </h2>
      <ul>
        {checked.jobs.slice(0, 10).map((job) => (
          <li key={job.name}>
            <b>{job.name}</b>: {sentence(job)}
          </li>
        ))}
      </ul>
    </div>
  );
}

function sentence(job: Checked["jobs"][number]): string {
  if (!job.fits) return `could never run here: ${job.why}`;
  const where = job.nodes.length
    ? `could run on ${job.nodes.slice(0, 6).join(", ")}`
    : "could run on several machines together";
  if (job.starts_in_s === undefined) return where;
  const starts = job.starts_in_s < 5 ? "starts at once" : `starts in about ${duration(job.starts_in_s)}`;
  const ends = job.ends_in_s === undefined ? "" : `, ends in about ${duration(job.ends_in_s)}`;
  return `${where}; ${starts}${ends}`;
}
