"""`python -m swell.sdk.ranked COMMAND…`: what mpirun starts for each rank, so that COMMAND finds RANK and WORLD_SIZE.

MPI numbers its processes in variables of its own (OMPI_COMM_WORLD_RANK, PMI_RANK). `torch.distributed` and scripts go
by RANK, WORLD_SIZE and LOCAL_RANK, so these are set from them. Then this process becomes COMMAND.
"""

from __future__ import annotations

import os
import sys

from swell.sdk.settings import read_place

MISSING = 127


def main(argv: list[str]) -> int:
    place = read_place()
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(place.rank), str(place.world_size)
    os.environ["LOCAL_RANK"] = str(place.local_rank)
    try:
        os.execvp(argv[0], argv)  # noqa: S606  no shell: it is the job's own command
    except OSError as error:
        print(f"swell: cannot start {argv[0]}: {error.strerror}. Is it on each of the machines?", file=sys.stderr)
    return MISSING


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
