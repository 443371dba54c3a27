"""GET /v1/live: what an open page needs to stay true, worked out once however many pages are open.

A reader first gets `reset` with the cluster, then `jobs` with the lines of all jobs in memory, then a `change` whenever
something happened: lines of changed jobs, what runs did, machines. Messages are numbered; a reader that comes back with
the last number it saw gets what it missed, or a new `reset` if that is too long ago or the daemon was restarted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastapi import Request
from starlette.responses import Response

from swell import __version__
from swell.api.deps import as_seen, bounded, caller_of, context_of, lines_of, now_s, router_of
from swell.api.port import Engine
from swell.api.streams import COMMENT, KEEP_ALIVE_S, message, sse
from swell.api.views import JobView, event_view, node_views, public_event, public_line
from swell.core import events as ev
from swell.core.accounts import Caller, Role
from swell.core.ids import JobId
from swell.core.resources import Contact
from swell.core.state import JobRecord
from swell.ports import Stored

log = logging.getLogger(__name__)
router = router_of("cluster")

KEPT = 500
"""Changes a reader may be behind."""
TOGETHER_S = 0.2
"""Events this close together are one change."""
QUIET_S = 3.0
"""Without events: so often reasons and forecasts of waiting jobs are looked at again."""
SILENCE_S = 10.0
"""While a machine does not answer: so often pages hear for how long, and how long its jobs may go on."""
AT_ONCE = 250
"""Lines made between two chances for other work; also the most that a look at waiting jobs sends."""
SHARE = 20.0
"""Work that took t is followed by a pause of SHARE × t at least: one part in twenty of a core at most."""

_OF_RUNS = ev.RunPlanned | ev.RunStarted | ev.RunResized | ev.RunStopRequested | ev.RunStopWithdrawn | ev.RunEnded
_OF_CLUSTER = ev.NodeObserved | ev.NodeConditionChanged | ev.NodeContactChanged | ev.NodeRemoved | ev.PolicySet


@dataclass(frozen=True)
class Change:
    """Written once for all readers of a kind, when the first of them asks."""

    number: int
    ident: str
    content: Mapping[str, Any]

    @cached_property
    def full(self) -> bytes:
        return message("change", self.content, self.ident)

    @cached_property
    def public(self) -> bytes:
        """For those who may not read every job. Their own jobs are whole on the job's page."""
        content = dict(self.content)
        if "jobs" in content:
            content["jobs"] = [public_line(line) for line in content["jobs"]]
        if "happened" in content:
            content["happened"] = [public_event(view) for view in content["happened"]]
        return message("change", content, self.ident)


