"""Hypothesis for all tests: the same examples at every run, so that a red run is red again; `SWELL_EXAMPLES` (set by
`make test-slow`) looks for new ones. Machines may be slow: time is not what these tests are about."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "swell",
    deadline=None,
    derandomize="SWELL_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("swell")
