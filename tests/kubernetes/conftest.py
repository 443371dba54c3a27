from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubernetes import cluster as clusters
from kubernetes.cluster import Cluster

_LEFT = "<(function _SelectorTransport|socket.socket)"
HANDSHAKES = f"ignore:Exception ignored in. {_LEFT}:pytest.PytestUnraisableExceptionWarning"
"""httpcore2 leaves the socket of a request that is cancelled in its TLS handshake to the garbage collector (start_tls
catches Exception, which a cancellation is not). On a busy machine that would be blamed on some later test."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(HANDSHAKES))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with clusters.running() as found:
        yield found
