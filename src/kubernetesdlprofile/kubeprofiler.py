"""`KubeProfiler` as its submission guide describes it, over Swell's in-job library.

What the original did badly is done well underneath: ranks stop together, before an epoch and with an exit code of their
own, nothing blocks, an epoch counts only once its checkpoint code has run, and it works outside a scheduler too.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Mapping  # noqa: UP035  runs in old Pythons

from swell import sdk


class KubeProfiler:
    """Attributes hold what the scheduler gave and what the user said; call the methods where the guide says."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Arguments (hosts of the original's services) are accepted and not needed."""
        environ = os.environ
        self._run = sdk.current()
        self.JOBID = environ.get("JOB_UUID", "local")
        self.PROFILE_EACH = _int(environ, "HEARTBEAT_FREQ", 10)
        self.RANK = _int(environ, "NODE_RANK", 0)
        self.LOCAL_RANK = _int(environ, "LOCAL_RANK", -1)
        self.NODE_LIST = environ.get("NODELIST", "localhost")
        self.NUM_GPUS = _int(environ, "NUM_GPUS", 1)
        self.NUM_NODES = _int(environ, "NUM_NODES", 1)
        self.RESERVED_MEM = _int(environ, "RESERVED_MEM", 0)
        self.EPOCHS_DONE = self._run.resume_at
        self.RESTARTED = environ.get("JOB_RESTARTED", "FALSE").upper() != "FALSE" or self.EPOCHS_DONE > 0
        self.BATCH_SIZE = _int(environ, "BATCH_SIZE", 0)
        self.EPOCHS = _int(environ, "EPOCHS_TO_BE_DONE", 0)
        self.TRAINING_SET_SIZE = _int(environ, "TRAINING_SET_SIZE", 0)
        self.root_dir = str(self._run.checkpoint_dir)
        self.ckpt_path = self._newest_checkpoint() if self.RESTARTED else None
        per_step = self.BATCH_SIZE * max(1, self.NUM_GPUS) * self.NUM_NODES
        self.iterationPerEpoch = self.TRAINING_SET_SIZE // per_step if per_step else 0
        self.maxIterations = self.iterationPerEpoch * self.EPOCHS
        self.iterations = 0
        self.epoch = self.EPOCHS_DONE
        self.start_epoch_time = self.end_epoch_time = 0.0

    @property
    def mean_iteration_duration(self) -> float:
        return self._run.step_s

    @property
    def has_to_stop(self) -> bool:
        """A stop is on its way; the library leaves by itself at the next `start_epoch`."""
        return self._run.stopping

    def start_epoch(self) -> None:
        """Leaves the process here when the run is to stop: the checkpoint of the last epoch is written by now."""
        self._run.start_epoch()
        self.start_epoch_time = time.time()

    def measure(self) -> None:
        self._run.measure()
        self.iterations += 1

    def end_epoch(self) -> None:
        self._run.end_epoch()
        self.end_epoch_time = time.time()
        self.epoch += 1

    def end(self) -> None:
        """Training is over. Not needed: the end of the process says the same."""
        self._run.finish()

    def _newest_checkpoint(self) -> str:
        """Lightning's newest file of its newest version; else where the guide's TensorFlow script saves."""
        root = Path(self.root_dir)
        versions = sorted(root.glob("lightning_logs/version_*"), key=lambda path: int(path.name.rpartition("_")[2]))
        for version in reversed(versions):
            files = sorted((version / "checkpoints").glob("*"), key=lambda path: path.stat().st_mtime)
            if files:
                return str(files[-1])
        return str(root / ("tf_ckpts" if not (root / "tf_ckpt").exists() else "tf_ckpt"))


def _int(environ: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(environ[name])
    except (KeyError, ValueError):
        return default
