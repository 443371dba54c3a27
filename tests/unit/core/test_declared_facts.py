"""What a person declared of a machine and what is measured there are kept apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.core import events as ev
from swell.core.errors import Conflict
from swell.core.lifecycle import replay
from swell.core.resources import LEASE_S, Gpu, Node, Ssh
from swell.plan import commands

SSH = Ssh(host="gpu2.lab", user="ada", host_key="ssh-ed25519 AAAA")
DECLARED = Node(
    name="gpu2",
    executor="ssh",
    ssh=SSH,
    realm="lab",
    labels={"owner": "vision"},
    rack="r1",
    address="10.0.0.2",
    lease_s=60,
)
MEASURED = Node(name="gpu2", executor="ssh", gpus=(Gpu(index=0, uuid="GPU-1"),), cpus=16, memory_mib=64_000)


def after(*nodes: Node) -> Node:
    return replay([ev.NodeObserved(node=node, at_s=0.0) for node in nodes]).nodes["gpu2"]


def test_measuring_never_changes_what_a_person_declared() -> None:
    node = after(DECLARED, MEASURED)
    assert replace(node, gpus=(), cpus=1, memory_mib=1024) == DECLARED
    assert (node.gpus, node.cpus, node.memory_mib) == (MEASURED.gpus, 16, 64_000)


def test_declared_slots_are_kept_when_the_machine_is_measured() -> None:
    slots = (Gpu(index=0, type="slot"), Gpu(index=1, type="slot"))
    node = after(replace(DECLARED, gpus=slots, declared=("gpus",)), MEASURED)
    assert (node.gpus, node.cpus) == (slots, 16)


def test_declaring_a_machine_anew_keeps_what_was_measured() -> None:
    node = after(DECLARED, MEASURED, replace(DECLARED, rack="r2", lease_s=90))
    assert (node.rack, node.lease_s, node.cpus) == ("r2", 90, 16)


def test_a_machine_over_ssh_has_a_lease_and_says_how_it_is_reached() -> None:
    [event] = commands.add_node(replace(DECLARED, lease_s=0), now_s=1.0)
    assert isinstance(event, ev.NodeObserved)
    assert event.node.lease_s == LEASE_S
    with pytest.raises(Conflict, match="over SSH"):
        commands.add_node(replace(DECLARED, ssh=None), now_s=1.0)
