"""Runs of the launchers mpi and horovod: one MPIJob each, with every worker where it was planned; resized in place. The
tests play the operator and the kubelets."""

from __future__ import annotations

import asyncio
import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec, Launcher, PodOptions
from swell.core.observations import NodeSeen, RunGone, RunUp
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import JobRecord, Run
from swell.executors.kubernetes import executor as module
from swell.executors.kubernetes.manifests import RunObjects, objects_of
from swell.executors.kubernetes.mpi_run import Host, goes_on, reassigned, stage
from swell.executors.kubernetes.mpijob import as_mpijob, path_of
from swell.executors.kubernetes.objects import GPUS
from swell.ports import Done, Order, Refused
from unit.executors.pods.fake_cluster import FakeCluster
from unit.executors.pods.pod_values import CLUSTER, GPU, SITE, last_word, terminated
from unit.executors.pods.test_pod_executor import RUNNING, Clock, Stage, _here, gone, play

RUN = RunId(7, 1)
NAME = f"swell-{CLUSTER[:8]}-7-1"
JOB = path_of("default", NAME)
PODS = "/api/v1/namespaces/default/pods"
NODES = {
    name: Node(name=name, executor="kubernetes", gpus=tuple(Gpu(index=i) for i in range(4)), cpus=8) for name in "ab"
}


def order(*parts: Part, launcher: Launcher = Launcher.HOROVOD) -> Order:
    spec = JobSpec(
        name="j",
        command=("python", "train.py"),
        image="train:1",
        kubernetes=PodOptions(),
        launcher=launcher,
        gpus=GpuRequest(min=1, max=4),
    )
    run = Run(id=RUN, allocation=Allocation(parts=parts), planned_s=0.0)
    return Order(record=JobRecord(id=7, spec=spec, submitted_s=0.0, run=run), nodes=NODES)


def made(asked: Order) -> RunObjects:
    return objects_of(asked.record, asked.nodes, SITE, as_mpijob)


def replicas(objects: RunObjects, role: str) -> dict[str, Any]:
    assert objects.mpijob is not None
    found: dict[str, Any] = objects.mpijob["spec"]["mpiReplicaSpecs"][role]
    return found


def test_a_worker_knows_no_rank_and_no_address_before_it_is_placed() -> None:
    """One template serves all of a kind: who a process is, the launcher says."""
    parts = (Part(node="a", gpus=(0, 1)), Part(node="b", gpus=(3,)))
    for launcher in (Launcher.HOROVOD, Launcher.MPI):
        (container,) = replicas(made(order(*parts, launcher=launcher)), "Worker")["template"]["spec"]["containers"]
        env = {variable["name"]: variable.get("value", "") for variable in container["env"]}
        assert "SWELL_RANK" not in env
        assert "SWELL_RUN" in env, "what holds for all is there"
        assert not [name for name, value in env.items() if "-worker-" in value]


def host(node: str, *gpus: int) -> Host:
    return Host(node=node, gpus=gpus)


def test_horovod_has_a_worker_per_gpu_and_mpi_one_per_node() -> None:
    parts = (Part(node="a", gpus=(0, 1)), Part(node="b", gpus=(3,)))
    assert [found.kind for found in made(order(*parts)).hosts] == [("a", 1), ("a", 1), ("b", 1)]
    mpi = made(order(*parts, launcher=Launcher.MPI))
    assert [found.kind for found in mpi.hosts] == [("a", 2), ("b", 1)]
    words = replicas(mpi, "Launcher")["template"]["spec"]["containers"][0]["args"]
    assert words[words.index("-H") + 1] == "@swell-address-0@:2,@swell-address-1@:1"


