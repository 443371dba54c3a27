"""Every promise of an executor, kept with containers on this machine and on another one over a real sshd: the suite of
tests/contract on other benches. Processes pass it there, and in tests/ssh over a real sshd."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.bench import ContainerBench, FarContainerBench
from containers.far import load, with_podman
from containers.images import busybox
from contract import test_executor
from contract.test_executor import *  # noqa: F403
from ssh import machines
from ssh.bench import new_machines
from ssh.machines import Machine

pytestmark = pytest.mark.containers


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Path]]:
    """A machine with podman and its own storage, and a directory that has one path there and here."""
    if why := machines.missing():
        pytest.skip(why)
    shared = tmp_path_factory.mktemp("far")
    with new_machines(shared) as new:
        machine = with_podman(new, "able")
        load(machine, busybox())
        yield machine, shared


@pytest.fixture(params=["here", "sshd"])  # type: ignore[no-redef]  # in place of the suite's own
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ContainerBench]:
    if request.param == "here":
        made = ContainerBench(tmp_path)
    else:
        machine, shared = request.getfixturevalue("far")
        made = FarContainerBench(shared / tmp_path.name, machine)
    yield made
    asyncio.run(test_executor._kill_everything(made))
    made.settle()
    assert made.left() == []
