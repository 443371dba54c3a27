"""A machine is added over HTTP: what is declared of it, what is refused, and how the stream of its checks ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from integration.api.conftest import Server
from swell.api.deps import Context
from swell.api.machines import LEAST_LEASE_S
from swell.core import events as ev
from swell.core.errors import Conflict
from swell.core.resources import Gpu, Node, Ssh
from swell.ports import Answer, Check, Verdict

FINE = Check(name="python", verdict=Verdict.OK, words="Python 3.12")
BAD = Check(name="disk", verdict=Verdict.FAILED, words="no space left", fix="make some")
BODY = {"name": "far", "host": "far.example"}


@dataclass
class FakeMachines:
    checks: tuple[Check, ...] = (FINE,)
    declared: list[Node] = field(default_factory=list)

    async def check(self, declared: Node) -> AsyncIterator[Check | Node]:
        self.declared.append(declared)
        for check in self.checks:
            yield check
        if BAD not in self.checks:
            yield declared

    async def clean(self, node: Node) -> Answer:
        raise NotImplementedError


@pytest.fixture
def machines(server: Server) -> FakeMachines:
    made = FakeMachines()
    context = server.app.state.context
    server.app.state.context = Context(engine=context.engine, config=context.config, machines=made)
    return made


def added(server: Server, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    answer = server.client.post("/v1/machines", json={**BODY, **more})
    assert answer.status_code == 200, answer.text
    messages = [text.split("\n") for text in answer.text.strip().split("\n\n")]
    return [(event.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for event, data in messages]


def refused(server: Server, **more: Any) -> str:
    answer = server.client.post("/v1/machines", json={**BODY, **more})
    assert answer.status_code == 409, answer.text
    return str(answer.json()["detail"])


def test_a_machine_that_no_check_failed_is_added_and_shown(server: Server, machines: FakeMachines) -> None:
    (check, told), (node, view), (end, last) = added(server, gpus=2)
    assert (check, told["name"], told["verdict"], told["words"]) == ("check", "python", "ok", "Python 3.12")
    assert (node, view["name"], len(view["gpus"])) == ("node", "far", 2)
    assert (end, last) == ("end", {"name": "far", "added": True, "why": ""})
    assert server.engine.state.nodes["far"] == machines.declared[0]


def test_one_that_a_check_failed_is_not_added_and_says_so(server: Server, machines: FakeMachines) -> None:
    machines.checks = (FINE, BAD)
    *checks, (end, last) = added(server)
    assert [(event, told["verdict"], told["fix"]) for event, told in checks] == [
        ("check", "ok", ""),
        ("check", "failed", "make some"),
    ]
    assert (end, last["name"], last["added"]) == ("end", "far", False)
    assert "far was not added" in last["why"]
    assert "far" not in server.engine.state.nodes


def test_one_that_the_engine_refuses_is_not_added_and_says_why(
    server: Server, machines: FakeMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Node) -> None:
        raise Conflict("there are too many")

    monkeypatch.setattr(server.engine, "add_node", refuse)
    assert added(server)[1:] == [("end", {"name": "far", "added": False, "why": "there are too many"})]


def test_everything_that_was_declared_is_what_is_checked(server: Server, machines: FakeMachines) -> None:
    added(
        server,
        user="me",
        port=2222,
        key_file="/keys/far",
        python="python3.12",
        root="/scratch",
        setup=["module load cuda"],
        labels={"zone": "east"},
        rack="r1",
        realm="hall",
        lease="30s",
        gpus=1,
    )
    (node,) = machines.declared
    assert node.ssh is not None
    assert node.ssh == Ssh(
        host="far.example",
        user="me",
        port=2222,
        key_file="/keys/far",
        config_host=node.ssh.config_host,
        python="python3.12",
        setup=("module load cuda",),
        root="/scratch",
    )
    assert (node.executor, node.labels, node.rack, node.realm) == ("ssh", {"zone": "east"}, "r1", "hall")
    assert (node.lease_s, node.gpus, node.declared) == (30.0, (Gpu(index=0),), ("gpus",))


def test_what_was_not_declared_is_left_to_the_machine(server: Server, machines: FakeMachines) -> None:
    added(server)
    (node,) = machines.declared
    assert (node.lease_s, node.gpus, node.declared) == (0.0, (), ())
    added(server, gpus=0)
    assert (machines.declared[1].gpus, machines.declared[1].declared) == ((), ("gpus",)), "none is a number too"


def test_a_machine_that_is_known_keeps_its_pinned_key(server: Server, machines: FakeMachines) -> None:
    known = Node(name="far", executor="ssh", ssh=Ssh(host="old.example", host_key="ssh-ed25519 AAAA"))
    server.engine.record(ev.NodeObserved(node=known, at_s=0.0))
    added(server)
    (node,) = machines.declared
    assert node.ssh is not None
    assert (node.ssh.host, node.ssh.host_key) == ("far.example", "ssh-ed25519 AAAA")


def test_the_name_of_a_node_that_is_not_reached_over_ssh_is_taken(server: Server, machines: FakeMachines) -> None:
    assert "there is a node here already" in refused(server, name="here")
    assert not machines.declared


def test_the_shortest_lease_may_be_given_and_none_below_it(server: Server, machines: FakeMachines) -> None:
    added(server, lease=f"{LEAST_LEASE_S:.0f}s")
    assert machines.declared[0].lease_s == LEAST_LEASE_S
    assert "a lease under 5 s" in refused(server, lease=f"{LEAST_LEASE_S - 1:.0f}s")


def test_a_daemon_that_reaches_no_machines_says_so(server: Server) -> None:
    assert refused(server) == "this daemon does not reach machines over SSH"
