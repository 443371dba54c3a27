"""Lines of tables: what the API says of a job or a machine, as short words."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from swell.jobfile.units import format_duration

JOB_HEAD = ("ID", "NAME", "USER", "STATE", "GPUS", "PROGRESS", "ETA", "WHERE", "WHY")
COLOURS = {
    "RUNNING": "green",
    "STARTING": "cyan",
    "STOPPING": "yellow",
    "FAILED": "red",
    "LOST": "red",
    "PAUSED": "yellow",
    "COMPLETED": "dim",
    "CANCELLED": "dim",
}
"""Of lines, by what `state` says; none: as it is."""
Job = Mapping[str, Any]


def job_row(job: Job) -> tuple[str, ...]:
    return (
        str(job["id"]),
        job["name"],
        job["user"] or "-",
        state(job),
        gpus(job),
        progress(job),
        eta(job),
        " ".join(job["where"]) or "-",
        job["why"],
    )


def state(job: Job) -> str:
    return "PAUSED" if job["paused"] and job["state"] == "queued" else str(job["state"]).upper()


def gpus(job: Job) -> str:
    """2/4: holds two of up to four; 1-4: would take that many; -: needs none."""
    said = job["gpus"]
    if said["max"] == 0:
        return "-"
    if said["share"]:
        return "share"
    if job["where"]:
        return f"{said['held']}/{said['max']}"
    return str(said["max"]) if said["min"] == said["max"] else f"{said['min']}-{said['max']}"


def progress(job: Job) -> str:
    said = job["progress"]
    unit, done, total = said["unit"], said["epochs_done"], said["epochs_total"]
    if not total:
        return f"{unit} {done}" if done else "-"
    return f"{done}/{total}" if unit == "epoch" else f"{short_count(done)}/{short_count(total)} {unit}s"


def short_count(number: int) -> str:
    """950, 1.2k, 600k, 1.5M, 300B: as precise as a progress column needs."""
    for size, suffix in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g}{suffix}"
    return str(number)


def eta(job: Job) -> str:
    """How long until it has probably ended; how long it ran once it has."""
    if job["ended_s"] is not None:
        return f"ran {format_duration(job['ran_s'])}"
    if not job["eta_s"]:
        return "-"
    low, high = (max(0.0, at - time.time()) for at in job["eta_s"])
    return format_duration(high) if high - low < 0.2 * high else f"{format_duration(low)}-{format_duration(high)}"


def holds(job: Job) -> str:
    """For a sentence: `2/4 GPUs on here:0,1`."""
    where = " ".join(job["where"])
    if not where:
        return ""
    amount = {"-": "no GPU", "share": "a share of a GPU", "1/1": "1 GPU"}.get(gpus(job), f"{gpus(job)} GPUs")
    return f"{amount} on {where}"


NODE_HEAD = ("NODE", "CONDITION", "FREE", "GPU TYPE", "CPUS", "MEMORY", "JOBS", "WHY")


def node_row(node: Mapping[str, Any]) -> tuple[str, ...]:
    jobs = sorted({job for gpu in node["gpus"] for job in gpu["jobs"]})
    return (
        node["name"],
        str(node["condition"] if node["contact"] == "here" else node["contact"]).upper(),
        f"{node['gpus_free']}/{node['gpus_total']}",
        ", ".join(_distinct(gpu["type"] for gpu in node["gpus"])) or "-",
        str(node["cpus"]),
        f"{node['memory_mib'] / 1024:.0f}GiB",
        ", ".join(map(str, jobs)) or "-",
        node["why"] or _gpu_notes(node["gpus"]),
    )


def _distinct(items: Any) -> Sequence[str]:
    return list(dict.fromkeys(items))


def _gpu_notes(gpus: Sequence[Mapping[str, Any]]) -> str:
    notes = [f"GPU {gpu['index']} {gpu['health']}: {gpu['why']}" for gpu in gpus if gpu["health"] != "ok"]
    others = sum(1 for gpu in gpus if gpu["others"])
    if others:
        notes.append(f"{others} busy with other people's work, left alone")
    return "; ".join(notes)
