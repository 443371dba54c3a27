"""Each worker of horovodrun and mpirun sees the GPUs that its run has on its machine, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ELSEWHERE = "192.0.2.1"  # an address for documentation: nobody's
SHOWS = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"


def shown(script: Path, noted: str, module: str = "given") -> str:
    words = [] if module == "ranked" else [str(script)]
    argv = (sys.executable, "-m", f"swell.sdk.{module}", *words, sys.executable, "-c", SHOWS)
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "7", "SWELL_HOST_GPUS": noted}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout.strip()


def test_a_worker_that_comes_with_a_resize_sees_the_gpu_that_came_with_it(tmp_path: Path) -> None:
    """It saw those of the start only: its rank had no device."""
    script = tmp_path / "discovery"
    script.write_text("#!/bin/sh\n# gpus localhost=3,0\necho localhost:2\n", encoding="ascii")
    assert shown(script, "localhost=3") == "3,0"


@pytest.mark.parametrize("module", ["given", "ranked"])
def test_a_worker_on_another_machine_sees_that_machines(tmp_path: Path, module: str) -> None:
    """horovodrun handed on those of its own machine, and mpirun none, which shows all of them."""
    assert shown(tmp_path / "absent", f"{ELSEWHERE}=0,1 127.0.0.1=2", module) == "2"


def test_what_is_not_known_is_left_as_it_is(tmp_path: Path) -> None:
    assert shown(tmp_path / "absent", f"{ELSEWHERE}=0") == "7"
