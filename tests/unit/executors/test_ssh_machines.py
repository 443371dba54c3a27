"""Machines over SSH as a person adds and removes them, without a network: the connection is the test's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from contract.executor_benches import RealClock
from swell.core.resources import Node, Ssh
from swell.executors.ssh import checks, machines
from swell.executors.ssh.executor import SshExecutor
from swell.executors.ssh.machines import SshMachines
from swell.executors.ssh.preparation import SshPreparation
from swell.executors.transport import Unreachable
from swell.ports import Answer, Check, Done, Verdict

PINNED = Ssh(host="gpu1", host_key="ssh-ed25519 AAAA")


class Connection:
    """Logged in under the name that ssh's own configuration has."""

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    def get_extra_info(self, name: str) -> str:
        return {"username": "ada"}[name]


def test_a_check_shows_the_name_that_it_logged_in_with_though_none_was_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[Connection | Unreachable] = [Connection(), Unreachable("the second login is not answered")]

    async def connect(_: Ssh) -> Connection:
        answer = answers.pop(0)
        if isinstance(answer, Unreachable):
            raise answer
        return answer

    async def all_of_them() -> list[Check | Node]:
        return [one async for one in SshMachines("c0ffee").check(Node(name="gpu1", ssh=PINNED))]

    monkeypatch.setattr(checks, "connect", connect)
    first, *_, last = asyncio.run(all_of_them())
    assert isinstance(first, Check)
    assert isinstance(last, Check)
    assert (first.verdict, first.words.startswith("logged in as ada at ")) == (Verdict.OK, True)
    assert (last.verdict, last.words) == (Verdict.FAILED, "the second login is not answered")


def test_a_machine_is_cleaned_where_it_was_and_of_this_cluster_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def clean(ssh: Ssh, cluster_id: str) -> Answer:
        asked.append((ssh, cluster_id))
        return Done()

    monkeypatch.setattr(machines, "clean_machine", clean)
    assert asyncio.run(SshMachines("c0ffee").clean(Node(name="gpu1", ssh=PINNED))) == Done()
    assert asked == [(PINNED, "c0ffee")]


def test_a_machine_that_was_removed_is_let_go_and_one_that_was_declared_anew_is_another(tmp_path: Path) -> None:
    def machine(name: str, port: int = 22) -> dict[str, Node]:
        return {name: Node(name=name, executor="ssh", ssh=replace(PINNED, host=name, port=port), lease_s=60.0)}

    async def never() -> Any:
        raise AssertionError

    preparation = SimpleNamespace(cluster_id="c0ffee", containers=SimpleNamespace(runtime=""))
    executor = SshExecutor(
        tmp_path, RealClock(), cast(SshPreparation, preparation), epoch=1, upstream=never, still_ours=never
    )
    executor.know(machine("gpu1") | machine("gpu2") | {"here": Node(name="here")})
    first, second = executor.place("gpu1"), executor.place("gpu2")
    executor.know(machine("gpu2", port=2222))
    with pytest.raises(Unreachable, match="no machine called gpu1"):
        executor.place("gpu1")
    again = executor.place("gpu2")
    assert again is not second
    executor.know(machine("gpu2", port=2222))
    assert executor.place("gpu2") is again
    executor.know(machine("gpu1") | machine("gpu2", port=2222))
    assert executor.place("gpu1") is not first
