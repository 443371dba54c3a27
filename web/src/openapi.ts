/** An OpenAPI document as the API browser reads it. Pure. */

export interface Schema {
  $ref?: string;
  type?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
}

export interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema: Schema;
}

type Content = Record<string, { schema?: Schema }>;

interface Described {
  tags?: string[];
  summary?: string;
  description?: string;
  parameters?: Parameter[];
  requestBody?: { content: Content };
  responses: Record<string, { description: string; content?: Content }>;
}

export interface Document {
  info: { version: string };
  paths: Record<string, Record<string, Described>>;
  components: { schemas: Record<string, Schema> };
}

export interface Operation {
  id: string;
  method: string;
  path: string;
  tag: string;
  summary: string;
  description: string;
  parameters: Parameter[];
  content: Content;
  responses: Described["responses"];
  streams: boolean; // no JSON comes back
  text: string; // to search in
}

const METHODS = ["get", "post", "put", "patch", "delete"];

export function operationsOf(document: Document): Operation[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    METHODS.flatMap((method) => {
      const found = methods[method];
      return found ? [operationOf(method, path, found)] : [];
    }),
  );
}

function operationOf(method: string, path: string, found: Described): Operation {
  const description = found.description ?? "";
  const summary = description.split(/(?<=\.)\s/)[0] || (found.summary ?? "");
  const good = Object.entries(found.responses).find(([status]) => status.startsWith("2"));
  const types = Object.keys(good?.[1].content ?? {});
  return {
    id: `${method} ${path}`,
    method,
    path,
    tag: found.tags?.[0] ?? "other",
    summary,
    description: description === summary ? "" : description,
    parameters: (found.parameters ?? []).filter((one) => one.in !== "header"),
    content: found.requestBody?.content ?? {},
    responses: found.responses,
    streams: types.length > 0 && !types.includes("application/json"),
    text: `${method} ${path} ${description}`.toLowerCase(),
  };
}

/** The form of body to offer: JSON where it may be. */
export function bodyOf(operation: Operation): { type: string; schema: Schema } | null {
  const type =
    "application/json" in operation.content ? "application/json" : Object.keys(operation.content)[0];
  return type === undefined ? null : { type, schema: operation.content[type]?.schema ?? {} };
}

/** In a few words: integer, text[], JobModel, a | b. */
export function typeOf(schema: Schema): string {
  if (schema.$ref) return schema.$ref.split("/").at(-1) ?? "";
  if (schema.anyOf) return [...new Set(schema.anyOf.map(typeOf))].join(" | ");
  if (schema.enum) return schema.enum.map(String).join(" | ");
  if (schema.const !== undefined) return String(schema.const);
  if (schema.type === "array") return `${schema.items ? typeOf(schema.items) : "any"}[]`;
  return schema.type ?? "any";
}

/** Name, schema, and whether it is needed. */
export function fieldsOf(document: Document, schema: Schema): [string, Schema, boolean][] {
  const one = schema.anyOf?.find((part) => part.$ref) ?? schema;
  const found = one.$ref ? (document.components.schemas[typeOf(one)] ?? {}) : one;
  const needed = new Set(found.required ?? []);
  return Object.entries(found.properties ?? {}).map(([name, field]) => [name, field, needed.has(name)]);
}

/** The path with what was typed; what is missing stays as {name}. */
export function filled(operation: Operation, values: Record<string, string>): string {
  let path = operation.path;
  const query = new URLSearchParams();
  for (const { name, in: where } of operation.parameters) {
    const value = values[name];
    if (!value) continue;
    if (where === "path") path = path.replace(`{${name}}`, encodeURIComponent(value));
    else query.set(name, value);
  }
  return query.size ? `${path}?${query}` : path;
}
