"""Every promise of an executor, kept with containers on this machine and through an agent: the suite of tests/contract
on other benches. Processes, here and through an agent, pass it there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.bench import ContainerBench, FarContainerBench
from containers.images import ours
from contract import test_executor
from contract.test_executor import *  # noqa: F403

pytestmark = pytest.mark.containers


@pytest.fixture(params=[ContainerBench, FarContainerBench])  # type: ignore[no-redef]  # in place of the suite's own
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ContainerBench]:
    made: ContainerBench = request.param(tmp_path)
    yield made
    asyncio.run(test_executor._kill_everything(made))
    made.settle()
    assert ours(**{"swell.cluster": made.settings.cluster_id}) == []
