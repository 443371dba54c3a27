"""Machines over SSH as a person adds and removes them, without a network: the connection is the test's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from swell.core.resources import Node, Ssh
from swell.executors.ssh import checks, machines
from swell.executors.ssh.machines import SshMachines
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
