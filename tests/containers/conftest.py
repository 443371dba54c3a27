from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.bench import ContainerBench
from containers.images import ours, podman


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ContainerBench]:
    """Whatever a test leaves behind fails it."""
    made = ContainerBench(tmp_path)
    yield made
    left = ours(**{"swell.cluster": made.settings.cluster_id})
    if left:
        podman("rm", "--force", "--time=0", *left)
    assert left == []
