"""The executor of pods against an API server in memory: every order comes to an end that is told, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.job import JobSpec, PodOptions, PodVolume
from swell.core.observations import NodeGone, NodeHeard, NodeSeen, Observation, RunGone, RunProgress, RunUp
from swell.core.resources import Allocation, Node, Part
from swell.core.state import JobRecord, Run
from swell.executors.kubernetes import executor as module
from swell.executors.kubernetes.api import Refusal
from swell.executors.kubernetes.executor import KubernetesExecutor
from swell.executors.kubernetes.manifests import library_of, objects_of
from swell.executors.kubernetes.tracking import Notes
from swell.ports import Done, Order, Refused, Unknown
from unit.executors.pods.fake_cluster import FakeCluster
from unit.executors.pods.pod_values import CLUSTER, GPU, SITE, last_word, terminated

RUN = RunId(7, 1)
RUNNING = {"running": {"startedAt": "2027-01-15T08:00:01Z"}}
POD = f"/api/v1/namespaces/default/pods/swell-{CLUSTER[:8]}-7-1-0"


class Clock:
    def now_s(self) -> float:
        return 1_800_000_000.0

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


def order(nodes: tuple[str, ...] = ("a",), of: RunId = RUN) -> Order:
    spec = JobSpec(name="j", command=("true",), image="train:1", kubernetes=PodOptions(), launcher="per-node")  # type: ignore[arg-type]
    run = Run(id=of, allocation=Allocation(parts=tuple(Part(node=n, gpus=(0,)) for n in nodes)), planned_s=0.0)
    record = JobRecord(id=of.job, spec=spec, submitted_s=0.0, run=run)
    return Order(record=record, nodes={name: Node(name=name, executor="kubernetes") for name in nodes})


class Stage:
    def __init__(self, home: Path, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.executor = KubernetesExecutor(
            cluster,  # type: ignore[arg-type]
            Clock(),
            CLUSTER,
            lambda asked: objects_of(asked.record, asked.nodes, SITE),
            lambda namespace: library_of({"start.sh": b""}, CLUSTER, namespace)[0],
            settings=SITE.settings,
            directory=home / "pods",
        )
        self.told: list[Observation] = []

    async def observe(self, known: tuple[RunId, ...]) -> None:
        async for told in self.executor.observe(known):
            self.told.append(told)

    async def until(self, kind: type[Observation]) -> Observation:
        async with asyncio.timeout(20):
            while True:
                found = [told for told in self.told if isinstance(told, kind)]
                if found:
                    return found[-1]
                await asyncio.sleep(0)

    async def settled(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0)


@asynccontextmanager
async def staged(home: Path, cluster: FakeCluster, known: tuple[RunId, ...] = ()) -> AsyncIterator[Stage]:
    stage = Stage(home, cluster)
    task = asyncio.create_task(stage.observe(known))
    try:
        yield stage
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def two_nodes() -> FakeCluster:
    cluster = FakeCluster()
    for name in ("a", "b"):
        status = {"allocatable": {GPU: "4", "cpu": "8"}, "nodeInfo": {"bootID": name}}
        status["conditions"] = [{"type": "Ready", "status": "True"}]  # type: ignore[assignment]
        cluster.add_node({"metadata": {"name": name}, "status": status})
    return cluster


def play(home: Path, scene: Callable[[Stage, FakeCluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        cluster = two_nodes()
        async with staged(home, cluster) as stage:
            await scene(stage, cluster)

    asyncio.run(whole())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.0)
    monkeypatch.setattr(module, "STRAGGLER_S", 0.0)
    monkeypatch.setattr(asyncio, "to_thread", _here)


async def _here(work: Callable[..., object], *arguments: object) -> object:
    return partial(work, *arguments)()


def gone(told: Observation) -> tuple[ExitReason, str]:
    assert isinstance(told, RunGone)
    return told.reason, told.message


def test_how_far_a_training_came_is_told_by_its_last_word_before_its_end(tmp_path: Path) -> None:
    epochs = {"resumed": 2, "done": 5, "total": 9, "began_ago": 30.0, "at_ago": 1.0}

    async def scene(stage: Stage, cluster: FakeCluster) -> None:
        assert await stage.executor.launch(order()) == Done()
        cluster.report(POD, "Running", RUNNING)
        await stage.until(RunUp)
        cluster.report(POD, "Succeeded", terminated(0, word=last_word(epochs=epochs)))
        await stage.until(RunGone)
        (seen,) = [told for told in stage.told if isinstance(told, RunProgress)]
        assert (seen.resumed, seen.epochs, seen.total, seen.unit) == (2, 5, 9, "epoch")
        assert seen.at_s - seen.began_s == 29.0

    play(tmp_path, scene)


def test_a_run_is_gone_only_when_its_pod_is_and_then_nothing_of_it_is_left(tmp_path: Path) -> None:
    async def scene(stage: Stage, cluster: FakeCluster) -> None:
        assert await stage.executor.launch(order()) == Done()
        cluster.report(POD, "Running", RUNNING)
        await stage.until(RunUp)
        cluster.objects[POD]["metadata"]["finalizers"].append("somebody/else")
        cluster.report(POD, "Succeeded", terminated(0, word=last_word()))
        await stage.settled(lambda: cluster.objects[POD]["metadata"]["finalizers"] == ["somebody/else"])
        assert not any(isinstance(told, RunGone) for told in stage.told), "somebody else holds its object"
        cluster.remove(POD)
        assert gone(await stage.until(RunGone)) == (ExitReason.FINISHED, "")
        await stage.settled(lambda: not [key for key in cluster.objects if "7-1" in key and "/secrets/" not in key])

    play(tmp_path, scene)


def test_a_node_whose_logs_hang_delays_no_other_run(tmp_path: Path) -> None:
    """They were looked at one after the other, and each log was waited for up to 25 s."""

    async def scene(stage: Stage, cluster: FakeCluster) -> None:
        other, hung = POD.replace("-7-1-", "-8-1-"), asyncio.Event()

        @asynccontextmanager
        async def stream(path: str, *_: object, **__: object) -> AsyncIterator[AsyncIterator[bytes]]:
            if path.startswith(POD):
                hung.set()
                await asyncio.Event().wait()
            yield _nothing()

        cluster.stream = stream  # type: ignore[method-assign]
        await stage.executor.launch(order())
        await stage.executor.launch(order(("b",), RunId(8, 1)))
        cluster.report(POD, "Succeeded", terminated(0, word=last_word()))
        await hung.wait()
        cluster.report(other, "Succeeded", terminated(0, word=last_word()), node="b")
        async with asyncio.timeout(2):
            assert (await stage.until(RunGone)).run == RunId(8, 1)  # type: ignore[union-attr]

    play(tmp_path, scene)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield


def test_a_run_whose_launch_was_not_answered_and_that_is_stopped_comes_to_an_end(tmp_path: Path) -> None:
    """Found under load: the daemon sends no launch for a run that it has stopped, and nobody told its end."""

    async def scene(stage: Stage, cluster: FakeCluster) -> None:
        cluster.silent = True
        assert isinstance(await stage.executor.launch(order()), Unknown)
        assert await stage.executor.signal(RUN, kill=False) == Done()
        assert gone(await stage.until(RunGone)) == (ExitReason.STOPPED, "stopped before it started")
        cluster.silent = False
        await stage.executor.launch(order())
        assert cluster.pods() == []

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('pods "x" is forbidden: exceeded quota: gpus', ExitReason.NODE_FULL),
        ('Pod "x" is invalid: spec.volumes', ExitReason.START_FAILED),
    ],
)
def test_what_the_cluster_refuses_is_told_with_its_words(tmp_path: Path, message: str, reason: ExitReason) -> None:
    async def scene(stage: Stage, cluster: FakeCluster) -> None:
        cluster.refuses = Refusal(403, "Forbidden", message)
        await stage.executor.launch(order())
        assert gone(await stage.until(RunGone)) == (reason, f"the cluster refused the pod: {message}")

    play(tmp_path, scene)


def test_the_rest_of_a_gang_that_left_by_itself_is_not_blamed_on_others(tmp_path: Path) -> None:
    async def scene(stage: Stage, cluster: FakeCluster) -> None:
        asked = order(("a", "b"))
        await stage.executor.launch(
            replace(asked, record=replace(asked.record, spec=replace(asked.record.spec, grace_s=0.0)))
        )
        first, second = sorted(cluster.pods())
        cluster.report(first, "Running", RUNNING)
        cluster.report(second, "Running", RUNNING, node="b")
        await stage.until(RunUp)
        cluster.report(second, "Failed", terminated(85, word=last_word(85)), node="b")
        await stage.settled(lambda: "deletionTimestamp" in cluster.objects[first]["metadata"])
        cluster.report(first, "Failed", {"waiting": {"reason": "ContainerCreating"}})
        assert gone(await stage.until(RunGone)) == (ExitReason.STOPPED, "")
        noted = Notes(tmp_path / "pods").load(RUN)
        assert noted is not None
        assert noted.ends[0].message == "stopped; its node reported no exit code"

    play(tmp_path, scene)


def test_pods_of_several_nodes_learn_each_others_addresses_when_all_have_one(tmp_path: Path) -> None:
    async def scene(stage: Stage, cluster: FakeCluster) -> None:
        await stage.executor.launch(order(("a", "b")))
        first, second = sorted(cluster.pods())
        cluster.report(first, "Running", RUNNING)
        cluster.report(second, "Running", RUNNING, node="b")
        await stage.settled(
            lambda: cluster.objects[second]["metadata"]["annotations"].get("swell/addresses") == "10.0.0.9 10.0.0.9"
        )

    play(tmp_path, scene)


def test_a_pod_that_was_removed_by_force_is_told_as_lost(tmp_path: Path) -> None:
    async def scene(stage: Stage, cluster: FakeCluster) -> None:
        await stage.executor.launch(order())
        cluster.report(POD, "Running", RUNNING)
        await stage.until(RunUp)
        cluster.remove(POD)
        assert gone(await stage.until(RunGone))[0] is ExitReason.SHIM_LOST

    play(tmp_path, scene)


def test_a_node_that_leaves_the_cluster_is_told_and_its_pods_are_let_go(tmp_path: Path) -> None:
    async def scene(stage: Stage, cluster: FakeCluster) -> None:
        await stage.until(NodeHeard)
        await stage.executor.launch(order())
        cluster.report(POD, "Running", RUNNING)
        await stage.until(RunUp)
        cluster.remove("/api/v1/nodes/a")
        await stage.until(NodeGone)
        assert gone(await stage.until(RunGone))[0] is ExitReason.NODE_LOST
        assert cluster.pods() == []

    play(tmp_path, scene)


def test_another_daemon_adopts_a_run_and_never_starts_it_again(tmp_path: Path) -> None:
    async def scene(stage: Stage, cluster: FakeCluster) -> None:
        await stage.executor.launch(order())
        cluster.report(POD, "Running", RUNNING)
        await stage.until(RunUp)
        async with staged(tmp_path, cluster, (RUN,)) as other:
            await other.until(RunUp)
            before = list(cluster.calls)
            assert await other.executor.launch(order()) == Done()
            assert not any(call.startswith("POST") for call in cluster.calls[len(before) :])

    play(tmp_path, scene)


def test_a_daemon_without_its_notes_learns_from_the_cluster_how_a_run_ended_and_never_starts_it_again(
    tmp_path: Path,
) -> None:
    """Its database is PostgreSQL, say, and its own disk is lost."""

    async def whole() -> None:
        cluster = two_nodes()
        async with staged(tmp_path, cluster) as stage:
            await stage.executor.launch(order())
            cluster.report(POD, "Running", RUNNING)
            await stage.until(RunUp)
        cluster.report(POD, "Succeeded", terminated(0, word=last_word()))
        before = len(cluster.calls)
        async with staged(tmp_path / "other", cluster, (RUN,)) as other:
            for _ in range(2000):  # looks at what is there, before the launch is sent again
                await asyncio.sleep(0)
            assert POD in cluster.objects
            assert await other.executor.launch(order()) == Done()
            assert gone(await other.until(RunGone))[0] is ExitReason.FINISHED
        assert POD not in cluster.objects
        assert not any(call.startswith("POST") and "/pods/" in call for call in cluster.calls[before:])

    asyncio.run(whole())


def test_a_pod_of_a_launched_run_that_is_missing_is_never_made_again(tmp_path: Path) -> None:
    async def whole() -> None:
        cluster = two_nodes()
        async with staged(tmp_path, cluster) as stage:
            await stage.executor.launch(order())
        cluster.remove(POD)
        async with staged(tmp_path / "other", cluster, (RUN,)) as other:
            assert await other.executor.launch(order()) == Done()
            assert gone(await other.until(RunGone))[0] is ExitReason.SHIM_LOST
        assert POD not in cluster.objects

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("modes", "nodes", "refused"),
    [
        (["ReadWriteOnce"], ("a", "b"), True),
        (["ReadWriteOncePod"], ("a", "b"), True),
        (["ReadWriteOnce"], ("a",), False),
        (["ReadWriteOnce", "ReadWriteMany"], ("a", "b"), False),
        (None, ("a", "b"), False),  # it may not be read, or is not there: the cluster will say so
    ],
)
def test_a_run_on_several_nodes_is_refused_a_claim_that_one_of_them_can_mount(
    tmp_path: Path, modes: list[str] | None, nodes: tuple[str, ...], refused: bool
) -> None:
    async def scene(stage: Stage, cluster: FakeCluster) -> None:
        if modes is not None:
            claim = {"metadata": {"name": "data"}, "spec": {"accessModes": modes}}
            cluster.put("/api/v1/namespaces/default/persistentvolumeclaims/data", claim)
        asked = order(nodes)
        volumes = (PodVolume(mount="/data", claim="data"), PodVolume(mount="/etc/x", config_map="x"))
        spec = replace(asked.record.spec, kubernetes=PodOptions(volumes=volumes))
        answer = await stage.executor.launch(replace(asked, record=replace(asked.record, spec=spec)))
        assert isinstance(answer, Refused) is refused
        if isinstance(answer, Refused):
            assert "the claim data is ReadWriteOnce" in answer.why
            assert "a and b" in answer.why
            assert POD not in cluster.objects

    play(tmp_path, scene)


def test_never_touches_pods_of_others_but_counts_what_they_use(tmp_path: Path) -> None:
    async def scene(stage: Stage, cluster: FakeCluster) -> None:
        theirs = {"containers": [{"name": "x", "resources": {"limits": {GPU: "2"}}}], "nodeName": "b"}
        await cluster.create("/api/v1/namespaces/other/pods", {"metadata": {"name": "theirs"}, "spec": theirs})
        await stage.settled(
            lambda: any(
                isinstance(told, NodeSeen) and told.node.name == "b" and sum(gpu.others for gpu in told.node.gpus) == 2
                for told in stage.told
            )
        )
        await stage.executor.signal(RUN, kill=True)
        assert not any("theirs" in call for call in cluster.calls if not call.startswith("POST"))

    play(tmp_path, scene)
