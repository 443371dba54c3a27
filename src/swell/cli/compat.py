"""The commands of the Kubernetes scheduler's submission guide, with its options, over Swell: thin aliases.

`run-scheduler`, `scheduler-state`, `scheduler-cancel-job`, `scheduler-get-logs`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from swell.cli.cancel import cancel
from swell.cli.common import client, client_or_start, table
from swell.cli.logs import logs
from swell.cli.main import guarded
from swell.cli.numbers import Amount, Count
from swell.cli.sending import Document, prepare, send
from swell.cli.submit import tell
from swell.cli.tables import JOB_HEAD, job_row
from swell.cli.terminal import say

CUSTOM, SNAPSHOTS, DATA = "/custom", "/snapshots", "/data"
MOST_GPUS = 8
"""For a job that is not single-GPU: the guide lets its scheduler choose any number."""


@click.command("run-scheduler")
@click.argument("job_name")
@click.option("--image_name", default="", help="Docker image. Left out: runs on the machine as it is.")
@click.option("--script_path", required=True, help="Run as `python SCRIPT_PATH`; a path inside the container.")
@click.option("--custom_dir", default="", help="Seen by the script at /custom.")
@click.option("--snapshots_dir", default="", help="Seen by the script at /snapshots; checkpoints go there.")
@click.option("--batch_size", type=Count(0), default=0)
@click.option("--training_set_size", type=Count(0), default=0)
@click.option("--max_epochs", type=Count(0), default=0)
@click.option("--is_single_gpu", type=bool, default=False, help="Never more than one GPU.")
@click.option("--disable_gpu_sharing", type=bool, default=False, help="Always alone on its GPU.")
@click.option("--estimated_memory", type=Count(0), default=0, help="GPU memory, in MiB.")
@click.option("--port_mapping", default="", help="nodePort:containerPort,…")
@click.option("--est_nhours", type=Amount(0), default=0.0, help="Estimated duration in hours.")
def run_scheduler(job_name: str, **said: Any) -> None:
    """Submit JOB_NAME, as the submission guide says."""
    document = document_of(job_name, datasets=Path.home() / "datasets", **said)
    found = client_or_start(None)
    packed = prepare(found, [document], snapshot=True, home=None)
    tell(send(found, [document]), packed, as_json=False)


def document_of(job_name: str, *, datasets: Path, image_name: str, script_path: str, **said: Any) -> Document:
    """The job file that says the same."""
    document: Document = {
        "name": job_name,
        "command": ["python", script_path],
        "gpus": _gpus(said["is_single_gpu"], said["disable_gpu_sharing"], said["estimated_memory"]),
        "epochs": said["max_epochs"],
        "batch_size": said["batch_size"],
        "dataset_size": said["training_set_size"],
        "estimated_hours": said["est_nhours"],
        "ports": [pair for pair in said["port_mapping"].split(",") if pair],
        "uses_library": True,
    }
    if image_name:
        document["image"] = image_name
        _in_container(document, said["custom_dir"], said["snapshots_dir"], datasets)
    else:
        _on_the_machine(document, script_path, said["custom_dir"], said["snapshots_dir"])
    return document


def _gpus(single: bool, alone: bool, memory_mib: int) -> dict[str, Any]:
    if not single:
        return {"min": 1, "max": MOST_GPUS, "memory": f"{memory_mib}MiB"}
    return {"min": 1, "max": 1, "memory": f"{memory_mib}MiB", "share": bool(memory_mib) and not alone}


def _in_container(document: Document, custom: str, snapshots: str, datasets: Path) -> None:
    seen = [(custom, CUSTOM), (snapshots, SNAPSHOTS), (str(datasets) if datasets.is_dir() else "", DATA)]
    document["mounts"] = [{"source": _whole(source), "target": target} for source, target in seen if source]
    document["workdir"] = CUSTOM if custom else "/"
    if snapshots:
        document["checkpoint_dir"] = SNAPSHOTS


def _whole(path: str) -> str:
    """As seen from where it was typed. Links stay: whether they may be followed is decided where it is mounted."""
    return os.path.normpath(Path(path).expanduser().absolute())


def _on_the_machine(document: Document, script: str, custom: str, snapshots: str) -> None:
    """Without an image nothing is mounted: what the guide calls /custom is the directory itself."""
    if custom:
        base = str(Path(custom).expanduser().resolve())
        document["command"] = ["python", base + script[len(CUSTOM) :] if script.startswith(CUSTOM + "/") else script]
        document["workdir"] = base
    if snapshots:
        document["checkpoint_dir"] = str(Path(snapshots).expanduser().resolve())


@click.command("scheduler-state")
@click.option("--all_users", is_flag=True, help="Everybody's jobs, not only yours.")
@click.option("--nlast", type=Count(1), default=10, show_default=True, help="How many jobs to show, the last ones.")
@click.option("--extended", is_flag=True, help="Everything that is known of each.")
def scheduler_state(all_users: bool, nlast: int, extended: bool) -> None:
    """The last jobs and their state."""
    found = client()
    jobs, _ = found.jobs(state="all", limit=nlast, user="" if all_users else found.me())
    if not extended:
        say(table(JOB_HEAD, [job_row(job) for job in jobs]))
        return
    for job in jobs:
        say("\n".join(f"{name}: {value}" for name, value in job.items() if value not in ("", None, [], {})))
        say()


@click.command("scheduler-cancel-job")
@click.argument("job")
def scheduler_cancel_job(job: str) -> None:
    """End JOB, whether it runs or waits."""
    cancel.main([job], prog_name="scheduler-cancel-job")


@click.command("scheduler-get-logs")
@click.argument("job")
def scheduler_get_logs(job: str) -> None:
    """What JOB has printed."""
    logs.main([job], prog_name="scheduler-get-logs")


def run_scheduler_main() -> None:
    guarded(run_scheduler)


def scheduler_state_main() -> None:
    guarded(scheduler_state)


def scheduler_cancel_job_main() -> None:
    guarded(scheduler_cancel_job)


def scheduler_get_logs_main() -> None:
    guarded(scheduler_get_logs)
