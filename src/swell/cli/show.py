"""`swell show JOB`: everything about one job."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.asked_for import left_out_note
from swell.cli.common import client, connected, plural, print_json, table
from swell.cli.show_speed import gpu_use_line, loss_line, samples_line, speed_lines
from swell.cli.tables import eta, gpus, holds, outputs_line, progress, state
from swell.cli.terminal import safe, say
from swell.jobfile.batchfile import RUN_LINE
from swell.jobfile.units import format_duration, format_size

COUNTED = {
    "attempts": "attempt",
    "failures": "failure",
    "kills": "killed run",
    "preemptions": "preemption",
    "resizes": "resize",
    "migrations": "migration",
}


@click.command()
@click.argument("job", type=completion.JOB)
@connected
def show(home: Path | None, as_json: bool, job: str) -> None:
    """Show JOB (an id, a name, or `last`), with its attempts."""
    found = client(home)
    view = found.job(job)
    view["runs"] = found.get(f"/v1/jobs/{view['id']}/runs")["runs"]
    view["kept"] = found.get(f"/v1/jobs/{view['id']}/files")
    view["speed"] = found.get(f"/v1/jobs/{view['id']}/speed")
    view["series"] = found.get(f"/v1/jobs/{view['id']}/series")["series"]
    if as_json:
        print_json(view)
        return
    for label, value in _lines(view):
        if value:
            say(f"{label:<12} {safe(value)}")
    held, unit = view["gpus"]["held"], view["progress"]["unit"]
    if view["gpus"]["max"] > 1 and (lines := speed_lines(view["speed"], held, unit)):
        say("\n" + "\n".join(map(safe, lines)))
    if view["runs"]:
        say("\n" + table(("RUN", "GPUS", "WHERE", "STARTED", "RAN", "EXIT", "WHY"), [_run(r) for r in view["runs"]]))


def _lines(view: dict[str, Any]) -> list[tuple[str, str]]:
    spec = view["spec"]
    return [
        ("job", f"{view['id']}  {view['name']}"),
        ("state", f"{state(view)}  {holds(view)}".strip()),
        ("why", view["why"]),
        ("user", " / ".join(part for part in (view["user"], view["team"]) if part)),
        ("command", command_line(spec["command"])),
        ("gpus", gpus({**view, "where": []})),
        ("priority", str(view["priority"])),
        ("progress", progress(view)),
        ("eta", "" if view["ended_s"] else eta(view)),
        ("waited", format_duration(view["waited_s"])),
        ("ran", format_duration(view["ran_s"])),
        ("lost", _lost(view["lost_s"])),
        ("counts", ", ".join(plural(view[key], noun) for key, noun in COUNTED.items() if view[key])),
        ("snapshot", _snapshot(view)),
        ("files", _kept(view["kept"])),
        ("checkpoints", _saved(view["kept"])),
        ("checkpoint", _checkpoint(view)),
        ("rewound", view["rewound"]),
        ("outputs", _outputs(view)),
        ("workdir", spec["workdir"]),
        ("python", spec["python"]),
        ("shell", " ".join(f"{key}={value}" for key, value in spec["shell_env"].items())),
        ("env", " ".join(f"{key}={value}" for key, value in spec["env"].items())),
        ("gpu use", gpu_use_line(view["series"])),
        ("samples/s", samples_line(view["series"])),
        ("scaling", _scaling(view)),
        ("loss", loss_line(view["series"])),
        ("metrics", " ".join(f"{key}={value:.4g}" for key, value in view["metrics"].items())),
        ("message", view["message"] if view["message"] != view["why"] else ""),
        ("note", left_out_note(view, view["kept"])),
    ]


def command_line(command: list[str]) -> str:
    """As it was written: a shell line stays one, and so does a line of a batch file."""
    if command[2:3] == [RUN_LINE]:
        return command[-1]
    return command[2] if command[:2] == ["/bin/sh", "-c"] and len(command) == 3 else shlex.join(command)


def _lost(seconds: float) -> str:
    """Work that ends of runs threw away: from the last checkpoint on."""
    return f"{format_duration(seconds)} of work since the last checkpoint was lost" if seconds >= 1.0 else ""


def _kept(kept: dict[str, Any]) -> str:
    """Where what it wrote is, and how much of the disk all of it uses."""
    size = sum(kept[kind]["bytes"] for kind in ("working_copy", "checkpoints", "logs"))
    return f"{kept['directory']}  ({format_size(size)} on disk; `swell fetch {kept['job']}` copies what it wrote)"


def _saved(kept: dict[str, Any]) -> str:
    """What the library saved, if it lies on the daemon's machine."""
    found = kept["checkpoints"]
    if not found["files"]:
        return ""
    size = f"{plural(found['files'], 'file')}, {format_size(found['bytes'])}"
    return f"{found['path']}  ({size}; `swell fetch {kept['job']} --checkpoints`)"


