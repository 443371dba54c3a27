/** What can be done to jobs; each says what came of it. */
import { post } from "./api";
import { hasEnded, type Job } from "./model";
import { failed, tell } from "./ui/parts";

export type Verb = "pause" | "resume" | "cancel" | "requeue";

/** Verbs that make sense for a job as it is. */
export function verbsOf(job: Job): Verb[] {
  if (hasEnded(job)) return ["requeue"];
  const stoppable: Verb[] = job.state === "running" && !job.paused ? ["requeue"] : [];
  return [...stoppable, job.paused ? "resume" : "pause", "cancel"];
}

const DONE: Record<Verb, string> = {
  pause: "paused",
  resume: "resumed",
  cancel: "cancelled",
  requeue: "is back in the queue",
};

/** Many at once: what could not be done is named, the rest is done all the same. */
export async function act(jobs: Job[], verb: Verb): Promise<void> {
  if (verb === "cancel" && jobs.length > 1) return cancelAll(jobs);
  await each(jobs, DONE[verb], (job) => post(`/v1/jobs/${job.id}/${verb}`));
}

export async function setPriority(jobs: Job[], priority: string): Promise<void> {
  const value = /^-?\d+$/.test(priority) ? Number(priority) : priority;
  await each(jobs, `now with priority ${priority}`, (job) =>
    post(`/v1/jobs/${job.id}/priority`, { priority: value }),
  );
}

async function cancelAll(jobs: Job[]): Promise<void> {
  try {
    const answer = await post<{ cancelled: number[]; problems: { detail: string }[] }>("/v1/jobs/cancel", {
      jobs: jobs.map((job) => job.id),
    });
    const wrong = answer.problems.length
      ? `; ${answer.problems.length} could not be: ${answer.problems[0]?.detail}`
      : "";
    tell(`${answer.cancelled.length} jobs cancelled${wrong}`, Boolean(wrong));
  } catch (error) {
    failed(error);
  }
}

async function each(jobs: Job[], done: string, one: (job: Job) => Promise<unknown>): Promise<void> {
  const results = await Promise.allSettled(jobs.map(one));
  const wrong = results.find((result) => result.status === "rejected");
  const good = results.filter((result) => result.status === "fulfilled").length;
  const whom = jobs.length === 1 ? `job ${jobs[0]?.id}` : `${good} of ${jobs.length} jobs`;
  if (wrong) tell(`${whom} ${done}; ${(wrong.reason as Error).message}`, true);
  else tell(`${whom} ${done}`);
}
