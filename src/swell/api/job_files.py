"""Where a job's files are, and how much of the disk they use. Reads the disk: called in a thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swell.config import Config
from swell.core.state import JobRecord
from swell.jobfile.files import unpacked_path
from swell.jobfile.outputs import disk_use


def files_view(record: JobRecord, config: Config) -> dict[str, Any]:
    own = config.work_dir / str(record.id)
    logs = [config.runs_dir / f"{record.id}.{attempt}" for attempt in range(1, record.attempts + 1)]
    return {
        "job": record.id,
        "directory": str(own / record.spec.workdir),
        "submitted": str(unpacked_path(config.files_dir, record.spec.files)) if record.spec.files else "",
        "working_copy": _use(own),
        "checkpoints": _use(config.checkpoints_dir / str(record.id)),
        "logs": {"path": str(config.runs_dir), "bytes": sum(disk_use(path).bytes for path in logs)},
    }


def _use(path: Path) -> dict[str, Any]:
    found = disk_use(path)
    return {"path": str(path), "files": found.files, "bytes": found.bytes}
