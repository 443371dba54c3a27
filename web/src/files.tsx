/** What a job wrote: its files with sizes, each to be downloaded. */
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { get, open } from "./api";
import { clock, count, type JobDetail, size } from "./model";
import { failed } from "./ui/parts";

interface File {
  path: string;
  size: number;
  modified_ns: string;
  submitted: boolean;
}

interface Tree {
  machine: string;
  files: File[];
  skipped: number;
  whole: boolean;
}

interface Places {
  directory: string;
  working_copy: { bytes: number };
  checkpoints: { path: string; files: number; bytes: number };
  logs: { bytes: number };
}

const SHOWN = 200;

export function FilesCard({ job }: { job: JobDetail }) {
  const tree = useSignal<Tree | null>(null);
  const places = useSignal<Places | null>(null);
  const wrong = useSignal("");
  const search = useSignal("");
  const all = useSignal(false);
  const load = async (): Promise<void> => {
    wrong.value = "";
    try {
      places.value = await get<Places>(`/v1/jobs/${job.id}/files`);
      tree.value = await get<Tree>(`/v1/jobs/${job.id}/tree`);
    } catch (error) {
      wrong.value = (error as Error).message;
    }
  };
  const found = useMemo(
    () => chosen(tree.value?.files ?? [], search.value, all.value),
    [tree.value, search.value, all.value],
  );
  return (
    <details
      class="card files"
      data-testid="files"
      onToggle={(event) => event.currentTarget.open && void load()}
    >
      <summary>Files and outputs</summary>
      {wrong.value && <p class="wrong">{wrong.value}</p>}
      {places.value && <Disk places={places.value} machine={tree.value?.machine ?? ""} />}
      {tree.value && (
        <>
          <div class="bar">
            <input
              type="search"
              aria-label="Search the files"
              placeholder="Search: *.pt"
              value={search.value}
              onInput={(event) => (search.value = event.currentTarget.value)}
            />
            <label class="tick">
              <input type="checkbox" checked={all.value} onChange={() => (all.value = !all.value)} /> also
              what was submitted
            </label>
            <button type="button" class="quiet" onClick={() => void load()}>
              Look again
            </button>
            <span class="faint">{count(found.length, "file")}</span>
          </div>
          {found.length === 0 ? (
            <p class="faint">{nothing(tree.value, search.value)}</p>
          ) : (
            <FileTable job={job.id} files={found} />
          )}
          {!tree.value.whole && <p class="note">There are more files than are listed here.</p>}
        </>
      )}
    </details>
  );
}

/** What it wrote; with `all` also what was submitted and has not changed. */
function chosen(files: File[], search: string, all: boolean): File[] {
  const pattern = wildcard(search.trim());
  return files.filter((file) => (all || !file.submitted) && pattern.test(file.path));
}

function wildcard(text: string): RegExp {
  const safe = text.replace(/[.+^${}()|[\]\\]/g, "\\$&");
  return new RegExp(safe.replaceAll("*", ".*").replaceAll("?", "."), "i");
}

function nothing(tree: Tree, search: string): string {
  if (search) return "No file matches.";
  return tree.files.length ? "It has written nothing beyond what was submitted." : "It has no files yet.";
}

function Disk({ places, machine }: { places: Places; machine: string }) {
  const parts: [string, number][] = [
    ["working copy", places.working_copy.bytes],
    ["checkpoints", places.checkpoints.bytes],
    ["logs", places.logs.bytes],
  ];
  return (
    <p class="faint">
      In <code>{places.directory}</code>
      {machine && ` on ${machine}`}. On disk: {parts.map(([name, n]) => `${name} ${size(n)}`).join(", ")}.
    </p>
  );
}

function FileTable({ job, files }: { job: number; files: File[] }) {
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Files">
      <table>
        <thead>
          <tr>
            <th>File</th>
            <th class="number">Size</th>
            <th>Written</th>
            <th>
              <span class="hidden">Download</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {files.slice(0, SHOWN).map((file) => (
            <tr key={file.path}>
              <td class="path">{file.path}</td>
              <td class="number">{size(file.size)}</td>
              <td>{clock(Number(file.modified_ns) / 1e9, true)}</td>
              <td>
                <button
                  type="button"
                  class="quiet"
                  aria-label={`Download ${file.path}`}
                  onClick={() => void download(job, file).catch(failed)}
                >
                  Download
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {files.length > SHOWN && (
        <p class="faint">
          {files.length - SHOWN} more: search for them, or <code>swell fetch {job}</code> copies all.
        </p>
      )}
    </div>
  );
}

/** With the session's token, which a plain link would not send. */
async function download(job: number, file: File): Promise<void> {
  const answer = await open(`/v1/jobs/${job}/content?path=${encodeURIComponent(file.path)}`);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = file.path.split("/").at(-1) as string;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
