"""Machines over SSH, as fixtures. Everything here is marked `ssh` and skipped with a reason where there can be none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness import Daemon, daemon
from ssh import machines
from ssh.machines import Machine
from ssh.shell import Shell

HERE = Path(__file__).parent
_why_missing = cache(machines.missing)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.ssh)


@pytest.fixture(scope="session")
def user_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "id_ed25519"
    machines.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))
    return path


@pytest.fixture
def new_machine(tmp_path: Path, user_key: Path) -> Iterator[Callable[..., Machine]]:
    """Make a machine and switch it on: `new_machine("gpu1", gpus=4)`. All are gone after the test."""
    if why := _why_missing():
        pytest.skip(why)
    network = machines.network()
    numbers = itertools.count(1)

    def new(name: str = "", **options: Any) -> Machine:
        name = name or f"gpu{next(numbers)}"
        made = Machine(network, tmp_path / f"machine-{name}", name, key=user_key, **options)
        made.power_on()
        return made

    try:
        yield new
    finally:
        network.close()


@pytest.fixture
def three_machines(new_machine: Callable[..., Machine]) -> tuple[Machine, Machine, Machine]:
    """Of different size: gpu1 with four GPUs, gpu2 with two, gpu3 with one."""
    return new_machine("gpu1", gpus=4), new_machine("gpu2", gpus=2), new_machine("gpu3", gpus=1)


@pytest.fixture
def user_home(tmp_path: Path) -> Path:
    """A home directory with a ~/.ssh of its own, for the daemon and for `swell`."""
    (tmp_path / "user" / ".ssh").mkdir(parents=True, mode=0o700)
    return tmp_path / "user"


@pytest.fixture
def served(tmp_path: Path, user_home: Path) -> Iterator[Daemon]:
    """A daemon without GPUs of its own: what runs, runs on machines."""
    with daemon(tmp_path / "swell", gpus=0, env={"HOME": str(user_home), "SSH_AUTH_SOCK": ""}) as running:
        yield running


@pytest.fixture
def sh(served: Daemon, tmp_path: Path, user_home: Path) -> Shell:
    (tmp_path / "work").mkdir()
    return Shell(served.home, tmp_path / "work", {"HOME": str(user_home)})