def test_the_launcher_has_no_gpu_and_hides_none_of_its_workers() -> None:
    (container,) = replicas(made(order(Part(node="a", gpus=(0,)))), "Launcher")["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {}, "limits": {}}
    assert not {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"} & {item["name"] for item in container["env"]}
    assert "/etc/mpi/discover_hosts.sh" in container["args"]


def test_workers_keep_their_node_and_number_through_a_resize() -> None:
    now = (host("a", 0), host("a", 1), host("b", 0))
    assert reassigned(now, (host("a", 0), host("b", 0))) == (host("a", 0), host("b", 0))
    assert reassigned(now[:1], (host("b", 0), host("a", 0), host("b", 1))) == (host("a", 0), host("b", 0), host("b", 1))
    assert goes_on(now, (host("a", 1),), "a")
    assert not goes_on(now, (host("b", 0),), "a"), "its launcher's node is not among them"


def test_the_template_names_one_node_at_a_time() -> None:
    hosts = (host("a", 0), host("a", 1), host("b", 0))
    assert stage(hosts, {}) == (2, hosts[0])


def operate(cluster: FakeCluster) -> None:
    """What the operator does: workers and launcher from the templates, the highest numbers away, hosts discovered."""
    spec = cluster.objects[JOB]["spec"]["mpiReplicaSpecs"]
    for index in range(spec["Worker"]["replicas"]):
        labels = {"training.kubeflow.org/replica-index": str(index)}
        _pod(cluster, f"{NAME}-worker-{index}", spec["Worker"]["template"], labels)
    _pod(cluster, f"{NAME}-launcher-x", spec["Launcher"]["template"], {})
    names = [key.rsplit("/", 1)[1] for key in cluster.pods() if "-worker-" in key]
    script = "#!/bin/sh\n" + "".join(f"echo {name}.{NAME}-worker.default.svc\n" for name in sorted(names))
    path = f"/api/v1/namespaces/default/configmaps/{NAME}-config"
    cluster.put(path, {"metadata": {"name": f"{NAME}-config"}, "data": {"discover_hosts.sh": script}})


def _pod(cluster: FakeCluster, name: str, template: dict[str, Any], labels: dict[str, str]) -> None:
    path = f"{PODS}/{name}"
    if path not in cluster.objects:
        item = copy.deepcopy(template)
        item["metadata"] |= {"name": name, "namespace": "default", "uid": f"uid-{name}-{cluster.version}"}
        item["metadata"]["labels"] |= labels
        cluster.put(path, item)


def node_of(cluster: FakeCluster, pod: str) -> str:
    affinity = cluster.objects[pod]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    name: str = terms[0]["matchFields"][0]["values"][0]
    return name


def up(cluster: FakeCluster, pod: str) -> None:
    cluster.report(pod, "Running", RUNNING, node=node_of(cluster, pod))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.0)
    monkeypatch.setattr(module, "STRAGGLER_S", 0.0)
    monkeypatch.setattr(asyncio, "to_thread", _here)


LAUNCHER = f"{PODS}/{NAME}-launcher-x"
WORKERS = [f"{PODS}/{NAME}-worker-{index}" for index in range(3)]


async def started(stage_: Stage, cluster: FakeCluster) -> None:
    cluster.objects["/apis/kubeflow.org/v2beta1"] = {}
    stage_.executor._make = made
    assert await stage_.executor.launch(order(Part(node="a", gpus=(0,)))) == Done()
    operate(cluster)
    up(cluster, WORKERS[0])
    await stage_.settled(lambda: "swell/addresses" in cluster.objects[LAUNCHER]["metadata"]["annotations"])
    up(cluster, LAUNCHER)
    await stage_.until(RunUp)


def asks_for(cluster: FakeCluster, count: int) -> bool:
    return bool(cluster.objects[JOB]["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == count)


def annotation(cluster: FakeCluster, pod: str, name: str) -> str:
    return str(cluster.objects[pod]["metadata"]["annotations"].get(name, ""))


def held(cluster: FakeCluster, pod: str) -> bool:
    return bool(cluster.objects[pod]["metadata"].get("finalizers") == ["swell/record"])


def test_a_run_grows_over_two_nodes_in_place_and_ends_with_its_launcher(tmp_path: Path) -> None:
    async def scene(stage_: Stage, cluster: FakeCluster) -> None:
        await started(stage_, cluster)
        assert held(cluster, WORKERS[0])
        assert held(cluster, LAUNCHER)
        bigger = order(Part(node="a", gpus=(0, 1)), Part(node="b", gpus=(2,)))
        assert await stage_.executor.resize(bigger) == Done()
        for count, node in ((2, "a"), (3, "b")):
            await stage_.settled(partial(asks_for, cluster, count))
            operate(cluster)
            assert node_of(cluster, WORKERS[count - 1]) == node
            up(cluster, WORKERS[count - 1])
        await stage_.settled(
            lambda: len(cluster.objects[LAUNCHER]["metadata"]["annotations"]["swell/hosts"].split()) == 3
        )
        assert [annotation(cluster, pod, GPUS) for pod in (LAUNCHER, *WORKERS)] == ["", "0", "1", "2"]
        cluster.report(LAUNCHER, "Succeeded", terminated(0, word=last_word()))
        await stage_.settled(lambda: JOB not in cluster.objects)
        for pod in WORKERS:
            cluster.report(pod, "Succeeded", terminated(143, word=last_word(None, signal=15, asked="term")), node="a")
        assert gone(await stage_.until(RunGone)) == (ExitReason.FINISHED, "")

    play(tmp_path, scene)


def test_a_worker_that_was_resized_away_ends_nothing(tmp_path: Path) -> None:
    async def scene(stage_: Stage, cluster: FakeCluster) -> None:
        await started(stage_, cluster)
        assert await stage_.executor.resize(order(Part(node="a", gpus=(0, 1)))) == Done()
        await stage_.settled(partial(asks_for, cluster, 2))
        operate(cluster)
        up(cluster, WORKERS[1])
        await stage_.settled(lambda: held(cluster, WORKERS[1]))
        assert await stage_.executor.resize(order(Part(node="a", gpus=(0,)))) == Done()
        await stage_.settled(lambda: "deletionTimestamp" in cluster.objects[WORKERS[1]]["metadata"])
        cluster.report(WORKERS[1], "Failed", terminated(143))
        await stage_.settled(lambda: WORKERS[1] not in cluster.objects)
        assert not any(isinstance(told, RunGone) for told in stage_.told)
        assert asks_for(cluster, 1)

    play(tmp_path, scene)


def test_a_run_whose_launcher_would_move_is_stopped_instead(tmp_path: Path) -> None:
    async def scene(stage_: Stage, cluster: FakeCluster) -> None:
        await started(stage_, cluster)
        assert await stage_.executor.resize(order(Part(node="b", gpus=(0,)))) == Done()
        assert JOB not in cluster.objects
        assert "deletionTimestamp" in cluster.objects[LAUNCHER]["metadata"]

    play(tmp_path, scene)


def test_gpus_of_a_worker_on_its_way_out_may_be_planned_until_it_is_overdue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found on a real cluster: they counted as others', so there was no place for both the run and the job that it had
    made room for, and the run was stopped all the same."""

    async def scene(stage_: Stage, cluster: FakeCluster) -> None:
        await started(stage_, cluster)
        assert await stage_.executor.resize(order(Part(node="a", gpus=(0, 1)))) == Done()
        await stage_.settled(partial(asks_for, cluster, 2))
        operate(cluster)
        up(cluster, WORKERS[1])
        await stage_.settled(lambda: held(cluster, WORKERS[1]))
        assert await stage_.executor.resize(order(Part(node="a", gpus=(0,)))) == Done()
        await stage_.settled(lambda: "deletionTimestamp" in cluster.objects[WORKERS[1]]["metadata"])
        up(cluster, WORKERS[0])
        cluster.put("/api/v1/namespaces/x/pods/theirs", theirs())
        await stage_.settled(lambda: taken(stage_) == 2)
        monkeypatch.setattr(Clock, "now_s", lambda _: 1_800_000_000.0 + 60.0)
        await stage_.settled(lambda: taken(stage_) == 3)
        cluster.report(WORKERS[1], "Failed", terminated(143))
        await stage_.settled(lambda: taken(stage_) == 2)

    play(tmp_path, scene)


def theirs() -> dict[str, Any]:
    spec = {"nodeName": "a", "containers": [{"name": "x", "resources": {"limits": {GPU: "2"}}}]}
    return {"metadata": {"name": "theirs", "namespace": "x", "uid": "theirs"}, "spec": spec}


def taken(stage_: Stage) -> int:
    """GPUs of node a that no run of ours may be planned on."""
    nodes = [told.node for told in stage_.told if isinstance(told, NodeSeen) and told.node.name == "a"]
    return sum(gpu.others for gpu in nodes[-1].gpus)


def test_a_cluster_without_mpijobs_refuses_the_run_with_what_to_install(tmp_path: Path) -> None:
    async def scene(stage_: Stage, cluster: FakeCluster) -> None:
        stage_.executor._make = made
        answer = await stage_.executor.launch(order(Part(node="a", gpus=(0,))))
        assert isinstance(answer, Refused)
        assert "install the MPI operator" in answer.why
        assert not [key for key in cluster.objects if "7-1" in key]

    play(tmp_path, scene)


def test_a_second_launcher_is_never_introduced(tmp_path: Path) -> None:
    async def scene(stage_: Stage, cluster: FakeCluster) -> None:
        await started(stage_, cluster)
        second = f"{PODS}/{NAME}-launcher-y"
        template = cluster.objects[JOB]["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
        _pod(cluster, f"{NAME}-launcher-y", template, {})
        await stage_.settled(lambda: second not in cluster.objects)
        assert f"PATCH {second}" not in cluster.calls

    play(tmp_path, scene)
