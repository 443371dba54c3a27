"""What is created for a run, as plain values; `golden.json` holds a whole one (SWELL_GOLDEN=write writes it anew)."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swell.core.errors import Infeasible
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec, Launcher, PodOptions, PodVolume
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import JobRecord, Run
from swell.executors.kubernetes.manifests import RunObjects, Site, library_of, merged, objects_of, owned
from swell.executors.kubernetes.settings import KubernetesSettings

GOLDEN = Path(__file__).with_name("golden.json")
NODES = {name: Node(name=name, gpus=tuple(Gpu(index=i) for i in range(4)), cpus=8) for name in ("a", "b")}
SITE = Site(
    cluster="c0ffee00c0ffee00",
    namespace="training",
    library="swell-c0ffee00-lib-1",
    library_paths={"f0": "start.sh"},
    url="http://10.0.0.1:7000",
    token="run-token",
    settings=KubernetesSettings(storage_claim="data"),
)
SPEC = JobSpec(
    name="resnet",
    command=("python", "train.py", "--out=$HOME/$(date)"),
    gpus=GpuRequest(min=1, max=4),
    image="registry/train:1",
    launcher=Launcher.PER_GPU,
    env={"WANDB": "key", "LR": "0.1"},
    secrets=("WANDB",),
    memory_mib=2048,
    files="ab" * 32,
    uses_library=True,
    kubernetes=PodOptions(
        service_account="trainer",
        priority_class="batch",
        pull_secrets=("registry",),
        volumes=(PodVolume(mount="/data", claim="imagenet", read_only=True),),
        overrides={"securityContext": {"runAsUser": 1000}},
    ),
)
TWO_NODES = (Part(node="a", gpus=(0, 1)), Part(node="b", gpus=(3,)))


def objects(spec: JobSpec = SPEC, parts: tuple[Part, ...] = TWO_NODES, site: Site = SITE) -> RunObjects:
    run = Run(id=RunId(7, 2), allocation=Allocation(parts=parts, gpu_type="gpu"), planned_s=0.0)
    return objects_of(JobRecord(id=7, spec=spec, submitted_s=0.0, run=run), NODES, site)


def container(made: RunObjects, pod: int = 0, index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = made.pods[pod]["spec"]["containers"][index]
    return found


def env(made: RunObjects, pod: int = 0, index: int = 0) -> dict[str, Any]:
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container(made, pod, index)["env"]}


def test_a_whole_run_is_as_it_was() -> None:
    made = objects()
    text = json.dumps([made.config_map, made.secret, *made.pods], indent=1, sort_keys=True) + "\n"
    if os.environ.get("SWELL_GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_a_pod_per_node_and_a_container_per_worker_with_its_gpus() -> None:
    made = objects()
    assert [[c["name"] for c in pod["spec"]["containers"]] for pod in made.pods] == [["rank-0", "rank-1"], ["rank-2"]]
    assert container(made)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert [pod["metadata"]["annotations"]["swell/gpus"] for pod in made.pods] == ["0,1", "3"]


def test_secrets_are_in_no_pod() -> None:
    made = objects()
    assert "run-token" not in json.dumps(made.pods)
    assert made.secret["stringData"] == {"SWELL_TOKEN": "run-token", "WANDB": "key"}
    assert env(made)["WANDB"] == {"secretKeyRef": {"name": "swell-c0ffee00-7-2", "key": "WANDB"}}


def test_kubernetes_puts_no_variable_into_what_a_user_wrote() -> None:
    assert container(objects())["args"] == ["python", "train.py", "--out=$$HOME/$$(date)"]


def test_addresses_are_left_to_the_pods_where_there_are_several_nodes() -> None:
    assert env(objects())["MASTER_ADDR"] == "@swell-address-0@"
    alone = objects(parts=(Part(node="a", gpus=(0, 1)),))
    assert env(alone)["MASTER_ADDR"] == "127.0.0.1"
    assert "SWELL_POD_ADDRESSES" not in env(alone)


def test_the_device_plugin_chooses_devices_and_a_worker_without_any_sees_none() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in env(objects())
    spec = replace(SPEC, gpus=GpuRequest(min=0, max=0), launcher=Launcher.SINGLE)
    without = env(objects(spec, (Part(node="a"),)))
    assert (without["CUDA_VISIBLE_DEVICES"], without["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")


def test_cpus_are_asked_for_in_the_measure_of_the_nodes_real_ones() -> None:
    small = {"a": replace(NODES["a"], cpus=2), "b": NODES["b"]}
    run = Run(id=RunId(7, 2), allocation=Allocation(parts=TWO_NODES), planned_s=0.0)
    made = objects_of(JobRecord(id=7, spec=SPEC, submitted_s=0.0, run=run), small, SITE)
    assert container(made)["resources"]["requests"]["cpu"] == "500m"
    assert container(made, 1)["resources"]["requests"]["cpu"] == "1000m"


def test_a_job_sees_no_files_of_another_on_the_storage() -> None:
    mounts = {mount["name"]: mount for mount in container(objects())["volumeMounts"]}
    assert mounts["swell-data"]["subPath"] == "c0ffee00c0ffee00/7"


def test_checkpoints_without_a_place_that_outlives_a_pod_are_refused() -> None:
    nowhere = replace(SITE, settings=KubernetesSettings())
    with pytest.raises(Infeasible, match="storage_claim"):
        objects(replace(SPEC, kubernetes=None), site=nowhere)
    objects(replace(SPEC, kubernetes=None, uses_library=False), site=nowhere)
    objects(site=nowhere)  # its user mounts a volume


def test_overrides_reach_containers_by_name_and_leave_the_rest() -> None:
    base = {"containers": [{"name": "rank-0", "image": "a"}], "volumes": [{"name": "x"}], "dnsPolicy": "Default"}
    over = {"containers": [{"name": "rank-0", "tty": True}], "volumes": [{"name": "y"}], "hostIPC": True}
    assert merged(base, over) == {
        "containers": [{"name": "rank-0", "image": "a", "tty": True}],
        "volumes": [{"name": "x"}, {"name": "y"}],
        "dnsPolicy": "Default",
        "hostIPC": True,
    }


def test_overrides_add_what_has_no_name_and_replace_lists_of_words() -> None:
    base = {"tolerations": [{"key": "a"}], "containers": [{"name": "rank-0", "args": ["--name", "x"]}]}
    over = {"tolerations": [{"key": "b"}], "containers": [{"name": "rank-0", "args": ["--rename"]}]}
    assert merged(base, over) == {
        "tolerations": [{"key": "a"}, {"key": "b"}],
        "containers": [{"name": "rank-0", "args": ["--rename"]}],
    }


def test_all_of_a_run_is_owned_by_its_config_map() -> None:
    owner = owned(objects().pods[0], "swell-c0ffee00-7-2", "uid-1")["metadata"]["ownerReferences"]
    assert owner == [{"apiVersion": "v1", "kind": "ConfigMap", "name": "swell-c0ffee00-7-2", "uid": "uid-1"}]


def test_the_library_is_named_by_its_content() -> None:
    one, paths = library_of({"start.sh": b"exec"}, "c0ffee00c0ffee00", "training")
    other, _ = library_of({"start.sh": b"exec 2"}, "c0ffee00c0ffee00", "training")
    assert one["metadata"]["name"] != other["metadata"]["name"]
    assert one["data"] == {"f0": "exec"}
    assert paths == {"f0": "start.sh"}
