"""Directories of jobs on the daemon's machine: which there are, what is copied out of them, what is deleted from them.

Called by `serve` (and `executor_setup` for the paths). A job's files on other machines are their executors' affair.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path

from swell.config import Config
from swell.core.containers import outside
from swell.core.errors import NotFound, SwellError
from swell.core.events import CopiedOutputs
from swell.core.state import JobRecord
from swell.daemon.clock import SystemClock
from swell.daemon.engine import Engine
from swell.daemon.far_outputs import bring_outputs
from swell.jobfile import files, outputs

log = logging.getLogger(__name__)

SWEEP_S = 3600.0
COPIES = "copies"
"""Below the shared directory: copies of checkpoints of jobs on other machines."""


def job_dirs(config: Config) -> tuple[Path, ...]:
    return config.work_dir, config.checkpoints_dir, config.shared_dir / COPIES, config.runs_dir.parent / "set-aside"


def checkpoint_dir(config: Config, record: JobRecord) -> Path:
    """Where a script without the library saves: in SWELL_CHECKPOINT_DIR if it uses that, else in the directory that
    its user named."""
    inside = config.work_dir / str(record.id) / record.spec.workdir / record.spec.checkpoint_dir
    named = Path(outside(record.spec, str(inside)))
    own = named / str(record.id)
    return own if own.is_dir() and any(own.iterdir()) else named


async def sweep_snapshots(config: Config, engine: Engine, clock: SystemClock) -> None:
    """Every hour, deletes snapshots of working files that no pending or running job needs and that are older than
    `snapshot_keep_days`."""
    while True:
        jobs = engine.state.jobs
        needed = frozenset(jobs[job].spec.files for job in engine.state.active)
        before_s = clock.now_s() - config.snapshot_keep_days * 86400.0
        try:
            swept = await asyncio.to_thread(files.sweep, config.files_dir, needed, before_s)
        except OSError as error:
            log.warning("old working files could not be deleted: %s", error)
        else:
            if swept:
                log.info("deleted %d snapshots of working files that no job needs", len(swept))
        await asyncio.sleep(SWEEP_S)


async def collect_outputs(config: Config, engine: Engine, record: JobRecord) -> CopiedOutputs:
    """Copies the files that an ended job's `outputs` names into the directory that its user asked for."""
    spec = record.spec
    submitted = files.unpacked_path(config.files_dir, spec.files) / spec.workdir if spec.files else None
    try:
        order = await engine.latest_order(record.id)
        if next(iter(order.nodes.values())).executor == "local":
            own = config.work_dir / str(record.id) / spec.workdir
            return await asyncio.to_thread(_deliver_outputs, record, own, submitted)
        with tempfile.TemporaryDirectory(prefix=".outputs-", dir=config.home) as folder:
            await bring_outputs(engine.files, order, submitted, Path(folder))
            return await asyncio.to_thread(_deliver_outputs, record, Path(folder), submitted)
    except (OSError, NotFound) as error:
        problem = f"they could not be brought from where it ran ({error}); `swell fetch {record.id}` tries again"
        return CopiedOutputs(into=spec.outputs_to, problem=problem)


def _deliver_outputs(record: JobRecord, directory: Path, submitted: Path | None) -> CopiedOutputs:
    spec = record.spec
    name, target = f"{spec.name}-{record.id}", Path(spec.outputs_to)
    try:
        into, names, size = outputs.deliver(directory, spec.outputs, target, name, submitted)
    except SwellError as error:
        return CopiedOutputs(into=spec.outputs_to, problem=str(error))
    nothing = "" if names else f"no file that it wrote matches {' or '.join(spec.outputs)}"
    return CopiedOutputs(into=str(into), files=len(names), bytes=size, problem=nothing)
