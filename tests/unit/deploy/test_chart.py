"""The chart: complete, of least privilege, and valid for a current Kubernetes (lightkube-models, strictly decoded)."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from swell.swelljobs.let_go import DAEMON
from unit.deploy.helm import plain, render

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy/helm/swell"
HOOK = "helm.sh/hook"
FULL = {
    "advertise": "10.0.0.5",
    "jobStorageClaim": "data",
    "databaseSecret": "db",
    "serviceMonitor": True,
    "storage": {"className": "fast"},
}


def rendered(values: Mapping[str, Any] = {}) -> list[dict[str, Any]]:
    return render(CHART, values, name="swell", namespace="swell")


def of_kind(items: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [
        item for item in items if item["kind"] == kind and not item["metadata"].get("annotations", {}).get(HOOK)
    ]
    return found


def of_hook(kind: str) -> dict[str, Any]:
    """Of what runs before the chart is removed."""
    (found,) = [
        item for item in rendered() if item["kind"] == kind and item["metadata"].get("annotations", {}).get(HOOK)
    ]
    assert found["metadata"]["annotations"][HOOK] == "pre-delete"
    return found


@pytest.mark.parametrize("values", [{}, FULL])
def test_every_object_is_valid_for_a_current_kubernetes(values: Mapping[str, Any]) -> None:
    lightkube = pytest.importorskip("lightkube")
    from lightkube.core.resource_registry import resource_registry

    assert lightkube
    checked = 0
    for item in rendered(values):
        if item["kind"] != "ServiceMonitor":  # of the Prometheus Operator, whose schema is not at hand
            kind = resource_registry.load(item["apiVersion"], item["kind"])
            strictly(kind, item, item["kind"])
            msgspec.convert(item, kind)
            checked += 1
    assert checked >= 11


def strictly(kind: Any, value: Any, where: str) -> None:
    """Every field is one that the API has, and of its type as far as it is an object or a list of objects."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        strictly(next(arg for arg in typing.get_args(kind) if arg is not type(None)), value, where)
    elif origin is list:
        assert isinstance(value, list), where
        for index, one in enumerate(value):
            strictly(typing.get_args(kind)[0], one, f"{where}[{index}]")
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        assert isinstance(value, dict), where
        known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        for name, held in value.items():
            assert name in known, f"{where} has no {name}"
            strictly(known[name], held, f"{where}.{name}")


def test_a_field_that_is_not_there_is_found() -> None:
    pytest.importorskip("lightkube")
    from lightkube.core.resource_registry import resource_registry

    item = of_kind(rendered(), "Deployment")
    item["spec"]["template"]["spec"]["containers"][0]["imagePull"] = "Always"
    with pytest.raises(AssertionError, match="imagePull"):
        strictly(resource_registry.load("apps/v1", "Deployment"), item, "Deployment")


@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
def test_it_may_do_what_a_daemon_outside_may_do_and_nothing_more(kind: str) -> None:
    outside = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/rbac.yaml").read_text(encoding="utf-8")))
    assert of_kind(rendered(), kind)["rules"] == of_kind(outside, kind)["rules"]
    assert "*" not in str(of_kind(rendered(), kind)["rules"])


def test_what_a_person_sets_is_where_it_belongs() -> None:
    items = rendered(FULL)
    daemon = of_kind(items, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "ADVERTISE", "value": "10.0.0.5"} in daemon["env"]
    assert daemon["args"][-2:] == ["--database", "$(DATABASE_URL)"]
    config = yaml.safe_load(of_kind(items, "ConfigMap")["data"]["config.yaml"])
    assert config["kubernetes"]["storage_claim"] == "data"
    assert of_kind(items, "PersistentVolumeClaim")["spec"]["storageClassName"] == "fast"


def test_by_default_pods_reach_the_daemon_by_its_service_and_nothing_optional_is_there() -> None:
    items = rendered()
    daemon = of_kind(items, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "ADVERTISE", "value": "swell.swell.svc"} in daemon["env"]
    assert "ServiceMonitor" not in {item["kind"] for item in items}


def test_its_configuration_is_one_that_the_daemon_takes(tmp_path: Path) -> None:
    from swell.config import load_config

    text = of_kind(rendered(FULL), "ConfigMap")["data"]["config.yaml"]
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    config = load_config(tmp_path, {"advertise": "swell.swell.svc"})
    assert config.kubernetes is not None
    assert config.kubernetes.storage_claim == "data"
    assert config.port == 8700


def test_before_it_is_removed_the_daemon_is_stopped_and_finalizers_are_let_go_of() -> None:
    items = rendered()
    (container,) = of_hook("Job")["spec"]["template"]["spec"]["containers"]
    deployment = of_kind(items, "Deployment")
    assert container["command"][-3:] == ["swell.swelljobs.let_go", "swell", deployment["metadata"]["name"]]
    (rule,) = of_hook("Role")["rules"]
    assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == (["deployments/scale"], ["swell"], ["patch"])
    account = of_hook("Job")["spec"]["template"]["spec"]["serviceAccountName"]
    assert [one["name"] for one in of_hook("RoleBinding")["subjects"]] == [account]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert [f"{name}={value}" for name, value in labels.items()] == f"{DAEMON}=swell".split(",")


def test_the_file_for_kubectl_is_what_the_chart_makes() -> None:
    written = (ROOT / "deploy/kubernetes/swell.yaml").read_text(encoding="utf-8")
    assert written == plain(CHART), "make it again: PYTHONPATH=tests python -m unit.deploy.helm"
    kinds = [item["kind"] for item in yaml.safe_load_all(written)]
    assert {"Deployment", "Service", "CustomResourceDefinition", "Role"} <= set(kinds)
    assert "Job" not in kinds, "helm's hook would let go of everything at once"
