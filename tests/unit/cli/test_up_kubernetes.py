"""`swell up --kubernetes`: what it creates is what is deployed, and addresses in a cluster. The rest is tested
with a stand-in API server (integration/cli/test_through_cluster.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from swell.cli.up import up
from swell.cli.up_kubernetes import Wanted, manifests
from swell.client.errors import DaemonUnreachable
from swell.client.through_cluster import Door, api_server, door_of

DEPLOYED = Path(__file__).resolve().parents[3] / "deploy/kubernetes/swell.yaml"


def test_what_is_created_is_what_is_deployed_but_for_what_was_asked_for() -> None:
    plain = list(yaml.safe_load_all(DEPLOYED.read_text(encoding="utf-8")))
    made = manifests(Wanted(image="r/swell:2", job_storage_claim="data", advertise="10.0.0.5"))
    changed = [(before, after) for before, after in zip(plain, made, strict=True) if before != after]
    assert [before["kind"] for before, _ in changed] == ["ConfigMap", "Deployment"]
    (_, config), (_, daemon) = changed
    assert yaml.safe_load(config["data"]["config.yaml"])["kubernetes"]["storage_claim"] == "data"
    container = daemon["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "r/swell:2"
    assert {"name": "ADVERTISE", "value": "10.0.0.5"} in container["env"]


@pytest.mark.parametrize("context", ["kind", "arn:aws:eks:eu-1:1:cluster/a, b"])
def test_an_address_in_a_cluster_survives_being_written_down(context: str) -> None:
    door = Door(context=context, namespace="swell", service="swell:8700", kubeconfig="/home/me/k.yaml")
    assert door_of(door.url) == door
    assert "," not in door.url, "SWELL_URL separates addresses with it"


def test_what_is_no_address_in_a_cluster_says_how_one_looks() -> None:
    with pytest.raises(DaemonUnreachable, match="kubernetes://CONTEXT/NAMESPACE/SERVICE:PORT"):
        door_of("kubernetes://kind")


def config(tmp_path: Path, server: str, **user: object) -> str:
    path = tmp_path / "kubeconfig"
    found = {
        "current-context": "kind",
        "contexts": [{"name": "kind", "context": {"cluster": "c", "user": "me"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": user}],
    }
    path.write_text(yaml.safe_dump(found), encoding="utf-8")
    return str(path)


def test_a_program_of_the_kubeconfig_is_asked_for_the_token(tmp_path: Path) -> None:
    said = '{"status": {"token": "by-program"}}'
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "args": [said]}
    assert api_server("", config(tmp_path, "https://k:6443", exec=program)).authorization == "Bearer by-program"


def test_a_cluster_without_tls_or_of_an_unknown_context_is_refused(tmp_path: Path) -> None:
    path = config(tmp_path, "http://k:8080", token="t")
    with pytest.raises(DaemonUnreachable, match="has no TLS"):
        api_server("kind", path)
    with pytest.raises(DaemonUnreachable, match="get-contexts"):
        api_server("other", path)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--kubernetes"], "needs an image"),
        (["--kubernetes", "--image", "i", "--gpus", "2"], "--gpus is for a daemon on this machine"),
        (["--image", "i"], "add --kubernetes"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(words: list[str], why: str) -> None:
    told = CliRunner().invoke(up, words)
    assert told.exit_code == 2
    assert why in " ".join(told.output.split())
