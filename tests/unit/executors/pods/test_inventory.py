"""Nodes of a cluster as Swell's: anonymous GPUs, what others use, and why nothing new goes there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swell.core.resources import Node
from swell.executors.kubernetes.inventory import node_seen, nodes_of
from swell.executors.kubernetes.settings import KubernetesSettings
from unit.executors.pods.pod_values import CLUSTER, GPU, kube_node, pod

SETTINGS = KubernetesSettings()
RUNNING = {"running": {"startedAt": "2027-01-15T08:00:01Z"}}
OTHERS = {"app": "somebody"}


def seen(*pods: object, **node: object) -> Node:
    return node_seen(kube_node(**node), pods, CLUSTER, SETTINGS)  # type: ignore[arg-type]


def test_a_node_has_its_allocatable_amounts_and_anonymous_gpus() -> None:
    node = seen(labels={"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.memory": "40960", "zone": "z"})
    assert (node.cpus, node.memory_mib, node.executor, node.realm) == (8, 16 * 1024, "kubernetes", "kubernetes")
    assert [(gpu.index, gpu.type, gpu.memory_mib) for gpu in node.gpus] == [(i, "A100", 40960) for i in range(4)]
    assert node.labels["zone"] == "z"


def test_what_pods_of_others_use_is_taken_from_the_end_and_never_from_what_ours_hold() -> None:
    ours = pod(RUNNING, RUNNING)  # holds slots 1 and 2
    theirs = pod(RUNNING, labels=OTHERS, spec={"containers": [{"name": "x", "resources": {"limits": {GPU: "1"}}}]})
    assert [gpu.index for gpu in seen(ours, theirs).gpus if gpu.others] == [3]
    assert [gpu.index for gpu in seen(ours, theirs, theirs).gpus if gpu.others] == [0, 3]


@given(held=st.sets(st.integers(0, 3)), taken=st.integers(0, 6))
def test_never_marks_a_held_slot_nor_more_than_others_use(held: set[int], taken: int) -> None:
    theirs = {"containers": [{"name": "x", "resources": {"limits": {GPU: str(taken)}}}]}
    other = pod(RUNNING, labels=OTHERS, spec=theirs)
    node = node_seen(kube_node(), [other], CLUSTER, SETTINGS, held)
    marked = {gpu.index for gpu in node.gpus if gpu.others}
    assert not marked & held
    assert len(marked) == min(taken, 4 - len(held))


def test_cpus_and_memory_of_others_are_not_ours_to_give() -> None:
    asked = {"requests": {"cpu": "1500m", "memory": "1Gi"}}
    other = pod(RUNNING, labels=OTHERS, spec={"containers": [{"name": "x", "resources": asked}]})
    node = seen(other)
    assert (node.cpus, node.memory_mib) == (6, 15 * 1024)


def test_a_pod_of_another_swell_is_one_of_others() -> None:
    another = pod(RUNNING, labels={"swell/cluster": "another", "swell/job": "7", "swell/attempt": "2"})
    assert sum(gpu.others for gpu in seen(another).gpus) == 1


def test_pods_that_are_over_use_nothing() -> None:
    other = pod(RUNNING, labels=OTHERS, phase="Succeeded")
    assert not any(gpu.others for gpu in nodes_of([kube_node()], [other], CLUSTER, SETTINGS)[0].gpus)


def test_nothing_new_goes_to_a_node_that_is_cordoned_not_ready_or_tainted_and_it_says_why() -> None:
    assert seen().closed == ""
    assert "kubectl uncordon a" in seen(spec={"unschedulable": True}).closed
    assert "not ready in Kubernetes: kubelet stopped" in seen(ready="Unknown").closed
    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    assert "tolerate: [team]" in seen(spec={"taints": [taint]}).closed
    assert not seen(spec={"taints": [taint]}).schedulable


def test_the_usual_taint_of_gpu_nodes_and_a_preference_keep_nobody_out() -> None:
    usual = {"key": GPU, "effect": "NoSchedule"}
    prefers = {"key": "team", "effect": "PreferNoSchedule"}
    assert seen(spec={"taints": [usual, prefers]}).closed == ""
    tolerant = KubernetesSettings(tolerate=("team",))
    kept_out = kube_node(spec={"taints": [{"key": "team", "effect": "NoExecute"}]})
    assert node_seen(kept_out, [], CLUSTER, tolerant).closed == ""


def test_containers_that_go_on_beside_the_others_and_a_pods_overhead_count_as_the_scheduler_counts_them() -> None:
    def asks(cpu: str, **more: str) -> dict[str, object]:
        return {"name": "x", "resources": {"requests": {"cpu": cpu}}, **more}

    first = [asks("1", restartPolicy="Always"), asks("3"), asks("1", restartPolicy="Always")]
    other = pod(RUNNING, labels=OTHERS, spec={"containers": [asks("1")], "initContainers": first})
    assert seen(other).cpus == 8 - 4  # the second init container beside the first sidecar
    more = {"containers": [asks("3")], "initContainers": first, "overhead": {"cpu": "500m"}}
    assert seen(pod(RUNNING, labels=OTHERS, spec=more)).cpus == 8 - 6  # both sidecars, 3 and the overhead
