"""Keeps SwellJob objects and jobs together: submits what is new, cancels what is deleted, writes what became of it.

Level-triggered: each look at an object decides from what is there now, so that whatever was missed is made up for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from swell.api.deps import named_jobs
from swell.api.port import Engine
from swell.core.errors import Conflict, NotFound, SwellError
from swell.core.events import Event, job_of
from swell.core.ids import JobId
from swell.core.state import JobRecord
from swell.executors.kubernetes.api import Api, Refusal, namespaced
from swell.executors.kubernetes.watch import Reflector
from swell.executors.transport import Unreachable
from swell.jobfile.expand import Given, expand
from swell.swelljobs.resource import (
    CLUSTER,
    FINALIZER,
    GROUP,
    PLURAL,
    REMOVED,
    VERSION,
    SwellJob,
    document_of,
    refused,
    status_of,
    swell_job_of,
)

log = logging.getLogger(__name__)

REFRESH_S = 10.0
"""Times of jobs that go on are brought up to date so often."""
ABSENT_S = 60.0
"""A cluster without the custom resource is asked again after this; so is a job that was refused."""
BY = "kubectl"


class SwellJobs:
    """`cluster`: the id of this Swell. Objects of the daemon's own namespace only."""

    def __init__(self, api: Api, engine: Engine, cluster: str) -> None:
        self._api = api
        self._engine = engine
        self._cluster = cluster
        self._path = namespaced(api.namespace, PLURAL, group=f"{GROUP}/{VERSION}")
        self._objects = Reflector(api, self._path, swell_job_of, self._changed)
        self._dirty: dict[str, None] = {}
        self._of_job: dict[JobId, str] = {}
        self._refused_s: dict[str, float] = {}  # by uid: when it is tried again
        self._wake = asyncio.Event()

    def happened(self, events: Sequence[Event]) -> None:
        """Events that are on disk: what became of a job is written soon."""
        for event in events:
            name = self._of_job.get(job_of(event) or 0)
            if name is not None:
                self._dirty[name] = None
                self._wake.set()

    async def run(self) -> None:
        """Until cancelled. Waits for a cluster that has the custom resource."""
        while not await self._installed():
            await asyncio.sleep(ABSENT_S)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._objects.run())
            tasks.create_task(self._keep_looking())

    async def _installed(self) -> bool:
        try:
            await self._api.get(f"/apis/{GROUP}/{VERSION}")
        except OSError:
            return False
        return True

    def _changed(self, found: SwellJob, gone: bool) -> None:
        if gone:
            self._of_job.pop(found.job, None)
            self._refused_s.pop(found.uid, None)
            return
        self._refused_s.pop(found.uid, None)
        self._dirty[found.name] = None
        self._wake.set()

    async def _keep_looking(self) -> None:
        while True:
            self._wake.clear()
            names, self._dirty = list(self._dirty), {}
            for name in names:
                await self._safely(name)
            try:
                async with asyncio.timeout(REFRESH_S):
                    await self._wake.wait()
            except TimeoutError:
                self._dirty.update((item.name, None) for item in self._objects.items.values())

    async def _safely(self, name: str) -> None:
        found = self._objects.items.get(f"{self._api.namespace}/{name}")
        if found is None or found.cluster not in ("", self._cluster):
            return
        try:
            await self._look(found)
        except Unreachable as error:
            log.warning("SwellJob %s: %s; looking again", name, error)
            self._dirty[name] = None
        except Refusal as refusal:
            if refusal.code not in (404, 409):  # gone, or changed meanwhile: the watch brings it
                log.error("SwellJob %s: %s", name, refusal)
        except Exception:
            log.exception("looking at SwellJob %s failed; looking again", name)

    async def _look(self, found: SwellJob) -> None:
        record = await self._record(found)
        if found.deleted:
            await self._leave(found, record)
        elif record is not None:
            self._of_job[record.id] = found.name
            await self._write(found, status_of(found, record, self._engine.now_s()))
        elif found.job:
            await self._write(found, {**found.status, "state": REMOVED, "message": "removed with `swell rm`"})
        elif found.cluster:
            await self._submit(found)
        else:
            await self._claim(found)

    async def _record(self, found: SwellJob) -> JobRecord | None:
        job = found.job or self._engine.state.keys.get(found.key, 0)
        with suppress(NotFound):
            return await self._engine.job(job) if job else None
        return None

    async def _claim(self, found: SwellJob) -> None:
        """Before it is submitted: whatever happens from now on, deleting the object cancels the job. It comes back as a
        change. Of two that want it at once one is refused, by the object's version."""
        finalizers = [*found.finalizers, *([] if FINALIZER in found.finalizers else [FINALIZER])]
        await self._patch(found, {"annotations": {CLUSTER: self._cluster}, "finalizers": finalizers})

    async def _submit(self, found: SwellJob) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._refused_s.get(found.uid, 0.0):
            return
        try:
            given = Given(
                now_s=self._engine.now_s(), user=found.namespace, resolve=lambda name: named_jobs(self._engine, name)
            )
            (spec,) = expand(document_of(found), given)
            (job,) = await self._engine.submit([spec], key=found.key)
        except SwellError as error:
            self._refused_s[found.uid] = now_s + ABSENT_S
            await self._write(found, refused(found, str(error)))
            return
        self._of_job[job] = found.name
        await self._write(found, status_of(found, await self._engine.job(job), self._engine.now_s()))

    async def _leave(self, found: SwellJob, record: JobRecord | None) -> None:
        """Cancel, and let the object go once nothing of the job runs any more."""
        if FINALIZER not in found.finalizers:
            return
        if record is not None and not record.ended:
            self._of_job[record.id] = found.name
            with suppress(Conflict):  # it was cancelled before
                await self._engine.cancel(record.id, by=BY, reason="its SwellJob was deleted")
            record = await self._record(found)
        if record is None or record.ended:
            await self._patch(found, {"finalizers": [name for name in found.finalizers if name != FINALIZER]})

    async def _write(self, found: SwellJob, status: dict[str, Any]) -> None:
        if dict(found.status) != status:
            gone = {name: None for name in found.status if name not in status}  # a merge keeps what it does not name
            await self._api.patch(f"{self._path}/{found.name}/status", {"status": {**gone, **status}})

    async def _patch(self, found: SwellJob, meta: dict[str, Any]) -> None:
        await self._api.patch(f"{self._path}/{found.name}", {"metadata": {"resourceVersion": found.version, **meta}})
