"""Settings of all tests.

Hypothesis: the same examples at every run, so that a red run is red again; `SWELL_EXAMPLES` (set by `make test-slow`)
looks for new ones. Machines may be slow: time is not what these tests are about.

A second chance: CI sets `SWELL_SECOND_CHANCE`, and a test at an edge (real servers, clocks, browsers on a shared
machine) that fails is run once more. CI names each of them at its end: it is a defect to be traced. What proves an
invariant (unit, property, contract, faults, chaos) has no second chance.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

EDGES = frozenset({"containers", "integration", "kubernetes", "ssh", "torch", "web"})

settings.register_profile(
    "swell",
    deadline=None,
    derandomize="SWELL_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("swell")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "SWELL_SECOND_CHANCE" not in os.environ:
        return
    tests = Path(__file__).parent
    for item in items:
        if item.path.relative_to(tests).parts[0] in EDGES and not item.get_closest_marker("chaos"):
            item.add_marker(pytest.mark.flaky(reruns=1))
