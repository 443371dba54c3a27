"""Following a batch: a line for each job that starts or ends, its results brought back, a bar with the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from swell.cli.batch_bring import Bringing
from swell.cli.common import plural
from swell.cli.follow import ENDED
from swell.cli.ls import ALL, take
from swell.cli.patience import patiently
from swell.cli.terminal import safe, say
from swell.client.http import Client
from swell.core.errors import SwellError
from swell.jobfile.units import format_duration

if TYPE_CHECKING:
    from rich.progress import Progress

View = dict[str, Any]
EVERY_S = 0.25
TOLD_EVERY_S = 30.0
WORDS = {"completed": "finished", "cancelled": "cancelled"}


class NoSuchBatch(SwellError):
    """There is no job of that batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The jobs of one submission. A batch of one job has no name: its job stands for it."""

    client: Client
    name: str = ""
    job: int = 0

    def views(self) -> list[View]:
        if self.job:
            return [self.client.job(self.job)]
        return take(self.client, "all", ALL, {"batch": self.name})[0]

    def cancel(self) -> dict[str, Any]:
        self.client.close()  # Ctrl-C may have left half an answer on it
        body = {"jobs": [self.job]} if self.job else {"batch": self.name}
        answer: dict[str, Any] = self.client.post("/v1/jobs/cancel", body)
        return answer

    @property
    def ref(self) -> str:
        return self.name or str(self.job)


def found_batch(client: Client, ref: str) -> Batch:
    """By its name, by the id of one of its jobs, or `last`. The name comes first: it may have digits only."""
    if ref != "last" and client.jobs(batch=ref, limit=1)[0]:
        return Batch(client=client, name=ref)
    if ref == "last" or ref.isdecimal():
        view = client.job(ref)
        return Batch(client=client, name=view["batch"], job=0 if view["batch"] else view["id"])
    raise NoSuchBatch(f"there is no batch {ref!r}; `swell batch ls` lists them")


@dataclass(slots=True, kw_only=True)
class Follower:
    """What has been told of a batch. `lines`: what to show of a job beside its name."""

    lines: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False
    to_stderr: bool = False
    started: set[int] = field(default_factory=set)
    ended: dict[int, str] = field(default_factory=dict)
    waits: dict[int, str] = field(default_factory=dict)

    def news(self, views: Sequence[View]) -> Iterator[tuple[str, View]]:
        """What is new since the last time: each job is reported as started once and as ended once, in that order."""
        for view in sorted(views, key=lambda view: (view["started_s"] or float("inf"), view["id"])):
            job, over = view["id"], view["state"] in ENDED
            if job in self.ended:
                continue
            if job not in self.started and (view["state"] in ("running", "stopping") or (over and view["started_s"])):
                self.started.add(job)
                yield f"started: {self._titled(view, _where(view))}", view
            elif self.verbose and view["state"] == "queued" and self.waits.get(job) != view["why"]:
                self.waits[job] = view["why"]
                yield f"waiting: {view['name']}; {view['why']}", view
            if over:
                self.ended[job] = view["state"]
                yield f"{WORDS.get(view['state'], 'failed')}: {self._titled(view, _cause(view))}", view

    def _titled(self, view: View, detail: str) -> str:
        return "; ".join(part for part in (view["name"], detail, self.lines.get(view["name"], "")) if part)

    def count(self, *states: str) -> int:
        return sum(1 for state in self.ended.values() if state in states)

    @property
    def failed(self) -> int:
        return len(self.ended) - self.count("completed")

    def summary(self) -> str:
        parts = [f"{self.count('completed')} finished"]
        parts += [f"{n} failed" for n in [self.count("failed", "lost")] if n]
        parts += [f"{n} cancelled" for n in [self.count("cancelled")] if n]
        return ", ".join(parts)


def _where(view: View) -> str:
    """`CUDA_VISIBLE_DEVICES=0 on gpu1`; empty once it has left."""
    parts = []
    for place in view["where"]:
        node, _, gpus = place.partition(":")
        parts.append(f"CUDA_VISIBLE_DEVICES={gpus} on {node}" if gpus else f"on {node}")
    return " and ".join(parts)


def _cause(view: View) -> str:
    if view["state"] == "completed":
        return ""
    return view["message"] or (f"exit code {view['exit_code']}" if view["exit_code"] else "")


def follow_batch(batch: Batch, follower: Follower, results: Bringing) -> None:
    """Until all jobs have ended, each with its results brought back as it ends."""
    began_s = told_s = time.monotonic()
    with _bar() as bar:
        task = bar.add_task("", total=None) if bar else None
        while True:
            views = patiently(batch.views, f"swell batch attach {batch.ref}")
            for line, view in follower.news(views):
                if view["id"] in follower.ended and not line.startswith("started"):
                    results.begin(line, view)
                else:
                    say(safe(line), err=follower.to_stderr)
            for line in results.arrived(last=len(follower.ended) == len(views)):
                say(safe(line), err=follower.to_stderr)
            done, total = len(follower.ended), len(views)
            if bar and task is not None:
                failed = f"{plural(follower.failed, 'failure')}" if follower.failed else ""
                bar.update(task, completed=done, total=total, description=failed)
            elif time.monotonic() - told_s > TOLD_EVERY_S and done < total:
                told_s = time.monotonic()
                say(f"progress: {done}/{total} ended{_left(done, total, told_s - began_s)}", err=True)
            if done == total:
                return
            time.sleep(EVERY_S)


def _left(done: int, total: int, so_far_s: float) -> str:
    return f", about {format_duration((total - done) * so_far_s / done)} left" if done else ""


def _bar() -> AbstractContextManager[Progress | None]:
    """On a terminal. Lines that are said meanwhile go above it."""
    if not sys.stdout.isatty():
        return nullcontext()
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(
        *(*columns, TextColumn("left"), TimeRemainingColumn()),
        console=Console(soft_wrap=True),  # lines above it are wrapped by the terminal, so that they can be copied
        redirect_stderr=sys.stderr.isatty(),
        transient=True,
    )
