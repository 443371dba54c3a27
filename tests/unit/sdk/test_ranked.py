"""Each process that mpirun starts has a RANK of its own, whichever MPI it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHOWS = "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK'])"
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"}


@pytest.mark.parametrize("env", [OPEN_MPI, MPICH], ids=["Open MPI", "MPICH"])
def test_the_command_finds_the_numbers_that_mpi_gave_it(env: dict[str, str]) -> None:
    """Also over what the launcher of all ranks has in its own environment."""
    argv = (sys.executable, "-m", "swell.sdk.ranked", sys.executable, "-c", SHOWS)
    done = subprocess.run(argv, env={**os.environ, "RANK": "0", **env}, capture_output=True, text=True, check=True)
    assert done.stdout == "3 4 1\n"


def test_a_command_that_is_not_there_is_named() -> None:
    argv = (sys.executable, "-m", "swell.sdk.ranked", "no-such-program")
    done = subprocess.run(argv, env={**os.environ, **OPEN_MPI}, capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert "cannot start no-such-program" in done.stderr
