"""The settings of the job, read from its environment variables. Outside Swell all of them have harmless defaults.

Files of this directory run in whatever Python the training runs in (3.8 and later) and import nothing but it.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Mapping, NamedTuple  # noqa: UP035  collections.abc is not subscriptable at run time in 3.8


class Settings(NamedTuple):
    """Constant over the life of the process."""

    url: str = ""
    active_file: str = ""  # says where the daemon is, after another one has taken over
    run: str = ""
    token: str = ""
    launcher: str = ""
    checkpoint_dir: str = ""
    epochs_done: int = 0
    epochs: int = 0
    unit: str = ""  # what the job file counts in, if not in epochs: step, token or sample
    units: int = 0  # how many of them
    units_done: int = 0
    gpus: int = 0
    nodes: int = 1
    gpu_type: str = ""
    batch_size: int = 0
    local_batch: int = 0  # samples on one GPU at once, for a constant global batch; 0: it cannot be divided
    accumulation: int = 1  # micro-batches per step
    dataset_size: int = 0
    journal: str = ""  # where the run keeps its own record of epochs
    left_mark: str = ""  # set under launchers that hide exit codes: touch this file and leave with 0
    shared_gpu: bool = False
    adaptive_batch: bool = False

    def total_of(self, unit: str) -> int:
        """How many of `unit` the job file asks for; 0: unset."""
        return self.units if unit == self.unit else 0

    @property
    def inside(self) -> bool:
        """Whether Swell started this process."""
        return bool(self.url and self.run)


class Place(NamedTuple):
    """The rank of this process and the number of ranks."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    return Settings(
        url=environ.get("SWELL_URL", ""),
        active_file=environ.get("SWELL_ACTIVE_FILE", ""),
        run=environ.get("SWELL_RUN", ""),
        token=environ.get("SWELL_TOKEN", ""),
        launcher=environ.get("SWELL_LAUNCHER", ""),
        checkpoint_dir=environ.get("SWELL_CHECKPOINT_DIR", ""),
        epochs_done=number(environ, "SWELL_EPOCHS_DONE", number(environ, "EPOCHS_DONE")),
        epochs=number(environ, "SWELL_EPOCHS", number(environ, "EPOCHS_TO_BE_DONE")),
        unit=environ.get("SWELL_UNIT", ""),
        units=number(environ, "SWELL_UNITS"),
        units_done=number(environ, "SWELL_UNITS_DONE"),
        gpus=number(environ, "SWELL_GPUS"),
        nodes=number(environ, "SWELL_NODES", 1),
        gpu_type=environ.get("SWELL_GPU_TYPE", ""),
        batch_size=number(environ, "BATCH_SIZE"),
        local_batch=number(environ, "SWELL_LOCAL_BATCH"),
        accumulation=number(environ, "SWELL_ACCUMULATION", 1),
        dataset_size=number(environ, "TRAINING_SET_SIZE"),
        journal=environ.get("SWELL_JOURNAL", ""),
        left_mark=environ.get("SWELL_LEFT_MARK", ""),
        shared_gpu=environ.get("SWELL_SHARED_GPU") == "1",
        adaptive_batch=environ.get("SWELL_ADAPTIVE_BATCH") == "1",
    )


def number(environ: Mapping[str, str], name: str, default: int = 0) -> int:
    """A whole number from the environment; anything else counts as unset."""
    try:
        return int(environ.get(name, ""))
    except ValueError:
        return default


def read_place(environ: Mapping[str, str] = os.environ) -> Place:
    """This process among the others. Asked again at each epoch: Horovod renumbers, Lightning numbers late."""
    moving = _horovod()
    if moving is not None:
        return moving
    for rank, size, local in _FRAMEWORKS:
        if rank in environ:
            return Place(number(environ, rank), number(environ, size, 1), number(environ, local))
    if "TORCHELASTIC_RUN_ID" in environ or "SWELL_RANK" not in environ:
        return Place(number(environ, "RANK"), number(environ, "WORLD_SIZE", 1), number(environ, "LOCAL_RANK"))
    if environ.get("SWELL_LAUNCHER") in ("single", "per-node") and "LOCAL_RANK" in environ:
        return _started_by_the_script(environ)
    return Place(
        number(environ, "SWELL_RANK"), number(environ, "SWELL_WORLD_SIZE", 1), number(environ, "SWELL_LOCAL_RANK")
    )


_FRAMEWORKS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)


def _started_by_the_script(environ: Mapping[str, str]) -> Place:
    """Lightning itself starts one process per device and numbers them in the environment."""
    world, local = number(environ, "WORLD_SIZE", 1), number(environ, "LOCAL_RANK")
    per_node = max(1, world // max(1, number(environ, "SWELL_NODES", 1)))
    return Place(number(environ, "NODE_RANK") * per_node + local, world, local)


def _horovod() -> Place | None:
    """Horovod's own numbers, once it is initialised: they change while the job runs."""
    for name in ("horovod.torch", "horovod.tensorflow"):
        module: Any = sys.modules.get(name)
        if module is not None and module.is_initialized():
            return Place(module.rank(), module.size(), module.local_rank())
    return None
