"""The two forms of a run in a cluster: bare pods that Swell makes itself, or an MPIJob whose operator makes them. The
executor calls the form of a run to create, tend and delete it; pods' statuses mean the same in both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from swell.core.errors import Infeasible
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.executors.kubernetes.api import Api, Refusal, namespaced
from swell.executors.kubernetes.manifests import RunObjects, labels_of, name_of, owned
from swell.executors.kubernetes.mpi_run import (
    LAUNCHER,
    Host,
    MpiRun,
    goes_on,
    misplaced,
    moved_ranks,
    reassigned,
    roster_with,
    stage,
)
from swell.executors.kubernetes.mpijob import GROUP, VERSION, discovered, path_of, staged
from swell.executors.kubernetes.objects import ADDRESSES, FINALIZER, GPUS, HOSTS, Pod
from swell.executors.kubernetes.tracking import Notes, Tracked
from swell.executors.kubernetes.writer import Writer
from swell.executors.verdict import End
from swell.ports import Clock

OPERATOR_S = 30.0
"""If the operator has not made a pod by then, it is not running."""
OVERDUE_S = 5.0
"""A pod is overdue this long after the time that its kubelet gave it to end."""
NOT_INSTALLED = (
    f"launchers mpi and horovod run as MPIJobs ({GROUP}/{VERSION}), which this cluster does not have; install the MPI "
    "operator of Kubeflow (mpi-operator 0.3 or newer), or use launcher per-gpu or torchrun"
)
_NO_OPERATOR = (
    f"the MPI operator made no pod within {OPERATOR_S:.0f} s; see whether it runs (`kubectl get pods -A | grep "
    "mpi-operator`) and what it says (`kubectl describe mpijob`)"
)
_LOST_A_WORKER = "a pod of its workers was deleted by somebody other than Swell; it goes on from its last checkpoint"


class Form(Protocol):
    async def create(self, objects: RunObjects, owner: tuple[str, str]) -> None:
        """`owner`: name and uid of the run's ConfigMap."""
        ...

    async def delete(self, tracked: Tracked, pods: Sequence[Pod], *, kill: bool) -> None:
        """Delete all of the run's pods in the cluster, whether seen or not."""
        ...

    async def tend(self, tracked: Tracked, pods: Sequence[Pod]) -> list[Pod]:
        """Do what the pods need besides judging. Returns those to judge."""
        ...

    async def missing(self, tracked: Tracked, pods: Sequence[Pod]) -> list[int]:
        """Ranks whose end is unknown and that certainly have no pod."""
        ...


class BarePods:
    """One pod per node, named by the run and the number of the node."""

    def __init__(self, api: Api, writer: Writer, cluster: str) -> None:
        self._api = api
        self._writer = writer
        self._cluster = cluster

    async def create(self, objects: RunObjects, owner: tuple[str, str]) -> None:
        for pod in objects.pods:
            await self._writer.ensure(namespaced(objects.namespace, "pods"), owned(pod, *owner))

    async def delete(self, tracked: Tracked, pods: Sequence[Pod], *, kill: bool) -> None:
        await self._writer.delete_all(pods, kill=kill)
        seen = {pod.name for pod in pods}
        for rank in range(len(tracked.nodes)):  # created a moment ago, and not seen yet
            name = self._name(tracked, rank)
            if name not in seen:
                await self._writer.delete(tracked.namespace, name, kill=kill)

    async def tend(self, tracked: Tracked, pods: Sequence[Pod]) -> list[Pod]:
        """Send all addresses to the pods of a run on several nodes, once every pod has one."""
        if 1 < len(tracked.nodes) <= len(pods) and all(pod.address for pod in pods):
            addresses = " ".join(pod.address for pod in sorted(pods, key=lambda pod: pod.rank))
            for pod in pods:
                if not pod.addresses:
                    await self._writer.annotate("pods", pod.namespace, pod.name, {ADDRESSES: addresses})
        return list(pods)

    async def missing(self, tracked: Tracked, pods: Sequence[Pod]) -> list[int]:
        """Queries each pod by name, because the watch may be behind."""
        there = {pod.rank for pod in pods}
        found: list[int] = []
        for rank, node in enumerate(tracked.nodes):
            ranks = [worker for worker in tracked.ranks_on(node) if worker not in tracked.ends]
            if rank not in there and ranks and not await self._exists(tracked, rank):
                found += ranks
        return found

    async def _exists(self, tracked: Tracked, rank: int) -> bool:
        try:
            await self._api.get(namespaced(tracked.namespace, "pods", self._name(tracked, rank)))
        except Refusal as refusal:
            if refusal.code != 404:
                raise
            return False
        return True

    def _name(self, tracked: Tracked, rank: int) -> str:
        return f"{name_of(self._cluster, tracked.run)}-{rank}"


