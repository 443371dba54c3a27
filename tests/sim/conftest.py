"""Public workloads beside the repository (../shared or $SWELL_SHARED); tests that need them are skipped without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    shared = Path(os.environ.get("SWELL_SHARED") or Path(__file__).parents[3] / "shared")
    if not (shared / "data" / "pollux").is_dir():
        pytest.skip("the public workloads are not here: set SWELL_SHARED to the directory that holds data/")
    return shared / "data"
