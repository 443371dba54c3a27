/**
 * What a job printed, live: a window of lines at the end, more above on request. Text only: colours of the terminal
 * become classes and styles, never markup.
 */
import { useSignal } from "@preact/signals";
import { useVirtualizer } from "@tanstack/react-virtual";
import Anser from "anser";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { bytes, Refused, stream } from "./api";
import { session } from "./session";

const TAIL = 256 * 1024; // bytes at first, and for each step back
const MAX_LINES = 200_000; // older ones are let go; they can be had back from the daemon

interface Line {
  text: string;
  rank: number;
  run: string;
}

interface Part {
  run: string;
  rank: number;
  offset: number;
  text: string;
}

/** A line without colours is the common one: no parsing. */
function Coloured({ text }: { text: string }) {
  if (!text.includes("\u001b")) return <>{text}</>;
  return (
    <>
      {Anser.ansiToJson(text, { json: true, remove_empty: true }).map((part, i) => {
        const style: Record<string, string> = {};
        if (part.fg) style.color = `rgb(${part.fg})`;
        if (part.bg) style.backgroundColor = `rgb(${part.bg})`;
        if (part.decorations.includes("bold")) style.fontWeight = "700";
        if (part.decorations.includes("underline")) style.textDecoration = "underline";
        return (
          <span key={i} class="ansi" style={style}>
            {part.content}
          </span>
        );
      })}
    </>
  );
}

export function LogView({ job, attempts }: { job: number; attempts: number }) {
  const rank = useSignal("all");
  const follow = useSignal(true);
  const search = useSignal("");
  const status = useSignal("connecting…");
  const version = useSignal(0);
  const lines = useRef<Line[]>([]);
  const half = useRef(new Map<string, Line>()); // the last line of each process, when it has no end yet
  const begins = useRef(new Map<string, number>()); // "run/rank" -> first byte shown
  const ranks = useSignal<number[]>([0]);
  const area = useRef<HTMLDivElement>(null);

  useEffect(() => {
    const stop = new AbortController();
    lines.current = [];
    half.current.clear();
    begins.current.clear();
    const add = ({ run, rank: of, offset, text }: Part): void => {
      const key = `${run}/${of}`;
      if (!begins.current.has(key)) begins.current.set(key, offset);
      if (!ranks.value.includes(of)) ranks.value = [...ranks.value, of].sort((a, b) => a - b);
      const pieces = text.split("\n");
      const before = half.current.get(key);
      if (before) {
        before.text += pieces.shift() ?? "";
        if (pieces.length) half.current.delete(key);
      }
      pieces.forEach((piece, i) => {
        if (i === pieces.length - 1 && piece === "") return;
        const line = { text: piece, rank: of, run };
        lines.current.push(line);
        if (i === pieces.length - 1) half.current.set(key, line);
      });
      if (lines.current.length > MAX_LINES) lines.current.splice(0, lines.current.length - MAX_LINES);
      version.value++;
    };
    void read(job, rank.value, stop.signal, add, (text) => (status.value = text));
    return () => stop.abort();
  }, [job, rank.value]);

  const shown = useMemo(() => {
    const wanted = search.value.toLowerCase();
    return wanted
      ? lines.current.filter((line) => line.text.toLowerCase().includes(wanted))
      : lines.current.slice();
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

  const earlier = async (): Promise<void> => {
    const first = [...begins.current].find(([, offset]) => offset > 0);
    if (!first) {
      status.value = attempts > 1 ? "this is where the latest attempt begins" : "this is the beginning";
      return;
    }
    const [key, offset] = first;
    const [run, of] = key.split("/") as [string, string];
    const from = Math.max(0, offset - TAIL);
    const attempt = run.split(".")[1];
    const data = await bytes(
      `/v1/jobs/${job}/logs?rank=${of}&attempt=${attempt}&offset=${from}&limit=${offset - from}`,
    );
    const texts = new TextDecoder().decode(data).split("\n");
    const before = texts.map((text): Line => ({ text, rank: Number(of), run }));
    const joined = before.pop();
    const at = lines.current.findIndex((line) => line.rank === Number(of) && line.run === run);
    if (joined && at >= 0) (lines.current[at] as Line).text = joined.text + (lines.current[at] as Line).text;
    lines.current = [...before, ...lines.current];
    begins.current.set(key, from);
    follow.value = false;
    version.value++;
  };
  const several = ranks.value.length > 1;

  return (
    <section class="log" aria-label="Output">
      <header class="bar">
        <h2>Output</h2>
        <label>
          Rank{" "}
          <select
            aria-label="Rank"
            value={rank.value}
            onChange={(event) => (rank.value = event.currentTarget.value)}
          >
            <option value="all">all</option>
            {ranks.value.map((number) => (
              <option key={number} value={String(number)}>
                {number}
              </option>
            ))}
          </select>
        </label>
        <button type="button" aria-pressed={follow.value} onClick={() => (follow.value = !follow.value)}>
          Follow
        </button>
        <button type="button" class="quiet" onClick={() => void earlier()}>
          Earlier
        </button>
        <input
          type="search"
          placeholder="Search the output"
          aria-label="Search the output"
          value={search.value}
          onInput={(event) => (search.value = event.currentTarget.value)}
        />
        <span class="faint" role="status">
          {search.value ? `${shown.length.toLocaleString()} lines match` : status.value}
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
      >
        <div style={{ height: `${virtual.getTotalSize()}px`, position: "relative" }}>
          {virtual.getVirtualItems().map((item) => {
            const line = shown[item.index];
            if (!line) return null;
            return (
              <div class="line" key={item.key} style={{ transform: `translateY(${item.start}px)` }}>
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
