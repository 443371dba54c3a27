"""Which workers have no pod any more: asked of the cluster itself, for what was watched may be behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from swell.core.events import ExitReason
from swell.executors.kubernetes.api import Api
from swell.executors.kubernetes.forms import BarePods, MpiJobs
from swell.executors.kubernetes.mpi_run import Host, MpiRun
from swell.executors.kubernetes.objects import Pod
from swell.executors.kubernetes.tracking import Notes, Tracked
from swell.executors.kubernetes.writer import Writer
from swell.executors.verdict import End, Member, Roster
from unit.executors.pods.fake_cluster import FakeCluster
from unit.executors.pods.pod_values import CLUSTER
from unit.executors.pods.test_pod_executor import POD, RUN, Clock

PODS = "/api/v1/namespaces/default/pods"
FAILED = End(rank=0, reason=ExitReason.START_FAILED, at_s=1.0)
NO_WRITER, NO_NOTES = cast(Writer, None), cast(Notes, None)


def tracked_on(*nodes: str) -> Tracked:
    members = tuple(Member(rank=rank, node=node) for rank, node in enumerate(nodes))
    return Tracked(roster=Roster(run=RUN, members=members, grace_s=1.0), namespace="default")


def test_a_pod_that_was_not_seen_yet_but_is_there_is_not_missing() -> None:
    async def scene() -> None:
        cluster = FakeCluster()
        form, tracked = BarePods(cast(Api, cluster), NO_WRITER, CLUSTER), tracked_on("a", "b")
        cluster.put(POD, {"metadata": {"name": POD.rsplit("/", 1)[1]}})
        assert await form.missing(tracked, []) == [1]
        tracked.ends[1] = FAILED
        assert await form.missing(tracked, []) == [], "how the other one ended is known"

    asyncio.run(scene())


@pytest.mark.parametrize("over", ["stop", "told_rest", "failed"])
def test_workers_that_the_operator_never_made_are_waited_for_only_while_the_run_goes_on(over: str) -> None:
    async def scene() -> None:
        cluster = FakeCluster()
        form, tracked = MpiJobs(cast(Api, cluster), NO_WRITER, CLUSTER, NO_NOTES, Clock()), tracked_on("a", "a")
        tracked.mpi = MpiRun(hosts=(Host(node="a", gpus=(0,)),))
        assert await form.missing(tracked, []) == []
        assert tracked.mpi.waits_s is not None
        setattr(tracked, over, FAILED if over == "failed" else True)
        assert await form.missing(tracked, []) == [0, 1]
        name = f"{POD.rsplit('/', 1)[1].removesuffix('-0')}-worker-0"
        cluster.put(f"{PODS}/{name}", {"metadata": {"name": name}})
        assert await form.missing(tracked, []) == [], "one of them is there after all"

    asyncio.run(scene())


def test_all_pods_of_a_run_are_deleted_once_also_those_that_were_not_seen_yet() -> None:
    class Deleting:
        def __init__(self) -> None:
            self.seen: list[str] = []
            self.unseen: list[tuple[str, str, bool]] = []

        async def delete_all(self, pods: Sequence[Pod], *, kill: bool) -> None:
            self.seen += [f"{pod.name} {kill}" for pod in pods]

        async def delete(self, namespace: str, name: str, *, kill: bool) -> None:
            self.unseen.append((namespace, name, kill))

    stem = POD.rsplit("/", 1)[1].removesuffix("-0")
    first = Pod(namespace="default", name=f"{stem}-0")
    found: list[tuple[list[Pod], list[int], list[int]]] = [([], [], [0, 1]), ([first], [0], [1])]
    for pods, seen, unseen in found:
        writer = Deleting()
        form = BarePods(cast(Api, FakeCluster()), cast(Writer, writer), CLUSTER)
        asyncio.run(form.delete(tracked_on("a", "b"), pods, kill=True))
        assert writer.seen == [f"{stem}-{rank} True" for rank in seen]
        assert writer.unseen == [("default", f"{stem}-{rank}", True) for rank in unseen]
