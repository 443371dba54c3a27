/**
 * What a job printed, live: a window of lines at the end, more above on request. Text only: colours of the terminal
 * become classes and styles, never markup.
 */
import { type Signal, useSignal } from "@preact/signals";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { overwritten, pieces, plain } from "./ansi";
import { open, Refused, stream } from "./api";
import { session } from "./session";

const TAIL = 256 * 1024; // bytes at first, and for each step back
const MAX_LINES = 200_000; // older ones are let go; they can be had back from the daemon
const SEARCH_STEP = 4 * 1024 * 1024; // bytes
const ENOUGH = 200; // lines found per step back through what is not loaded

interface Line {
  text: string;
  rank: number;
  run: string;
  at: number; // byte of its log where it begins
}

interface Part {
  run: string;
  rank: number;
  offset: number;
  text: string;
}

/** Bytes of one attempt's log, from where to where. */
interface Window {
  run: string;
  rank: number;
  from: number;
  lines: Line[];
}

function Coloured({ text }: { text: string }) {
  const parts = pieces(text);
  if (parts.length === 1 && !parts[0]?.style.color) return <>{parts[0]?.text}</>;
  return (
    <>
      {parts.map((part, i) => (
        <span key={i} class="ansi" style={part.style}>
          {part.text}
        </span>
      ))}
    </>
  );
}

const utf8 = new TextEncoder();
const byteLength = (text: string): number => utf8.encode(text).length;

/** The lines of a piece of a log that begins at byte `from`. */
function linesOf(text: string, from: number, run: string, rank: number): Line[] {
  let at = from;
  return text.split("\n").map((one) => {
    const line = { text: one, rank, run, at };
    at += byteLength(one) + 1;
    return line;
  });
}

function settleAll(lines: Line[]): void {
  for (const line of lines) line.text = overwritten(line.text);
}

/** Of [run, rank], the bytes before this one; null: all of them. */
type Before = [string, number, number | null];

/** What is loaded of a job's output: the end, growing, and as much before it as was asked for. */
class Output {
  lines: Line[] = [];
  readonly ranks = new Set<number>([0]);
  private readonly half = new Map<string, Line>(); // the last line of each process, when it has no end yet
  private readonly begins = new Map<string, number>(); // "run/rank" -> first byte loaded

  add({ run, rank, offset, text }: Part, most: number): void {
    const key = `${run}/${rank}`;
    if (!this.begins.has(key)) this.begins.set(key, offset);
    this.ranks.add(rank);
    const found = linesOf(text, offset, run, rank);
    const before = this.half.get(key);
    if (before) {
      before.text = overwritten(before.text + (found.shift()?.text ?? ""));
      if (found.length) this.half.delete(key);
    }
    settleAll(found);
    const last = found.at(-1);
    if (last?.text === "") found.pop();
    else if (last) this.half.set(key, last);
    for (const line of found) this.lines.push(line);
    if (this.lines.length > most) this.forget(this.lines.length - Math.round(0.9 * most));
  }

  /** The oldest lines; they can be loaded again. */
  private forget(many: number): void {
    this.lines = this.lines.slice(many);
    for (const key of this.begins.keys()) {
      const first = this.lines.find((line) => keyOf(line) === key);
      if (first) this.begins.set(key, first.at);
      else this.begins.delete(key);
    }
  }

  /** What is not loaded: of each process, then the attempt before them. Of older attempts `rank` 0 stands for all. */
  before(latest: string): Before[] {
    const known = [...this.begins].map(([key, offset]): Before => [...named(key), offset]);
    const partly = known.filter(([, , offset]) => offset);
    const oldest = known.sort((a, b) => attemptOf(a[0]) - attemptOf(b[0]))[0];
    if (!oldest) return previous(latest, 0);
    return [...partly, ...previous(oldest[0], known.length > 1 ? 0 : oldest[1])];
  }

  prepend({ run, rank, from, lines }: Window): void {
    const key = `${run}/${rank}`;
    const joined = this.begins.has(key) ? lines.pop() : undefined;
    const next = joined && this.lines.find((line) => keyOf(line) === key);
    if (joined && next) {
      next.text = overwritten(joined.text + next.text);
      next.at = joined.at;
    }
    if (lines.at(-1)?.text === "") lines.pop();
    settleAll(lines);
    this.lines = [...lines, ...this.lines];
    this.begins.set(key, from);
  }
}

