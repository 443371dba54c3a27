"""`swell demo`: real trainings share a few slots; then the proof that none lost anything."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from swell.cli.common import columns, start_daemon
from swell.cli.tables import job_head, job_row
from swell.cli.terminal import say
from swell.cli.ui import page_of
from swell.client.errors import DaemonUnreachable, Refused
from swell.client.http import Client
from swell.demo.check import Trained, complaints, trained
from swell.demo.picture import timeline
from swell.demo.story import SLOTS, STORY, Act

EVERY_S = 0.25
LIMIT_S = 170.0
CONFIG = "options:\n  min_run_s: 2.0\n"
"""The demo's epochs take a second, not minutes: a run may change again after two."""

PACKAGE = str(Path(__file__).resolve().parents[2])
"""Where this package is, so that the jobs find the demo's trainer also in a checkout that was not installed."""

Job = dict[str, Any]


@dataclass(slots=True)
class Show:
    """What has been seen so far."""

    ids: dict[int, Act] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    samples: list[dict[str, int]] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return len(self.jobs) == len(STORY) and all(job["ended_s"] is not None for job in self.jobs.values())


@click.command()
@click.option("--keep", is_flag=True, help="Leave the dashboard open at the end, and keep the home directory.")
def demo(keep: bool) -> None:
    """Watch real trainings share a few slots: they grow, shrink, are preempted and resume, losing nothing."""
    home = Path(tempfile.mkdtemp(prefix="swell-demo-"))
    (home / "config.yaml").write_text(CONFIG, encoding="utf-8")
    try:
        with served(home) as client:
            _introduce(client)
            show = play(client)
            wrong = conclude(show, home)
            if keep:
                _stay(client)
    finally:
        if keep:
            say(f"kept: {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)
    sys.exit(1 if wrong else 0)


def _stay(client: Client) -> None:
    say(f"the dashboard stays open: {page_of(client)}  (Ctrl-C ends it)")
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600.0)


def _introduce(client: Client) -> None:
    say(
        f"{len(STORY)} real trainings (numpy: real gradients, checkpoints and losses) share {SLOTS} slots under "
        "elastic-fifo.\nA slot stands for a GPU: each step waits as long as a GPU would compute, n slots share that "
        "time.\n`urgent` arrives after 20 s with high priority and needs three slots.\n"
        f"Watch it in a browser (within a minute): {page_of(client)}\n"
    )


@contextmanager
def served(home: Path) -> Iterator[Client]:
    client = start_daemon(home, ("--gpus", str(SLOTS), "--policy", "elastic-fifo"))
    try:
        yield client
    finally:
        _end(client)


