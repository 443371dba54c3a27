"""`swell stats`: how the cluster did: jobs by state, use of GPUs, times to completion, what scaling cost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from swell.cli.common import client, connected, plural, print_json
from swell.cli.ls import ALL, take
from swell.cli.terminal import say
from swell.cli.times import Moment, clock
from swell.client.http import Client
from swell.jobfile.units import format_duration

Job = dict[str, Any]
ENDS = ("completed", "failed", "cancelled", "lost")


@click.command()
@click.option("--since", type=Moment(), default="24h", show_default=True, help="From when on.")
@connected
def stats(home: Path | None, as_json: bool, since: float) -> None:
    """Sum up: jobs by state, use of GPUs, mean completion time, makespan, what scaling cost."""
    found = client(home)
    jobs, _ = take(found, "all", ALL, {})
    within = [job for job in jobs if job["ended_s"] is None or job["ended_s"] >= since]
    view = {"since_s": since, **summed(within), "gpus": _use(found, since)}
    if as_json:
        print_json(view)
        return
    say(f"since {clock(since)}")
    for label, text in _lines(view):
        say(f"{label:<12} {text}")


def summed(jobs: Sequence[Job]) -> dict[str, Any]:
    """Times are of jobs that completed: of one that was cancelled nobody knows how long it would have taken."""
    by_state: dict[str, int] = {}
    for job in jobs:
        by_state[job["state"]] = by_state.get(job["state"], 0) + 1
    done = [job for job in jobs if job["state"] == "completed"]
    took = [job["ended_s"] - job["submitted_s"] for job in done]
    ran_s = sum(job["ran_s"] for job in jobs)
    restarts_s = sum(job["restarts_s"] or 0.0 for job in jobs)
    return {
        "jobs": by_state,
        "completion_mean_s": statistics.fmean(took) if took else None,
        "completion_median_s": statistics.median(took) if took else None,
        "waited_mean_s": statistics.fmean(job["waited_s"] for job in jobs) if jobs else None,
        "makespan_s": max(j["ended_s"] for j in done) - min(j["submitted_s"] for j in done) if done else None,
        "resizes": sum(job["resizes"] for job in jobs),
        "preemptions": sum(job["preemptions"] for job in jobs),
        "migrations": sum(job["migrations"] for job in jobs),
        "restarts_s": restarts_s,
        "restarts_share": restarts_s / ran_s if ran_s else 0.0,
        "lost_s": sum(job["lost_s"] for job in jobs),
    }


def _use(found: Client, since: float) -> dict[str, Any]:
    """GPU hours that were there and that jobs held, from the timeline; GPUs are taken to have been there all the time
    since the first job of it."""
    view = found.get("/v1/timeline", **{"from": since, "to": 0})
    total = sum(node["gpus_total"] for node in found.get("/v1/nodes")["nodes"])
    spans, now_s = view["spans"], view["now_s"]
    begin_s = max(since, min((span["from_s"] for span in spans), default=now_s))
    held_s = sum(_gpu_s(span, begin_s, now_s) for span in spans)
    there_s = total * (now_s - begin_s)
    return {
        "total": total,
        "held_hours": held_s / 3600,
        "there_hours": there_s / 3600,
        "utilisation": min(1.0, held_s / there_s) if there_s else None,
        "truncated": view["truncated"],
    }


def _gpu_s(span: dict[str, Any], begin_s: float, now_s: float) -> float:
    held_s = float((span.get("to_s") or now_s) - max(begin_s, span["from_s"]))
    return max(0.0, held_s) * sum(len(gpus) for _, gpus in span["where"])


def _lines(view: dict[str, Any]) -> list[tuple[str, str]]:
    gpus, jobs = view["gpus"], view["jobs"]
    active = ", ".join(f"{count} {name}" for name, count in jobs.items() if name not in ENDS) or "none active"
    ended = ", ".join(f"{jobs[name]} {name}" for name in ENDS if name in jobs) or "none"
    lines = [("jobs", f"{active}; ended: {ended}"), ("GPUs", _gpus(gpus))]
    if view["completion_mean_s"] is not None:
        mean, median = format_duration(view["completion_mean_s"]), format_duration(view["completion_median_s"])
        lines.append(("completion", f"mean {mean}, median {median}, from submission to end"))
        lines.append(("makespan", f"{format_duration(view['makespan_s'])}, first submission to last end"))
    if view["waited_mean_s"] is not None:
        lines.append(("waiting", f"mean {format_duration(view['waited_mean_s'])}"))
    names = ("resizes", "preemptions", "migrations")
    lines.append(("scaling", ", ".join(plural(view[name], name[:-1]) for name in names)))
    lines.append(("restarts", _restarts(view)))
    if view["lost_s"] >= 1.0:
        lines.append(("lost", f"{format_duration(view['lost_s'])} of work since a last checkpoint"))
    return lines


def _gpus(gpus: dict[str, Any]) -> str:
    if gpus["utilisation"] is None:
        return f"{gpus['total']} there; no job has had one in this time"
    more = "; more runs than are counted here" if gpus["truncated"] else ""
    held, there = f"{gpus['held_hours']:.2f}", f"{gpus['there_hours']:.2f}"
    return f"{gpus['total']} there, {gpus['utilisation']:.0%} of the time in use ({held} of {there} GPU hours{more})"


def _restarts(view: dict[str, Any]) -> str:
    if not view["restarts_s"]:
        return "none was measured"
    return f"took {format_duration(view['restarts_s'])}, {view['restarts_share']:.1%} of running time"