const keyOf = (line: Line): string => `${line.run}/${line.rank}`;
const named = (key: string): [string, number] => [key.split("/")[0] as string, Number(key.split("/")[1])];
const attemptOf = (run: string): number => Number(run.split(".")[1]);
const previous = (run: string, rank: number): Before[] =>
  attemptOf(run) > 1 ? [[`${run.split(".")[0]}.${attemptOf(run) - 1}`, rank, null]] : [];

/** At most so many bytes before `end`. */
async function windowBefore(job: number, [run, rank, end]: Before, most: number): Promise<Window> {
  const which = `/v1/jobs/${job}/logs?rank=${rank}&attempt=${attemptOf(run)}`;
  const from = Math.max(0, (end ?? 0) - most);
  const part = end === null ? `tail=${most}` : `offset=${from}&limit=${end - from}`;
  const answer = await open(`${which}&${part}`);
  const began = end === null ? Number(answer.headers.get("Swell-Log-Offset") ?? 0) : from;
  return { run, rank, from: began, lines: linesOf(await answer.text(), began, run, rank) };
}

/** Lines that match in what is not loaded, from its end backwards, as many as are enough at a time. */
class Search {
  found: Line[] = [];
  private half = ""; // of a line whose beginning is still to come

  constructor(
    private readonly job: number,
    private readonly wanted: string,
    private left: Before[],
  ) {}

  get done(): boolean {
    return this.left.length === 0;
  }

  async further(): Promise<void> {
    const goal = this.found.length + ENOUGH;
    for (let next = this.left[0]; next && this.found.length < goal; next = this.left[0]) {
      const { run, rank, from, lines } = await windowBefore(this.job, next, SEARCH_STEP);
      const last = lines.at(-1);
      if (last) last.text += this.half;
      this.half = from > 0 ? (lines.shift()?.text ?? "") : "";
      settleAll(lines);
      this.found = [
        ...lines.filter((line) => plain(line.text).toLowerCase().includes(this.wanted)),
        ...this.found,
      ];
      const rest = this.left.slice(1);
      const older = next[2] === null ? previous(run, rank) : [];
      this.left = from > 0 ? [[run, rank, from], ...withOlder(rest, next)] : [...rest, ...older];
    }
  }
}

/** An attempt of which a part was read: the one before it comes after the rest of it. */
const withOlder = (rest: Before[], read: Before): Before[] =>
  read[2] === null ? [...rest, ...previous(read[0], read[1])] : rest;