def _end(client: Client) -> None:
    """Cancel what still runs, wait for it, then stop the daemon: nothing is left behind."""
    import os
    import signal

    with suppress(DaemonUnreachable, Refused):
        for job, _ in _jobs_running(client):
            client.act(job, "cancel")
        deadline = time.monotonic() + 10
        while _jobs_running(client) and time.monotonic() < deadline:
            time.sleep(0.1)
    with suppress(OSError):
        os.kill(client.address.pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and _alive(client.address.pid):
            time.sleep(0.05)


def _alive(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def _jobs_running(client: Client) -> list[tuple[int, Job]]:
    jobs, _ = client.jobs(state="all", limit=100)
    return [(int(job["id"]), job) for job in jobs if job["ended_s"] is None]


def play(client: Client) -> Show:
    """Submit each job at its time, and show what happens until all have ended."""
    from rich.console import Console
    from rich.live import Live

    show, console, began = Show(), Console(), time.monotonic()
    waiting = list(STORY)
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while not show.over and time.monotonic() - began < LIMIT_S:
            now_s = time.monotonic() - began
            while waiting and waiting[0].at_s <= now_s:
                _submit(client, waiting.pop(0), show, console)
            _look(client, show)
            live.update(_table(show, now_s))
            time.sleep(EVERY_S)
    return show


def _submit(client: Client, act: Act, show: Show, console: Any) -> None:
    arguments = {"--width": act.width, "--seed": act.seed, "--epochs": act.epochs, "--slot-seconds": act.slot_s}
    words = [str(word) for pair in arguments.items() for word in pair]
    spec = {
        "name": act.name,
        "command": [sys.executable, "-m", "swell.demo.trainer", *words],
        "gpus": act.gpus,
        "priority": act.priority,
        "epochs": act.epochs,
        "uses_library": True,
        "env": {"PYTHONPATH": PACKAGE, **_kernels()},
    }
    answer = client.submit(spec, key=str(uuid.uuid4()))
    job = int(answer["jobs"][0]["id"])
    show.ids[job] = act
    console.print(f"{act.at_s:5.0f} s  job {job} {act.name} arrives: {act.gpus} slots, {act.priority} priority")


def _look(client: Client, show: Show) -> None:
    jobs, _ = client.jobs(state="all", limit=100)
    show.jobs = {int(job["id"]): job for job in jobs}
    show.samples.append({job["name"]: job["gpus"]["held"] for job in show.jobs.values() if job["ended_s"] is None})


def _table(show: Show, now_s: float) -> Any:
    from rich.table import Table

    jobs = [job for _, job in sorted(show.jobs.items())]
    head = job_head(columns(), jobs)
    rows = [job_row(job, head) for job in jobs]
    table = Table(
        title=f"{now_s:.0f} s", title_justify="left", box=None, pad_edge=False, expand=True, header_style="bold"
    )
    for index, name in enumerate(head):
        whole = None if name == "WHY" else max(len(name), *(len(row[index]) for row in rows), 0)
        ratio = 1 if name == "WHY" else None  # it alone gives way
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=whole, ratio=ratio)
    for row in rows:
        table.add_row(*row)
    return table


def conclude(show: Show, home: Path) -> list[str]:
    """The summary, and everything that is not as it should be."""
    from rich.console import Console

    console = Console()
    seen = {job: trained(home / "runs", job, show.jobs[job]["attempts"]) for job in sorted(show.ids)}
    console.print(_summary(show, seen))
    console.print("slots over time (a digit: how many it held; ·: waiting)", style="bold")
    console.print(timeline(show.samples, [act.name for act in show.ids.values()], console.width))
    wrong = verdict(show, seen)
    if wrong:
        console.print("\n".join(f"wrong: {text}" for text in wrong), style="red")
    else:
        epochs = sum(len(t.epochs) for t in seen.values())
        console.print(
            f"checked: all {epochs} epochs of {len(seen)} jobs were trained exactly once, and every loss is equal, to "
            "the last bit, to the same training without interruption.",
            style="green",
        )
    return wrong


def _summary(show: Show, seen: dict[int, Trained]) -> Any:
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for head in ("JOB", "STATE", "WAITED", "TOOK", "RUNS", "PREEMPTED", "RESIZED", "SLOTS", "LOSS"):
        table.add_column(head, justify="left" if head in ("JOB", "STATE") else "right", no_wrap=True)
    for number, act in show.ids.items():
        job, found = show.jobs[number], seen[number]
        took_s = (job["ended_s"] or time.time()) - job["submitted_s"]
        slots = f"{min(found.slots)}-{max(found.slots)}" if found.slots else "-"
        loss = f"{found.losses[-1]:.4f}" if found.losses else "-"
        counts = [str(job[key]) for key in ("attempts", "preemptions", "resizes")]
        table.add_row(act.name, job["state"], f"{job['waited_s']:.0f} s", f"{took_s:.0f} s", *counts, slots, loss)
    return table


def verdict(show: Show, seen: dict[int, Trained]) -> list[str]:
    wrong = [
        f"{job['name']} is {job['state']}: {job['message']}"
        for job in show.jobs.values()
        if job["state"] != "completed"
    ]
    wrong += [text for number, act in show.ids.items() for text in complaints(act, seen[number])]
    if not any(_grew(found.slots) for found in seen.values()):
        wrong.append("no job grew into idle slots")
    if not any(_grew(found.slots[::-1]) for found in seen.values()):
        wrong.append("no job shrank for a newcomer")
    if not any(job["preemptions"] and job["state"] == "completed" for job in show.jobs.values()):
        wrong.append("no job was preempted and resumed")
    return wrong


def _grew(slots: Sequence[int]) -> bool:
    return any(later > earlier for earlier, later in itertools.pairwise(slots))


def _kernels() -> dict[str, str]:
    """The shell's choice of numpy's kernels, which this process has as well: losses are compared to the last digit."""
    return {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}
