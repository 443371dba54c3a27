from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubernetes import cluster as clusters
from kubernetes.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with clusters.running() as found:
        yield found