class Live:
    """One for the application. Works only while somebody reads."""

    def __init__(self) -> None:
        self._boot = secrets.token_hex(4)
        self._number = 0
        self._kept: deque[Change] = deque(maxlen=KEPT)
        self._news = asyncio.Condition()
        self._readers = 0
        self._work: asyncio.Task[None] | None = None
        self._shown: dict[JobId, tuple[JobRecord, object, str]] = {}
        self._turn = 0
        self._dirty: dict[JobId, None] = {}
        self._happened: list[Mapping[str, Any]] = []
        self._cluster_changed = False
        self._unrecorded: object = None
        self._wake = asyncio.Event()

    async def follow(self, engine: Engine, who: Caller, last: str) -> AsyncIterator[bytes]:
        self._readers += 1
        if self._work is None:
            self._work = asyncio.create_task(self._run(engine))
        try:
            number = self._resumed(last)
            if number is None:
                number = self._number
                async for part in self._all(engine, who):
                    yield part
            whole = who.role.includes(Role.OPERATOR)
            while True:
                for change in [kept for kept in self._kept if kept.number > number]:
                    number = change.number
                    yield change.full if whole else change.public
                if not await self._wait_beyond(number):
                    yield COMMENT
        finally:
            self._readers -= 1
            if not self._readers:
                await self._rest()

    def _resumed(self, last: str) -> int | None:
        boot, _, number = last.partition("-")
        seen = bounded(number)
        if boot != self._boot or seen is None or not self._kept:
            return None
        return seen if seen >= self._kept[0].number - 1 else None

    async def _wait_beyond(self, number: int) -> bool:
        """False: nothing came for a while."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_S), self._news:
                await self._news.wait_for(lambda: self._number > number)
        except TimeoutError:
            return False
        return True

    async def _all(self, engine: Engine, who: Caller) -> AsyncIterator[bytes]:
        reset = {"version": __version__, "now_s": now_s(engine), "seq": engine.state.seq, **cluster_view(engine)}
        yield message("reset", {**reset, "jobs": len(engine.state.jobs)}, f"{self._boot}-{self._number}")
        jobs = sorted(engine.state.jobs, reverse=True)
        for start in range(0, len(jobs), AT_ONCE):
            lines = self._lines(engine, jobs[start : start + AT_ONCE])
            yield message("jobs", {"jobs": as_seen(who, [engine.state.jobs[line["id"]] for line in lines], lines)})
            await asyncio.sleep(0)

    # -- work, once for all readers -----------------------------------------------------------------------------------

    async def _rest(self) -> None:
        work, self._work = self._work, None
        self._kept.clear()
        self._shown.clear()
        if work is not None:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work

    async def _run(self, engine: Engine) -> None:
        listener = asyncio.create_task(self._listen(engine))
        pause_s = TOGETHER_S
        self._changed_without_event(engine)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(QUIET_S):
                        await self._wake.wait()
                await asyncio.sleep(pause_s)
                self._wake.clear()
                began_s = time.thread_time()
                try:
                    await self._tell(self._change(engine), now_s(engine))
                except Exception:
                    log.exception("open pages could not be sent a change; the next one is tried")
                pause_s = max(TOGETHER_S, SHARE * (time.thread_time() - began_s))
        finally:
            listener.cancel()

    async def _listen(self, engine: Engine) -> None:
        async for stored in engine.subscribe(engine.state.seq):
            self._note(stored)
            self._wake.set()

    def _note(self, stored: Stored) -> None:
        job = ev.job_of(stored.event)
        if job is not None:
            self._dirty[job] = None
        if isinstance(stored.event, _OF_RUNS):
            self._happened.append(event_view(stored))
            self._cluster_changed = True  # who holds which GPU
        elif isinstance(stored.event, _OF_CLUSTER):
            self._cluster_changed = True

    def _change(self, engine: Engine) -> dict[str, Any]:
        known = engine.state.jobs
        dirty, self._dirty = self._dirty, {}
        lines = self._lines(engine, [job for job in dirty if job in known])
        lines += self._waiting(engine, dirty)
        change: dict[str, Any] = {}
        if lines:
            change["jobs"] = lines
        if removed := [job for job in dirty if job not in known]:
            change["removed"] = removed
        if self._happened:
            change["happened"], self._happened = self._happened, []
        if self._cluster_changed | self._changed_without_event(engine):
            change["cluster"], self._cluster_changed = cluster_view(engine), False
        return change

    def _changed_without_event(self, engine: Engine) -> bool:
        """What GPUs do, for how long a machine has been silent, and that no event can be written."""
        health, nodes = engine.health(), engine.state.nodes.values()
        silent = any(node.contact is not Contact.HERE for node in nodes)
        since = engine.now_s() // SILENCE_S if silent else None
        before = self._unrecorded
        self._unrecorded = (engine.idle_gpus.use, health.get("degraded"), health.get("deciding"), since)
        return before != self._unrecorded

    def _waiting(self, engine: Engine, sent: Mapping[JobId, None]) -> list[JobView]:
        """Jobs of which nothing happened, but whose reason or forecast has changed: some of them, each in its turn."""
        active = list(engine.state.active)
        if not active:
            return []
        start = self._turn % len(active)
        some = (active[start:] + active[:start])[:AT_ONCE]
        self._turn = start + len(some)
        shown = {job: self._shown.get(job) for job in some if job not in sent}
        lines = self._lines(engine, list(shown))
        return [line for line in lines if self._shown.get(line["id"]) != shown[line["id"]]]

    def _lines(self, engine: Engine, jobs: Iterable[JobId]) -> list[JobView]:
        records = [engine.state.jobs[job] for job in jobs if job in engine.state.jobs]
        lines = lines_of(engine, records)
        for record, line in zip(records, lines, strict=True):
            self._shown[record.id] = (record, engine.eta(record.id), line["why"])
        return lines

    async def _tell(self, change: dict[str, Any], at_s: float) -> None:
        if not change:
            return
        change["now_s"] = at_s
        async with self._news:
            self._number += 1
            self._kept.append(Change(self._number, f"{self._boot}-{self._number}", change))
            self._news.notify_all()


def cluster_view(engine: Engine) -> dict[str, Any]:
    state = engine.state
    return {
        "nodes": node_views(state, engine.idle_gpus.use, engine.now_s()),
        "policy": state.policy,
        "placer": state.placer,
        "health": engine.health(),
    }


@router.get("/v1/live", response_class=Response)
async def follow_live(request: Request) -> Response:
    """Server-sent events: `reset`, `jobs`, then `change`; resume with Last-Event-ID."""
    live: Live = request.app.state.live
    last = request.headers.get("last-event-id", "")
    return sse(live.follow(context_of(request).engine, caller_of(request), last))
