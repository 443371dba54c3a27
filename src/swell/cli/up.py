"""`swell up`: the daemon in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from swell.cli.common import answering, connected, declare_slots, plural, print_json, slots_come, start_daemon
from swell.cli.serve import daemon_options
from swell.cli.terminal import say
from swell.client.errors import Refused
from swell.client.http import Client
from swell.home import TOKEN_NAME, default_home

NEEDS_AN_IMAGE = (
    "a daemon in a cluster needs an image that its nodes can pull: `docker build -f deploy/Dockerfile -t "
    "registry.example/swell:1 .`, push it, then `swell up --kubernetes --image registry.example/swell:1`. For a daemon "
    "here with pods there: `swell up --kubernetes-context NAME --advertise ADDRESS`"
)


@click.command()
@click.option(
    "--kubernetes", is_flag=True, help="Install the daemon into the cluster of the kubeconfig, and use it from here."
)
@click.option("--image", help="With --kubernetes: the daemon's image, as deploy/Dockerfile makes it.")
@click.option("--job-storage-claim", help="With --kubernetes: a ReadWriteMany claim for checkpoints of jobs.")
@click.option("--yes", is_flag=True, help="With --kubernetes: do not ask before anything is created.")
@daemon_options
@connected
def up(
    home: Path | None,
    as_json: bool,
    kubernetes: bool,
    image: str | None,
    job_storage_claim: str | None,
    yes: bool,
    **options: Any,
) -> None:
    """Start the daemon in the background. If it runs already, --gpus changes how many slots it has. --policy and
    --placer hold from now on, whatever was set before.

    More slots are there at once; when there are fewer, those that jobs hold go as the jobs end.
    """
    said = {key: value for key, value in options.items() if value is not None}
    if kubernetes:
        _into_cluster(home, as_json, image or "", job_storage_claim or "", said, yes=yes)
        return
    if image or job_storage_claim or yes:
        raise click.UsageError("--image, --job-storage-claim and --yes are for a daemon in a cluster: add --kubernetes")
    running = answering(home)
    client = running or start_daemon(home, [part for key, value in said.items() for part in _argument(key, value)])
    if running and "gpus" in said:
        declare_slots(client, said.pop("gpus"))
    try:
        chosen = _choose_policy(client, said.pop("policy", ""), said.pop("placer", ""))
    except Refused as refused:  # it runs all the same
        up_now = (
            f"{refused}; the daemon {'goes on' if running else 'is up at ' + client.address.url} with its own policy"
        )
        raise Refused(refused.status, {**refused.problem, "detail": up_now}) from refused
    nodes = client.get("/v1/nodes")["nodes"]
    if as_json:
        print_json({"url": client.address.url, "started": running is None, "nodes": nodes})
        return
    say(f"swell {'runs already' if running else 'is up'} at {client.address.url}")
    if client.address.warning:
        say(f"warning: {client.address.warning}", err=True)
    if client.address.public_url:
        say(f"others:  swell login {client.address.public_url} --fingerprint {client.address.fingerprint}")
    if running and said:
        holds = "holds" if len(said) == 1 else "hold"
        names = " and ".join(map(_option, said))
        say(f"note: {names} {holds} from a start on; `swell down` first, then `swell up` again")
    if chosen:
        say(chosen)
    _tell(client, home, nodes)


def _into_cluster(home: Path | None, as_json: bool, image: str, claim: str, said: dict[str, Any], *, yes: bool) -> None:
    from swell.cli.up_kubernetes import TAKEN, Wanted, up_kubernetes

    if not image:
        raise click.UsageError(NEEDS_AN_IMAGE)
    if others := [_option(key) for key in said if key not in TAKEN]:
        raise click.UsageError(
            f"{' and '.join(others)} is for a daemon on this machine; in a cluster its configuration is the ConfigMap "
            "swell-config (`kubectl -n swell edit configmap swell-config`, then restart the daemon's pod)"
        )
    wanted = Wanted(image=image, job_storage_claim=claim, advertise=said.get("advertise", ""))
    up_kubernetes(*(home, as_json, wanted, said.get("kubernetes_context", ""), said.get("kubeconfig", "")), yes=yes)


def _choose_policy(client: Client, name: str, placer: str) -> str:
    """A daemon that was started before goes on with the policy it had: here somebody asks for another one. What was
    changed, in words; empty if nothing was."""
    known = client.get("/v1/policy")
    if (name or known["name"], placer or known["placer"]) == (known["name"], known["placer"]):
        return ""
    body = {"name": name or known["name"], "placer": placer or known["placer"]}
    now = client.request_json("PUT", "/v1/policy", body)
    return f"policy {now['name']}, placer {now['placer']}, from now on (before: {known['name']}, {known['placer']})"


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _argument(key: str, value: object) -> tuple[str, ...]:
    name = _option(key)
    return (name,) if value is True else (name, str(value))


def _tell(client: Client, home: Path | None, nodes: list[dict[str, Any]]) -> None:
    place = (home or default_home()).expanduser()
    if (place / TOKEN_NAME).exists():  # else the daemon is elsewhere: `swell login`
        say(f"token in {place / TOKEN_NAME}")
    for node in nodes:
        say(f"{node['name']}: {_gpus(node)}, {plural(node['cpus'], 'CPU')}")
    if slots_come(client, place, nodes):
        say("note: the first job lets slots stand in for GPUs, one per core; `swell up --gpus N` declares N of them")
    say("next:  swell run --gpus 1-4 -- python train.py  |  swell ls  |  swell top")


def _gpus(node: dict[str, Any]) -> str:
    """Declared slots have no memory that anybody measured; they are called what they are."""
    gpus = node["gpus"]
    if not gpus:
        return "no GPU found"
    if not any(gpu["memory_mib"] for gpu in gpus):
        leaving = sum(gpu["health"] != "ok" for gpu in gpus)
        going = f" ({leaving} more until their jobs end)" if leaving else ""
        return f"{plural(len(gpus) - leaving, 'slot')}{going}, no NVIDIA driver"
    types = ", ".join(dict.fromkeys(gpu["type"] for gpu in gpus))
    return f"{len(gpus)} x {types}"