export function LogView({ job, attempts }: { job: number; attempts: number }) {
  const rank = useSignal("all");
  const follow = useSignal(true);
  const search = useSignal("");
  const status = useSignal("connecting…");
  const version = useSignal(0);
  const output = useRef(new Output());
  const older = useSignal<Search | null>(null);
  const busy = useSignal(false);
  const ranks = useSignal<number[]>([0]);
  const area = useRef<HTMLDivElement>(null);

  useEffect(() => {
    const stop = new AbortController();
    const made = new Output();
    output.current = made;
    older.value = null;
    const add = (part: Part): void => {
      made.add(part, follow.value ? MAX_LINES : 5 * MAX_LINES);
      if (made.ranks.size > ranks.value.length) ranks.value = [...made.ranks].sort((a, b) => a - b);
      version.value++;
    };
    void read(job, rank.value, stop.signal, add, (text) => (status.value = text));
    return () => stop.abort();
  }, [job, rank.value]);

  const shown = useMemo(() => {
    const wanted = search.value.toLowerCase();
    const { lines } = output.current;
    if (!wanted) return lines.slice();
    const loaded = lines.filter((line) => plain(line.text).toLowerCase().includes(wanted));
    return [...(older.value?.found ?? []), ...loaded];
  }, [version.value, search.value]);
  const virtual = useVirtualizer({
    count: shown.length,
    getScrollElement: () => area.current,
    estimateSize: () => 19,
    overscan: 30,
  });
  useEffect(() => {
    if (follow.value && shown.length) virtual.scrollToIndex(shown.length - 1, { align: "end" });
  }, [shown, follow.value]);

  /** One at a time; what fails is said beside the buttons. */
  const back = async (step: () => Promise<void>): Promise<void> => {
    if (busy.value) return;
    busy.value = true;
    follow.value = false;
    try {
      await step();
    } catch (error) {
      status.value = (error as Error).message;
    } finally {
      busy.value = false;
      version.value++;
    }
  };
  const earlier = async (): Promise<void> => {
    const before = output.current.before(`${job}.${attempts}`)[0];
    if (!before) status.value = "this is the beginning";
    else output.current.prepend(await windowBefore(job, before, TAIL));
  };
  const further = async (): Promise<void> => {
    older.value ??= new Search(job, search.value.toLowerCase(), output.current.before(`${job}.${attempts}`));
    await older.value.further();
  };
  const several = ranks.value.length > 1;
  const mixed = shown.length > 0 && shown[0]?.run !== shown.at(-1)?.run;

  return (
    <section class="log" aria-label="Output">
      <header class="bar">
        <h2>Output</h2>
        <Rank rank={rank} ranks={ranks.value} />
        <button type="button" aria-pressed={follow.value} onClick={() => (follow.value = !follow.value)}>
          Follow
        </button>
        <button type="button" class="quiet" disabled={busy.value} onClick={() => void back(earlier)}>
          Earlier
        </button>
        <input
          type="search"
          placeholder="Search the output"
          aria-label="Search the output"
          value={search.value}
          onInput={(event) => {
            search.value = event.currentTarget.value;
            older.value = null;
          }}
        />
        {search.value && !older.value?.done && (
          <button type="button" disabled={busy.value} onClick={() => void back(further)}>
            Search earlier output
          </button>
        )}
        <span class="faint" role="status">
          {search.value ? matched(shown.length, older.value, busy.value) : status.value}
        </span>
      </header>
      <div
        class="paper"
        ref={area}
        data-testid="log"
        tabIndex={0}
        role="log"
        aria-label="Lines of output"
        aria-live="off"
        onWheel={(event) => {
          if (event.deltaY < 0) follow.value = false;
        }}
        onTouchMove={() => (follow.value = false)}
        onKeyDown={(event) => {
          if (["ArrowUp", "PageUp", "Home"].includes(event.key)) follow.value = false;
          if (event.key === "End") follow.value = true;
        }}
        onPointerDown={(event) => {
          if (event.offsetX > event.currentTarget.clientWidth) follow.value = false; // its scroll bar
        }}
      >
        {shown.length === 0 && <p class="nothing">{nothing(Boolean(search.value), attempts)}</p>}
        <div style={{ height: `${virtual.getTotalSize()}px`, position: "relative" }}>
          {virtual.getVirtualItems().map((item) => {
            const line = shown[item.index];
            if (!line) return null;
            return (
              <div class="line" key={item.key} style={{ transform: `translateY(${item.start}px)` }}>
                {mixed && <b class="rank">{`attempt ${attemptOf(line.run)}`}</b>}
                {several && <b class="rank">{line.rank}</b>}
                <Coloured text={line.text} />
              </div>
            );
          })}
        </div>
      </div>
    </section>
  );
}

function nothing(searched: boolean, attempts: number): string {
  if (searched) return "No line of what is loaded matches.";
  return attempts > 1
    ? "This attempt has printed nothing yet; Earlier shows the one before."
    : "Nothing printed yet.";
}

function Rank({ rank, ranks }: { rank: Signal<string>; ranks: number[] }) {
  return (
    <label>
      Rank{" "}
      <select
        aria-label="Rank"
        value={rank.value}
        onChange={(event) => (rank.value = event.currentTarget.value)}
      >
        <option value="all">all</option>
        {ranks.map((number) => (
          <option key={number} value={String(number)}>
            {number}
          </option>
        ))}
      </select>
    </label>
  );
}

function matched(lines: number, older: Search | null, busy: boolean): string {
  if (busy) return "searching…";
  const where = older?.done ? "in all of the output" : older ? "so far" : "in what is loaded";
  return `${lines === 1 ? "1 line matches" : `${lines.toLocaleString()} lines match`} ${where}`;
}

/** Follow the log to the end of the job, coming back wherever the connection was lost. */
async function read(
  job: number,
  rank: string,
  stop: AbortSignal,
  add: (part: Part) => void,
  tell: (text: string) => void,
): Promise<void> {
  let last = "";
  while (!stop.aborted && session.value) {
    try {
      for await (const message of stream(
        `/v1/jobs/${job}/logs?follow=true&rank=${rank}&tail=${TAIL}`,
        last,
        stop,
      )) {
        if (message.id) last = message.id;
        if (message.event === "log") add(message.data as Part);
        if (message.event === "state") tell(`${(message.data as { state: string }).state}: live`);
        if (message.event === "end") {
          tell(`${(message.data as { state: string }).state}: complete`);
          return;
        }
      }
      tell("the connection was lost; trying again…");
    } catch (error) {
      if (stop.aborted || (error instanceof Refused && error.status === 401)) return;
      tell(
        error instanceof Refused && error.status
          ? error.message
          : "the daemon does not answer; trying again…",
      );
    }
    await new Promise((done) => setTimeout(done, 500));
  }
}
