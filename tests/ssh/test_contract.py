"""Every promise of an executor, kept on another machine over a real sshd: the suite of tests/contract on that bench."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import test_executor
from contract.test_executor import *  # noqa: F403
from ssh import machines
from ssh.bench import SshBench, new_machines
from ssh.machines import Machine


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Path]]:
    if why := machines.missing():
        pytest.skip(why)
    shared = tmp_path_factory.mktemp("far")
    with new_machines(shared) as new:
        yield new("gpu1"), shared


@pytest.fixture  # type: ignore[no-redef]  # in place of the suite's own
def bench(far: tuple[Machine, Path], tmp_path: Path) -> Iterator[SshBench]:
    machine, shared = far
    made = SshBench(shared / tmp_path.name, machine)
    yield made
    asyncio.run(test_executor._kill_everything(made))
