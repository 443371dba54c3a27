"""The executor of runs as pods. The cluster's objects are authoritative for what runs; ends are noted on the daemon's
disk before the cluster may delete the pods. Pods of others, and of another Swell, are counted but never touched."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path

from swell.core.errors import SwellError
from swell.core.events import EXIT_STOPPED, ExitReason
from swell.core.ids import JobId, RunId
from swell.core.observations import (
    Adopted,
    FilesFound,
    NodeGone,
    NodeHeard,
    NodeSeen,
    Observation,
    RunGone,
    RunProgress,
    RunUp,
)
from swell.core.resources import Node
from swell.executors.answers import answer_of, refused
from swell.executors.kubernetes import inventory
from swell.executors.kubernetes.api import Api, Refusal, namespaced
from swell.executors.kubernetes.claims import check_claims
from swell.executors.kubernetes.forms import BarePods, Form, MpiJobs, any_left, counted, not_its_own
from swell.executors.kubernetes.logs import Logs, Source, read
from swell.executors.kubernetes.manifests import Manifest, RunObjects, name_of, owned
from swell.executors.kubernetes.mpi_run import MpiRun
from swell.executors.kubernetes.namespace import NamespaceRules
from swell.executors.kubernetes.objects import LAUNCHED, STOP, KubeNode, Pod, node_of, pod_of
from swell.executors.kubernetes.reach import Reach
from swell.executors.kubernetes.rounds import Rounds
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.executors.kubernetes.tracking import Notes, Tracked, ends_of_missing, lease_on, slots_held
from swell.executors.kubernetes.verdict import judge, lost
from swell.executors.kubernetes.watch import Reflector
from swell.executors.kubernetes.writer import Writer
from swell.executors.transport import Unreachable
from swell.executors.verdict import End, breaks_gang, conclusion, sorted_ends
from swell.ports import Answer, Clock, Done, LogChunk, Order, Refused, Unknown
from swell.shim.files import cause_in
from swell.shim.leftovers import Leftovers
from swell.shim.log_times import begin_of

log = logging.getLogger(__name__)

CANNOT_BE_MADE = (SwellError, OSError, ValueError)
"""Errors while the objects of a run are made: nothing was sent."""
POLL_S = 2.0
"""Interval at which runs are judged without events, because some decisions depend only on time."""
HEARTBEAT_S = 5.0
STRAGGLER_S = 5.0
"""From the first failure in a gang to the deletion of its other pods."""
SYNC_S = 10.0
_WITH_CAUSE = frozenset({ExitReason.USER_ERROR, ExitReason.KILLED})


class KubernetesExecutor:
    """See `ports.Executor`. `make` turns an order into objects, in a thread. `library`: the object that all runs of a
    namespace need first. `cluster`: the id that distinguishes this Swell's objects from those of others."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        cluster: str,
        make: Callable[[Order], RunObjects],
        library: Callable[[str], Manifest],
        *,
        settings: KubernetesSettings,
        directory: Path,
        reach: Reach | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._cluster = cluster
        self._make = make
        self._writer = Writer(api, library)
        self._settings = settings
        self._notes = Notes(directory)
        self._logs = Logs(api)
        self._bare = BarePods(api, self._writer, cluster)
        self._mpijobs = MpiJobs(api, self._writer, cluster, self._notes, clock)
        self._tracked: dict[RunId, Tracked] = {}
        self._of_run: dict[RunId, dict[str, Pod]] = {}
        self._pods = Reflector(api, "/api/v1/pods", lambda data: pod_of(data, settings.gpu_resource), self._pod_changed)
        self._nodes = Reflector(api, "/api/v1/nodes", node_of, self._node_changed)
        self._reach = reach
        self.rules = NamespaceRules(api, cluster, settings.gpu_resource)
        self._known: set[RunId] = set()  # runs that held something when this daemon began
        self._told: asyncio.Queue[Observation] = asyncio.Queue()
        self._seen: dict[str, Node] = {}
        self._stale_inventory = True
        self._heard = True  # the API server has answered the last time it was asked
        self._wake = asyncio.Event()
        self._rounds = Rounds(lambda run: self._safely(self._look(run)), self._wake.set)
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- the port ----

    async def launch(self, order: Order) -> Answer:
        run = order.run
        try:
            tracked = self._tracked.get(run) or await self._found(run)
        except OSError as error:
            return Unknown(why=str(error))
        if tracked is not None and tracked.launched:
            self._tracked.setdefault(run, tracked)
            self._hint(run)
            return Done()
        try:
            objects = await asyncio.to_thread(self._make, order)
            await check_claims(self._api, order.record, self._settings.storage_claim)
            if objects.hosts:
                await self._mpijobs.check()
        except Unreachable as error:
            return Unknown(why=str(error))
        except CANNOT_BE_MADE as error:
            self._known.discard(run)
            return refused(error)
        fresh = Tracked(roster=objects.roster, namespace=objects.namespace, lease_s=self._settings.lease_s)
        fresh.mpi = MpiRun(hosts=objects.hosts) if objects.hosts else None
        tracked = self._tracked.setdefault(run, fresh)
        async with tracked.lock:
            if tracked.launched:
                return Done()
            return await self._create(tracked, objects)

    async def resize(self, order: Order) -> Answer:
        """Resize an MPIJob. A run whose state would be lost is stopped instead; its next attempt is resized."""
        tracked = self._tracked.get(order.run)
        if tracked is None or tracked.mpi is None:
            return Done() if tracked else Refused(why="the run has no pods that could be resized")
        return await answer_of(self._resize(tracked, order), CANNOT_BE_MADE)

    async def _resize(self, tracked: Tracked, order: Order) -> None:
        objects = await asyncio.to_thread(self._make, order)
        async with tracked.lock:
            pods = list(self._of_run.get(order.run, {}).values())
            if not await self._mpijobs.resize(tracked, objects.hosts, pods):
                await self._stop(tracked, kill=False)
        self._stale_inventory = True
        self._hint(order.run)

    async def signal(self, run: RunId, *, kill: bool) -> Answer:
        try:
            return await answer_of(self._signal(run, kill=kill))
        finally:
            self._hint(run)

    async def _signal(self, run: RunId, *, kill: bool) -> None:
        tracked = self._tracked.get(run) or await self._found(run)
        if tracked is None or (tracked.ended and run not in self._tracked):
            await self._writer.delete_all(list(self._of_run.get(run, {}).values()), kill=kill)
            return
        async with tracked.lock:
            await self._stop(tracked, kill=kill)
            tracked.launched = True  # what was not created by now never will be: its end can be reported
            self._tracked.setdefault(run, tracked)

    async def observe(self, known: Sequence[RunId]) -> AsyncIterator[Observation]:
        self._known = set(known)
        work = (self._pods.run, self._nodes.run, self.rules.run, self._keep_judging, self._keep_hearing)
        tasks = [asyncio.create_task(task()) for task in (*work, *([self._reach.run] if self._reach else ()))]
        try:
            jobs = await asyncio.to_thread(Leftovers(runs_dir=self._notes.directory).kept)
            self._told.put_nowait(FilesFound(jobs=tuple(jobs)))
            adopting = asyncio.create_task(self._adopt(known))
            tasks.append(adopting)
            while True:
                told = await self._told.get()
                yield told
                if isinstance(told, RunGone):  # whoever observes has taken note of it
                    self._later(self._forget(told.run))
        finally:
            for task in (*tasks, *self._tasks):
                task.cancel()
            await asyncio.gather(*tasks, *self._tasks, return_exceptions=True)
            await self._rounds.close()
            await self._logs.close()
            await self._api.close()

    async def log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        tracked = self._tracked.get(run) or await asyncio.to_thread(self._notes.load, run)
        ended = tracked is not None and rank in tracked.ends
        path = self._notes.of(run) / str(rank) / "log"
        return await asyncio.to_thread(lambda: read(path, offset, limit, ended=ended))

    async def log_since(self, run: RunId, rank: int, age_s: float) -> int:
        return await asyncio.to_thread(begin_of, str(self._notes.of(run) / str(rank)), age_s)

    async def remove(self, job: JobId) -> Answer:
        """Delete the daemon's files of the job. Its directory on the cluster's storage stays, as nothing runs there."""
        if any(run.job == job for run in self._tracked):
            return Done()
        return await answer_of(asyncio.to_thread(Leftovers(runs_dir=self._notes.directory).delete, job))

    def leased(self, run: RunId, node: str) -> None:
        """The run's pod on this node has asked for its lease, so it obeys it. Noted before the answer."""
        tracked = self._tracked.get(run)
        if tracked is not None and node not in tracked.leased:
            tracked.leased.add(node)
            self._notes.save(tracked)
            self._stale_inventory = True
            self._wake.set()

    # ---- creating and deleting ----

    async def _create(self, tracked: Tracked, objects: RunObjects) -> Answer:
        """Create the objects; a repeated call finds the existing ones. A refusal after some were created is reported
        once those are deleted."""
        run, namespace = tracked.run, tracked.namespace
        try:
            await asyncio.to_thread(self._notes.save, tracked)
            await self._writer.ensure_library(namespace)
            owner = await self._writer.claim(objects)
            said = owner["metadata"].get("annotations") or {}
            tracked.stop = tracked.stop or STOP in said
            name, uid = owner["metadata"]["name"], owner["metadata"]["uid"]
            if not tracked.stop and LAUNCHED not in said:  # by a daemon whose notes are lost: a missing pod is over
                await self._writer.ensure(namespaced(namespace, "secrets"), owned(objects.secret, name, uid))
                await self._form(tracked).create(objects, (name, uid))
            await self._writer.annotate("configmaps", namespace, name, {LAUNCHED: "true"})
        except Unreachable as error:
            return Unknown(why=str(error))
        except OSError as error:
            full = isinstance(error, Refusal) and "exceeded quota" in error.message
            reason = ExitReason.NODE_FULL if full else ExitReason.START_FAILED
            why = f"the cluster refused the pod: {error}"
            tracked.failed = End(rank=0, reason=reason, at_s=self._clock.now_s(), message=why)
        tracked.launched = True
        await asyncio.to_thread(self._notes.save, tracked)
        self._hint(run)
        return Done()

    async def _stop(self, tracked: Tracked, *, kill: bool) -> None:
        """Write the fence first, so that a repeated launch creates nothing, then delete the pods."""
        if not tracked.stop:
            tracked.stop = True
            await asyncio.to_thread(self._notes.save, tracked)
            await self._writer.fence(tracked.namespace, name_of(self._cluster, tracked.run))
        await self._form(tracked).delete(tracked, list(self._of_run.get(tracked.run, {}).values()), kill=kill)

    def _form(self, tracked: Tracked) -> Form:
        return self._mpijobs if tracked.mpi else self._bare

    async def _forget(self, run: RunId) -> None:
        """Delete the run's objects in the cluster, once its end is recorded."""
        tracked = await asyncio.to_thread(self._notes.load, run)
        if tracked is not None:
            await self._api.delete(namespaced(tracked.namespace, "configmaps", name_of(self._cluster, run)))

    def _later(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(self._safely(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- finding what is there ----

    async def _found(self, run: RunId) -> Tracked | None:
        """A run that another daemon launched, read from the disk. Its pods may exist or have ended."""
        return await asyncio.to_thread(self._notes.load, run)

    async def _adopt(self, known: Sequence[RunId]) -> None:
        """Track the known runs that were launched; objects of Swell's other runs are deleted once they have ended."""
        for run in known:
            tracked = self._tracked.get(run) or await asyncio.to_thread(self._notes.load, run)
            if tracked is not None and tracked.launched:
                tracked.up_told = False  # whoever observes anew hears it again
                self._tracked[run] = tracked
        try:
            async with asyncio.timeout(SYNC_S):
                await self._synced()
            await asyncio.gather(*(self._safely(self._judge(tracked)) for tracked in self._tracked.values()))
            self._take_inventory()
        except TimeoutError:
            log.warning("the cluster has not answered within %.0f s; its runs are looked at when it does", SYNC_S)
        if known:
            self._told.put_nowait(Adopted())
        await self._pods.synced.wait()
        await self._safely(self._collect(frozenset(known)))

    async def _collect(self, known: frozenset[RunId]) -> None:
        """Delete ConfigMaps of runs that are recorded as ended, which a daemon that died in between has left."""
        wanted = {name_of(self._cluster, run) for run in (*known, *self._tracked, *self._of_run)}
        await self._writer.delete_claims(self._cluster, keep=wanted)

    # ---- watching ----

    def _pod_changed(self, pod: Pod, gone: bool) -> None:
        self._stale_inventory = True
        if pod.run is not None and pod.cluster == self._cluster:
            pods = self._of_run.setdefault(pod.run, {})
            if not gone:
                pods[pod.name] = pod
            elif pods.get(pod.name, pod).uid == pod.uid:
                pods.pop(pod.name, None)
            if not pods:
                self._of_run.pop(pod.run, None)
            self._hint(pod.run)
        self._wake.set()

    def _node_changed(self, node: KubeNode, gone: bool) -> None:
        self._stale_inventory = True
        if gone:
            self._rounds.hint(self._of_run)
        self._wake.set()

    def _hint(self, run: RunId) -> None:
        self._rounds.hint([run])

    async def _synced(self) -> None:
        for seen in (self._pods.synced.wait, self._nodes.synced.wait, self.rules.known):
            await seen()

    async def _keep_judging(self) -> None:
        await self._synced()
        poll_s = 0.0
        while True:
            now_s = self._clock.monotonic_s()
            if now_s >= poll_s:
                self._rounds.hint((*self._tracked, *self._of_run))
                self._stale_inventory |= any_left(self._tracked.values())
                poll_s = now_s + POLL_S
            self._wake.clear()  # before anything is looked at: what happens meanwhile is looked at next
            self._rounds.begin()
            if self._stale_inventory | self.rules.news():
                self._take_inventory()
            try:
                async with asyncio.timeout(max(0.05, poll_s - self._clock.monotonic_s())):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _safely(self, work: Awaitable[None]) -> None:
        """Log any error of one look, so that the next look follows."""
        try:
            await work
        except Unreachable as error:
            log.warning("%s; looking again", error)
        except Exception:
            log.exception("looking at pods failed; looking again")

    async def _look(self, run: RunId) -> None:
        tracked = self._tracked.get(run)
        if tracked is not None:
            await self._judge(tracked)
            return
        for pod in list(self._of_run.get(run, {}).values()) if run not in self._known else ():
            if pod.over and pod.held:  # of an earlier attempt; one that is known is tracked once it is launched again
                await self._writer.let_go(pod)

    async def _keep_hearing(self) -> None:
        """Report which nodes answer: those that the API server reports as ready, while it answers itself."""
        await self._nodes.synced.wait()
        while True:
            before, self._heard = self._heard, False
            await self._safely(self._hear())
            self._stale_inventory |= before is not self._heard  # what pods obey their lease is judged anew
            await asyncio.sleep(HEARTBEAT_S)

    async def _hear(self) -> None:
        await self._api.get("/version")
        self._heard = True
        running: dict[str, dict[RunId, None]] = {}
        for run, pods in self._of_run.items():
            for pod in pods.values():
                running.setdefault(pod.node, {})[run] = None
        for node in self._nodes.items.values():
            if node.ready and node.name in self._seen:
                runs = tuple(running.get(node.name, ()))
                at_s = self._clock.now_s()
                heard = NodeHeard(node=node.name, boot_id=node.boot_id, running=runs, at_s=at_s, leased=False)
                self._told.put_nowait(heard)

    def _take_inventory(self) -> None:
        self._stale_inventory = False
        now_s = self._clock.now_s()
        pods, nodes, runs = self._pods.items.values(), self._nodes.items.values(), list(self._tracked.values())
        held = slots_held(runs)
        found = inventory.nodes_of(nodes, counted(pods, self._tracked, now_s), self._cluster, self._settings, held)
        heard = {node.name for node in nodes if node.ready and self._heard}
        found = [replace(n, lease_s=lease_on(n.name, runs, self._settings.lease_s, n.name in heard)) for n in found]
        found[:1] = [replace(node, caps=self.rules.caps(pods, found)) for node in found[:1]]
        for node in found:
            if self._seen.get(node.name) != node:
                self._told.put_nowait(NodeSeen(node=node, at_s=now_s))
        gone = self._seen.keys() - {node.name for node in found}
        self._seen = {node.name: node for node in found}
        for name in sorted(gone):
            self._told.put_nowait(NodeGone(node=name, at_s=now_s))

    # ---- judging ----

    async def _judge(self, tracked: Tracked) -> None:
        if tracked.lock.locked():
            return  # it is being launched or signalled: that hints again
        async with tracked.lock:
            if not tracked.launched:
                return
            pods = await self._form(tracked).tend(tracked, list(self._of_run.get(tracked.run, {}).values()))
            for pod in pods:
                await self._judge_pod(tracked, pod)
            await self._note_missing(tracked, pods)
            self._tell_up(tracked)
            if tracked.ended and not self._of_run.get(tracked.run):
                self._tell_gone(tracked)
            else:
                await self._tend(tracked)

    async def _judge_pod(self, tracked: Tracked, pod: Pod) -> None:
        now_s = self._clock.now_s()
        judged = judge(pod, stopped=tracked.stop or tracked.told_rest, now_s=now_s)
        tracked.up.update(judged.up)
        tracked.epochs = judged.epochs or tracked.epochs
        ends = [end for end in judged.ends if end.rank not in tracked.ends]
        left = bool(pod.node) and f"/{pod.node}" not in self._nodes.items
        if left:
            known = {*tracked.ends, *(end.rank for end in ends)}
            ranks = [container.rank for container in pod.containers if container.rank not in known]
            ends += lost(ranks, f"its node {pod.node} has left the cluster", now_s, ExitReason.NODE_LOST)
        for container in pod.containers:
            if container.state == "running" and not left:
                self._logs.follow(self._source(tracked, pod, container.rank))
        ran = {container.rank for container in pod.containers if container.state == "terminated"}
        for end in ends:
            if left or await self._logs.drain(self._source(tracked, pod, end.rank), ran=end.rank in ran):
                own = not_its_own(end, tracked, self._of_run.get(tracked.run, {}).values())
                tracked.ends[end.rank] = self._with_cause(tracked.run, own)
        if ends:
            await asyncio.to_thread(self._notes.save, tracked)
        noted = all(container.rank in tracked.ends for container in pod.containers)
        if noted and (pod.over or left) and (pod.held or pod.deleted_s is None):
            await self._writer.let_go(pod)

    def _source(self, tracked: Tracked, pod: Pod, rank: int) -> Source:
        directory = self._notes.of(tracked.run) / str(rank)
        name = next((container.name for container in pod.containers if container.rank == rank), "")
        return Source(namespace=pod.namespace, pod=pod.name, container=name, directory=directory)

    def _with_cause(self, run: RunId, end: End) -> End:
        """The end with the line of its log that explains it."""
        if end.reason not in _WITH_CAUSE or end.code == EXIT_STOPPED:
            return end
        cause = cause_in(str(self._notes.of(run) / str(end.rank) / "log"), [])
        return replace(end, message=f"{end.message}: {cause}") if cause else end

    async def _note_missing(self, tracked: Tracked, pods: Sequence[Pod]) -> None:
        """Note an end for pods that are gone without one."""
        ranks = await self._form(tracked).missing(tracked, pods)
        tracked.ends.update((end.rank, end) for end in ends_of_missing(tracked, ranks, self._clock.now_s()))
        if ranks:
            await asyncio.to_thread(self._notes.save, tracked)

    def _tell_up(self, tracked: Tracked) -> None:
        if tracked.up_told or not tracked.up >= set(tracked.roster.ranks):
            return
        if tracked.up_s is None:
            tracked.up_s = self._clock.now_s()
            self._notes.save(tracked)
        tracked.up_told = True
        self._told.put_nowait(RunUp(run=tracked.run, at_s=tracked.up_s))

    def _tell_gone(self, tracked: Tracked) -> None:
        gone = conclusion(tracked.roster, sorted_ends(tracked.roster, list(tracked.ends.values())))
        if (epochs := tracked.epochs) is not None:
            began_s, at_s = (gone.at_s - epochs[f"{name}_ago"] for name in ("began", "at"))
            place = {"resumed": epochs["resumed"], "epochs": epochs["done"], "total": epochs["total"]}
            unit = epochs.get("unit", "epoch")
            self._told.put_nowait(RunProgress(run=tracked.run, began_s=began_s, at_s=at_s, unit=unit, **place))
        del self._tracked[tracked.run]
        self._told.put_nowait(replace(gone, at_s=max(gone.at_s, tracked.up_s or 0.0)))

    async def _tend(self, tracked: Tracked) -> None:
        """Stop the other pods of a gang after one has failed, or if not all could be created."""
        breaker = tracked.failed or breaks_gang(
            tracked.roster, sorted_ends(tracked.roster, list(tracked.ends.values()))
        )
        if breaker is None or tracked.told_rest:
            return
        now_s = self._clock.monotonic_s()
        tracked.broken_s = now_s if tracked.broken_s is None else tracked.broken_s
        at_once = breaker.reason in (ExitReason.START_FAILED, ExitReason.NODE_FULL, ExitReason.FINISHED)
        patience_s = tracked.roster.grace_s if breaker.reason is ExitReason.STOPPED else STRAGGLER_S
        if at_once or now_s >= tracked.broken_s + patience_s:
            pods = list(self._of_run.get(tracked.run, {}).values())
            kill = breaker.reason in (ExitReason.START_FAILED, ExitReason.NODE_FULL)
            await self._form(tracked).delete(tracked, pods, kill=kill)
            tracked.told_rest = True