class MpiJobs:
    """One MPIJob per run. Its pods get their finalizer, node and addresses as they appear."""

    def __init__(self, api: Api, writer: Writer, cluster: str, notes: Notes, clock: Clock) -> None:
        self._api = api
        self._writer = writer
        self._cluster = cluster
        self._notes = notes
        self._clock = clock

    async def check(self) -> None:
        """Raises Infeasible if the cluster has no MPIJobs."""
        try:
            await self._api.get(f"/apis/{GROUP}/{VERSION}")
        except Refusal as refusal:
            if refusal.code == 404:
                raise Infeasible(NOT_INSTALLED) from None
            raise

    async def create(self, objects: RunObjects, owner: tuple[str, str]) -> None:
        assert objects.mpijob is not None
        await self._writer.ensure(path_of(objects.namespace), owned(objects.mpijob, *owner))

    async def delete(self, tracked: Tracked, pods: Sequence[Pod], *, kill: bool) -> None:
        """Delete the MPIJob first, so that its operator makes no new pods."""
        await self._api.delete(path_of(tracked.namespace, name_of(self._cluster, tracked.run)))
        await self._writer.delete_all(pods, kill=kill)

    async def resize(self, tracked: Tracked, wanted: Sequence[Host], pods: Sequence[Pod]) -> bool:
        """Note the new hosts; `tend` carries the resize out and retries it. False: it cannot be resized in place."""
        mpi = _mpi(tracked)
        hosts = reassigned(mpi.hosts, wanted)
        if not goes_on(mpi.hosts, hosts, tracked.roster.members[0].node):
            return False
        moved = moved_ranks(mpi.hosts, hosts)
        mpi.left |= {pod.uid for pod in pods if pod.rank in moved}
        mpi.hosts, mpi.waits_s = hosts, None
        mpi.seen -= moved
        tracked.up -= moved
        tracked.roster = roster_with(tracked.roster, hosts)
        await asyncio.to_thread(self._notes.save, tracked)
        return True

    async def tend(self, tracked: Tracked, pods: Sequence[Pod]) -> list[Pod]:
        mpi = _mpi(tracked)
        await self._choose_launcher(tracked, mpi, pods)
        for pod in pods:
            if mpi.without(pod):
                await self._let_leave(pod)
                mpi.waits_s = None  # the operator owes none of its name before it is gone
        counted = [pod for pod in pods if not mpi.without(pod)]
        mpi.seen.update(pod.rank for pod in counted)
        for pod in counted:
            await self._hold(mpi, pod)
        if not tracked.stop and not tracked.told_rest and tracked.failed is None and LAUNCHER not in tracked.ends:
            await self._place(tracked, mpi, counted)
            await self._introduce(tracked, mpi, counted)
        return counted

    async def _choose_launcher(self, tracked: Tracked, mpi: MpiRun, pods: Sequence[Pod]) -> None:
        """Choose the first launcher that is seen, for the whole run. Noted before it may start."""
        found = [pod for pod in pods if pod.rank == LAUNCHER and pod.deleted_s is None]
        if found and not mpi.launcher and not tracked.stop:
            mpi.launcher = found[0].uid
            await asyncio.to_thread(self._notes.save, tracked)

    async def _let_leave(self, pod: Pod) -> None:
        if pod.over and pod.held:
            await self._writer.let_go(pod)
        elif pod.deleted_s is None:
            await self._writer.delete_all([pod], kill=False)

    async def _hold(self, mpi: MpiRun, pod: Pod) -> None:
        """Add the finalizer, which stays until the pod's end is noted. Kubernetes refuses it for a pod that is being
        deleted."""
        gpus = mpi.hosts[pod.rank - 1].gpus if pod.rank != LAUNCHER else ()
        if pod.deleted_s is not None or (pod.held and pod.slots == gpus):
            return
        slots = ",".join(map(str, gpus))
        finalizers = [*pod.finalizers, *([] if pod.held else [FINALIZER])]
        meta = {"finalizers": finalizers, "annotations": {GPUS: slots}, "uid": pod.uid}
        await _unless_gone(self._api.patch(namespaced(pod.namespace, "pods", pod.name), {"metadata": meta}))

    async def _place(self, tracked: Tracked, mpi: MpiRun, pods: Sequence[Pod]) -> None:
        workers = {pod.rank - 1: pod for pod in pods if pod.rank != LAUNCHER}
        path = path_of(tracked.namespace, name_of(self._cluster, tracked.run))
        replicas, host = stage(mpi.hosts, workers)
        try:
            patch = staged(await self._api.get(path), replicas, host)
        except Refusal as refusal:
            if refusal.code != 404:
                raise
            why = "its MPIJob was deleted by somebody other than Swell; it goes on from its last checkpoint"
            tracked.failed = End(rank=0, reason=ExitReason.STOPPED, at_s=self._clock.now_s(), message=why)
            return
        if patch is not None:
            await self._api.patch(path, patch)
        wrong = misplaced(mpi.hosts, workers)
        if wrong is not None and wrong.deleted_s is None:
            mpi.left.add(wrong.uid)
            await asyncio.to_thread(self._notes.save, tracked)
            await self._writer.delete_all([wrong], kill=False)

    async def _introduce(self, tracked: Tracked, mpi: MpiRun, pods: Sequence[Pod]) -> None:
        """Let the launcher start when all workers are up. Later, update it when its host discovery has changed, so that
        its node reads the file again at once, not only about every minute."""
        launcher = next((pod for pod in pods if pod.rank == LAUNCHER), None)
        workers = sorted((pod for pod in pods if pod.rank != LAUNCHER), key=lambda pod: pod.rank)
        if launcher is None or not launcher.held:
            return
        if not launcher.addresses:
            if len(workers) == len(mpi.hosts) and all(pod.up and pod.address for pod in workers):
                addresses = " ".join(pod.address for pod in workers)
                await self._writer.annotate("pods", launcher.namespace, launcher.name, {ADDRESSES: addresses})
            return
        running = frozenset(pod.name for pod in workers if pod.phase == "Running" and pod.deleted_s is None)
        if running != frozenset(launcher.hosts.split()):
            name = f"{name_of(self._cluster, tracked.run)}-config"
            if discovered(await self._api.get(namespaced(tracked.namespace, "configmaps", name))) == running:
                hosts = " ".join(sorted(running))
                await self._writer.annotate("pods", launcher.namespace, launcher.name, {HOSTS: hosts})

    async def missing(self, tracked: Tracked, pods: Sequence[Pod]) -> list[int]:
        """Lists the pods, because the watch may be behind. Waits for pods that the operator has not made yet."""
        mpi = _mpi(tracked)
        there = {pod.rank for pod in pods}
        absent = [rank for rank in tracked.roster.ranks if rank not in there and rank not in tracked.ends]
        over = tracked.stop or tracked.told_rest or tracked.failed is not None
        gone = [rank for rank in absent if over or rank in mpi.seen]
        if not absent:
            mpi.waits_s = None
        elif not gone:
            self._wait(tracked, mpi)
        return gone if gone and not await self._listed(tracked, gone) else []

    def _wait(self, tracked: Tracked, mpi: MpiRun) -> None:
        now_s = self._clock.monotonic_s()
        mpi.waits_s = now_s if mpi.waits_s is None else mpi.waits_s
        if now_s >= mpi.waits_s + OPERATOR_S:
            at_s = self._clock.now_s()
            tracked.failed = End(rank=0, reason=ExitReason.START_FAILED, at_s=at_s, message=_NO_OPERATOR)

    async def _listed(self, tracked: Tracked, ranks: Iterable[int]) -> bool:
        selector = ",".join(f"{name}={value}" for name, value in labels_of(self._cluster, tracked.run).items())
        found = await self._api.get(namespaced(tracked.namespace, "pods"), labelSelector=selector)
        names = {item["metadata"]["name"] for item in found["items"]}
        base = name_of(self._cluster, tracked.run)
        return any(
            name.startswith(f"{base}-launcher") if rank == LAUNCHER else name == f"{base}-worker-{rank - 1}"
            for rank in ranks
            for name in names
        )


