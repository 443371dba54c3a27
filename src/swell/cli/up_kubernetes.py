"""`swell up --kubernetes`: the daemon in the cluster of the kubeconfig, by the manifests of deploy/kubernetes, shown
first; and this machine's commands sent to it through the API server from then on.

Its token is in a Secret beside it, which the manifests hand to the daemon: whoever may read that Secret may log in."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPException
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from swell.cli.common import plural, print_json
from swell.cli.terminal import say
from swell.client.errors import DaemonUnreachable, Refused
from swell.client.find import Address
from swell.client.http import TIMEOUT_S, Client
from swell.client.through_cluster import ApiServer, Door, api_server
from swell.home import LOGIN_NAME, default_home, make_directory, write_private

Manifest = dict[str, Any]

NAMESPACE, NAME, PORT = "swell", "swell", 8700
TOKEN = f"{NAME}-token"
UP_S, EVERY_S = 180.0, 0.5
"""An image is pulled and a volume made meanwhile."""
TAKEN = ("kubernetes_context", "kubeconfig", "advertise")
"""Options of `swell up` that mean something here too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Values that people set: the chart's of the same names."""

    image: str
    job_storage_claim: str = ""
    advertise: str = ""


def up_kubernetes(
    home: Path | None, as_json: bool, wanted: Wanted, context: str, kubeconfig: str, *, yes: bool
) -> None:
    server = api_server(context, kubeconfig)
    items = manifests(wanted)
    say(shown(items), err=as_json)
    if not yes:
        click.confirm(f"create these in the cluster of context {server.context} ({server.url})?", abort=True, err=True)
    for item in items[:1]:  # the namespace, which the token's Secret needs
        _call(server, "PATCH", *_apply(item))
    token = _token(server)
    for item in items[1:]:
        _call(server, "PATCH", *_apply(item))
    door = Door(context=server.context, namespace=NAMESPACE, service=f"{NAME}:{PORT}", kubeconfig=kubeconfig)
    address = Address(url=door.url, token=token, local=False)
    nodes = _until_it_answers(server, address)
    folder = (home or default_home()).expanduser()
    make_directory(folder)
    write_private(folder / LOGIN_NAME, json.dumps({"url": address.url, "token": token}))
    if as_json:
        print_json({"url": address.url, "nodes": nodes})
        return
    say(f"swell is up in the cluster of context {server.context}; commands go there through its API server")
    say(f"{plural(len(nodes), 'node')}, {plural(sum(len(node['gpus']) for node in nodes), 'GPU')}")
    say("next:  swell submit job.yaml (with `kubernetes: {}` and an `image:`)  |  swell ls  |  swell logout")


# ---- what is created ----


def manifests(wanted: Wanted) -> list[Manifest]:
    """Of deploy/kubernetes/swell.yaml, with what people set."""
    import yaml

    text = (resources.files("swell.cli") / "in_cluster.yaml").read_text(encoding="utf-8")
    items: list[Manifest] = list(yaml.safe_load_all(text))
    by_kind = {item["kind"]: item for item in items}
    container = by_kind["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    container["image"] = wanted.image
    if wanted.advertise:
        env = {variable["name"]: variable for variable in container["env"]}
        env["ADVERTISE"]["value"] = wanted.advertise
    if wanted.job_storage_claim:
        data = by_kind["ConfigMap"]["data"]
        config = yaml.safe_load(data["config.yaml"])
        config["kubernetes"]["storage_claim"] = wanted.job_storage_claim
        data["config.yaml"] = yaml.safe_dump(config, sort_keys=False)
    return items


def shown(items: Sequence[Manifest]) -> str:
    import yaml

    return yaml.safe_dump_all(items, sort_keys=False, width=120)


def _path(item: Manifest) -> str:
    """Of the object in the API."""
    group, _, version = item["apiVersion"].rpartition("/")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    meta = item["metadata"]
    where = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{root}{where}/{item['kind'].lower()}s/{meta['name']}"


def _apply(item: Manifest) -> tuple[str, Manifest, str]:
    """Made, or changed to what is wanted: sent again, nothing happens."""
    return (
        f"{_path(item)}?{urlencode({'fieldManager': 'swell', 'force': 'true'})}",
        item,
        "application/apply-patch+yaml",
    )


def _token(server: ApiServer) -> str:
    """That the daemon has, or is to have."""
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    fresh = base64.b64encode(os.urandom(32).hex().encode()).decode()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": TOKEN}, "data": {"token": fresh}}
    try:
        found = _call(server, "POST", path, secret)
    except Refused as refused:
        if refused.status != 409:
            raise
        found = _call(server, "GET", f"{path}/{TOKEN}")
    return base64.b64decode(found["data"]["token"]).decode().strip()


# ---- the API server ----


def _call(server: ApiServer, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": kind} if content else {}
    try:
        with closing(server.connection("", TIMEOUT_S)) as connection:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            data = answer.read()
    except (OSError, HTTPException) as error:
        raise DaemonUnreachable(
            f"the API server of context {server.context} at {server.url} does not answer ({error}); see whether "
            "`kubectl version` does"
        ) from error
    if answer.status >= 400:
        raise Refused(answer.status, {"detail": _refusal(data, answer.status)})
    return json.loads(data)


def _refusal(data: bytes, status: int) -> str:
    try:
        said = str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        said = f"status {status}"
    advice = "; ask an administrator of the cluster to run this command" if status == 403 else ""
    return f"the cluster refused it: {said}{advice}"


def _until_it_answers(server: ApiServer, address: Address) -> list[dict[str, Any]]:
    give_up_s = time.monotonic() + UP_S
    while True:
        try:
            found: list[dict[str, Any]] = Client(address).get("/v1/nodes")["nodes"]
        except (Refused, DaemonUnreachable) as error:
            if time.monotonic() >= give_up_s:
                why = _why_not(server) or error
                raise DaemonUnreachable(
                    f"the daemon was installed and has not answered within {UP_S:.0f} s: {why}; see `kubectl -n "
                    f"{NAMESPACE} describe pods` and `kubectl -n {NAMESPACE} logs deploy/{NAME}`, then run this again"
                ) from error
            time.sleep(EVERY_S)
        else:
            return found


def _why_not(server: ApiServer) -> str:
    """What its pod waits for, in the words of the cluster."""
    select = urlencode({"labelSelector": f"app.kubernetes.io/instance={NAME}"})
    pods = _call(server, "GET", f"/api/v1/namespaces/{NAMESPACE}/pods?{select}")["items"]
    return next((why for pod in pods if (why := _waits_for(pod.get("status") or {}))), "")


def _waits_for(status: Mapping[str, Any]) -> str:
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return f"{waiting.get('reason', '')}: {waiting.get('message', '')}"
    unplaced = (found for found in status.get("conditions") or () if found.get("type") == "PodScheduled")
    return next((str(found.get("message", "")) for found in unplaced if found.get("status") == "False"), "")