def _checkpoint(view: dict[str, Any]) -> str:
    """Where else its checkpoint is than on its machine."""
    copy = view["copy"]
    if copy is None:
        return ""
    if copy["problem"]:
        return f"only on {' and '.join(dict.fromkeys((view['files_on'], *copy['shared_by'])))}: {copy['problem']}"
    at, size = time.strftime("%H:%M:%S", time.localtime(copy["at_s"])), format_size(copy["bytes"])
    return f"copy of {view['progress']['unit']} {copy['epoch']} with the daemon since {at} ({size})"


def _withdrawn(withdrawn: dict[str, Any] | None) -> str:
    """A resize or move that did not come about."""
    if withdrawn is None:
        return ""
    return f"{withdrawn['change'] or withdrawn['why']} was withdrawn: {withdrawn['reason']}"


def _scaling(view: dict[str, Any]) -> str:
    """What restarts have cost it, as far as they were measured."""
    if view["restart_cost_s"] is None or view["attempts"] < 2:
        return ""
    each, all_of_them = format_duration(view["restart_cost_s"]), format_duration(view["restarts_s"])
    return f"a restart costs it {each}; {plural(view['attempts'] - 1, 'restart')} so far, about {all_of_them} in all"


def _snapshot(view: dict[str, Any]) -> str:
    if not view["files"]:
        return ""
    found = view["kept"]["snapshot"]
    own = f", {format_size(found['own_bytes'])} of it in no other snapshot" if found["own_bytes"] else ""
    return f"{view['files'][:7]}  {plural(found['files'], 'file')}, {format_size(found['bytes'])} on disk{own}"


def _outputs(view: dict[str, Any]) -> str:
    if view["outputs"]:
        return outputs_line(view["outputs"])
    wanted = view["spec"]["outputs"]
    return f"{' '.join(wanted)} will be copied into {view['spec']['outputs_to']} when it ends" if wanted else ""


def _why(run: dict[str, Any]) -> str:
    """Why it was stopped comes before how it ended then: a signal is only the way."""
    stop, message = run["stop"] or {}, run["message"]
    asked = stop.get("reason") or ""
    if message:
        return f"{asked}; {message}" if run["exit_reason"] == "stopped" and asked and asked not in message else message
    return asked or stop.get("why") or run["reason"]


def _run(run: dict[str, Any]) -> tuple[str, ...]:
    started = run["started_s"]
    ran_s = (run["ended_s"] or time.time()) - started if started else 0.0
    ended = run["exit_reason"] or ("stopping" if run["stop"] else "runs" if started else "starts")
    code = f" ({run['exit_code']})" if run["exit_code"] not in (None, 0) else ""
    at = time.strftime("%m-%d %H:%M:%S", time.localtime(started)) if started else "-"
    withdrawn = run.get("withdrawn") if not run["exit_reason"] else None
    parts = (_why(run), _withdrawn(withdrawn), _lost(run["lost_s"]))
    why = "; ".join(part for part in parts if part)
    return (run["id"], str(run["gpus"]), " ".join(run["where"]), at, format_duration(ran_s), ended + code, why)