def _mpi(tracked: Tracked) -> MpiRun:
    assert tracked.mpi is not None
    return tracked.mpi


async def _unless_gone(work: Awaitable[object]) -> None:
    try:
        await work
    except Refusal as refusal:
        if refusal.code not in (404, 409, 422):
            raise


def not_its_own(end: End, tracked: Tracked, pods: Iterable[Pod]) -> End:
    """mpirun and horovodrun fail when a worker vanishes. If somebody deleted the worker, that is not a fault of the
    job."""
    if tracked.mpi is None or end.rank != LAUNCHER or end.reason not in (ExitReason.USER_ERROR, ExitReason.KILLED):
        return end
    workers = [pod for pod in pods if pod.rank != LAUNCHER and not tracked.mpi.without(pod)]
    taken = any(found.reason is ExitReason.STOPPED for found in tracked.ends.values())
    if taken or any(pod.deleted_s is not None for pod in workers):
        return replace(end, reason=ExitReason.STOPPED, message=_LOST_A_WORKER)
    return end


def counted(pods: Iterable[Pod], runs: Mapping[RunId, Tracked], now_s: float) -> list[Pod]:
    """The pods, with overdue workers that were resized away as pods of others. Before that, their resources may be
    planned, because the next pod waits in the cluster's scheduler until the worker is gone."""
    return [replace(pod, cluster="", slots=()) if _overdue(pod, runs, now_s) else pod for pod in pods]


def _overdue(pod: Pod, runs: Mapping[RunId, Tracked], now_s: float) -> bool:
    tracked = runs.get(pod.run) if pod.run and pod.deleted_s is not None else None
    if tracked is None or tracked.mpi is None or pod.deleted_s is None or not tracked.mpi.without(pod):
        return False
    return now_s > pod.deleted_s + OVERDUE_S


def any_left(runs: Iterable[Tracked]) -> bool:
    """Whether workers were resized away: some may become overdue, which no watch event reports."""
    return any(tracked.mpi is not None and tracked.mpi.left for tracked in runs)
