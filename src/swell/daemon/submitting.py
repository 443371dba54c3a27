"""Takes submissions: checks each job against the cluster and its user's limits, and gives it an id. The engine calls
it. It returns the ids once their events are on disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from swell.core import events as ev
from swell.core.errors import Conflict, Infeasible, NotFound
from swell.core.events import Event
from swell.core.ids import JobId
from swell.core.job import JobSpec
from swell.core.snapshot import Options
from swell.core.state import State, was_given
from swell.daemon.committer import Committer
from swell.plan import commands
from swell.plan.admit import check_feasible
from swell.plan.limits import check_queue
from swell.ports import Clock


class Submitting:
    """Owned by the engine. `commit` makes events durable and starts a pass."""

    def __init__(
        self,
        committer: Committer,
        commit: Callable[[Sequence[Event]], Awaitable[None]],
        clock: Clock,
        options: Options,
    ) -> None:
        self._committer = committer
        self._commit = commit
        self._clock = clock
        self._options = options

    @property
    def _state(self) -> State:
        return self._committer.state

    async def submit(self, specs: Sequence[JobSpec], *, key: str, batch: str) -> list[JobId]:
        if key and (first := self._state.keys.get(key)) is not None:
            return await self._submitted_before(first, specs)
        nodes = list(self._state.nodes.values())
        for spec in specs:
            try:
                check_feasible(spec, nodes)
                self._check_dependencies(spec)
            except (Infeasible, NotFound) as error:
                raise type(error)(f"job {spec.name}: {error}" if len(specs) > 1 else str(error)) from error
        check_queue(self._state, specs, self._options)
        events = commands.submit(self._state, specs, key=key, batch=batch, now_s=self._clock.now_s())
        await self._commit(events)
        return [event.job for event in events if isinstance(event, ev.JobSubmitted)]

    async def _submitted_before(self, first: JobId, specs: Sequence[JobSpec]) -> list[JobId]:
        jobs = list(range(first, first + len(specs)))
        known = [self._state.jobs.get(job) for job in jobs]
        if any(record is None or record.spec != spec for record, spec in zip(known, specs, strict=True)):
            raise Conflict("this Idempotency-Key was used for another submission; use a new key for a new job")
        await self._committer.wait_durable(self._state.seq)
        return jobs

    def _check_dependencies(self, spec: JobSpec) -> None:
        for job in spec.dependencies:
            if not was_given(self._state, job):
                raise NotFound(f"it is to wait for job {job}, which does not exist; `swell ls --all` lists jobs")
