"""Lines of tables: what the API says of a job or a machine, as short words."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from swell.jobfile.units import format_duration

JOB_HEAD = ("ID", "NAME", "USER", "STATE", "GPUS", "PROGRESS", "WAITED", "RAN", "TOTAL", "ETA", "WHERE", "WHY")
NARROW_HEAD = tuple(name for name in JOB_HEAD if name not in ("WAITED", "RAN", "TOTAL"))
WIDE = 132
"""Columns of a terminal that has room for all of a job's times."""
WHY_LEAST = 32
"""Characters of a reason that say something."""
COLOURS = {
    "RUNNING": "green",
    "PREPARING": "cyan",
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


def job_head(columns: int | None, jobs: Sequence[Job] = ()) -> Sequence[str]:
    """What a list of these jobs shows on a terminal of this width; None: not a terminal. Where there is little room
    for WHY, it has that of USER, if that is the same for all, and of WHERE."""
    if columns is None or columns >= WIDE:
        return JOB_HEAD
    head = list(NARROW_HEAD)
    for name, spare in (("USER", len({job["user"] for job in jobs}) == 1), ("WHERE", True)):
        if jobs and spare and _room_for_why(columns, jobs, head) < 0:
            head.remove(name)
    return tuple(head)


def _room_for_why(columns: int, jobs: Sequence[Job], head: Sequence[str]) -> int:
    """Characters to spare once WHY has what it needs, or WHY_LEAST; negative if the table is too wide by that much."""
    rows = [head, *(job_row(job, head) for job in jobs)]
    *others, why = (max(map(len, column)) for column in zip(*rows, strict=True))
    return columns - sum(others) - 2 * len(others) - min(why, WHY_LEAST)


def job_row(job: Job, head: Sequence[str] = JOB_HEAD) -> tuple[str, ...]:
    cells: Mapping[str, str] = {
        "ID": str(job["id"]),
        "NAME": job["name"],
        "USER": job["user"] or "-",
        "STATE": state(job),
        "GPUS": gpus(job),
        "PROGRESS": progress(job),
        "WAITED": format_duration(job["waited_s"]),
        "RAN": format_duration(job["ran_s"]),
        "TOTAL": format_duration((job["ended_s"] or time.time()) - job["submitted_s"]),
        "ETA": _eta_cell(job, head),
        "WHERE": " ".join(job["where"]) or "-",
        "WHY": job["why"],
    }
    return tuple(cells[name] for name in head)


def _eta_cell(job: Job, head: Sequence[str]) -> str:
    """In a narrow table the later end of the wait alone, as `<`; how long it ran only where no column has it."""
    if job["ended_s"] is not None and "RAN" in head:
        return "-"
    if job["state"] == "queued" and job["starts_s"] and "RAN" not in head:
        until = _until(job["starts_s"])
        return f"starts <{until.partition('-')[2]}" if "-" in until else f"starts {until}"
    return eta(job)


def state(job: Job) -> str:
    """A queued job may be paused, and one that starts waits for its image first."""
    if job["paused"] and job["state"] == "queued":
        return "PAUSED"
    return "PREPARING" if job["state"] == "starting" and job.get("preparing") else str(job["state"]).upper()


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
    """How long until it has probably ended, or, while it waits, starts; how long it ran once it has ended."""
    if job["ended_s"] is not None:
        return f"ran {format_duration(job['ran_s'])}"
    if job["state"] == "queued" and job["starts_s"]:
        return f"starts {_until(job['starts_s'])}"
    return _until(job["eta_s"]) if job["eta_s"] else "-"


def _until(at_s: Sequence[float]) -> str:
    """From now; a range where it is not certain."""
    low, high = (max(0.0, at - time.time()) for at in at_s)
    first, last = format_duration(low), format_duration(high)
    if first != last and high - low >= 0.2 * high:
        return f"{first}-{last}"
    return last if round(high) else "<1s"


def holds(job: Job) -> str:
    """For a sentence: `2/4 GPUs on here:0,1`."""
    where = " ".join(job["where"])
    if not where:
        return ""
    if gpus(job) == "-":
        return f"on {where}"
    amount = {"share": "a share of a GPU", "1/1": "1 GPU"}.get(gpus(job), f"{gpus(job)} GPUs")
    return f"{amount} on {where}"


def outputs_line(outputs: Mapping[str, Any]) -> str:
    """For a sentence: what became of a job's outputs."""
    if outputs["problem"]:
        return f"outputs were not copied: {outputs['problem']}"
    files = "1 output file" if outputs["files"] == 1 else f"{outputs['files']} output files"
    return f"{files} copied into {outputs['into']}"


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
        notes.append(f"{others} of {len(gpus)} GPUs busy with others' work, left alone")
    return "; ".join(notes)
