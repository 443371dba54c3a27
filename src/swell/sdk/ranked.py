"""`python -m swell.sdk.ranked COMMAND…`: what mpirun starts for each rank, so that COMMAND finds RANK and WORLD_SIZE.

MPI numbers its processes in variables of its own (OMPI_COMM_WORLD_RANK, PMI_RANK). `torch.distributed` and scripts go
by RANK, WORLD_SIZE and LOCAL_RANK, so these are set from them. Then this process becomes COMMAND.
"""

from __future__ import annotations

import os
import sys

from swell.sdk.given import become, show_gpus
from swell.sdk.settings import read_place


def main(argv: list[str]) -> int:
    place = read_place()
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(place.rank), str(place.world_size)
    os.environ["LOCAL_RANK"] = str(place.local_rank)
    show_gpus()
    return become(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
