"""A daemon whose operator lets jobs run in containers, and what the tests ask of it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from containers.images import OPTIONS, ours, podman
from harness import Daemon, daemon, eventually


def write_config(home: Path, sources: tuple[str, ...] = (), **more: object) -> None:
    home.mkdir(parents=True, exist_ok=True)
    said = {"container_options": list(OPTIONS), "container_mounts": list(sources), "container_shm_mib": 64, **more}
    (home / "config.yaml").write_text(json.dumps(said))


@contextlib.contextmanager
def serving(home: Path, *sources: str, gpus: int = 2, **config: object) -> Iterator[Daemon]:
    """Ends with nothing of it left: no process, no container."""
    write_config(home, sources, **config)
    with daemon(home, gpus=gpus) as served:
        try:
            yield served
        finally:
            left = containers_of(home)
            if left:
                podman("rm", "--force", "--time=0", *left)


def containers_of(home: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(home / "swell.db")) as database:
        (cluster,) = database.execute("SELECT cluster_id FROM writer").fetchone()
    return ours(**{"swell.cluster": cluster})


def ended(served: Daemon, job: int, within_s: float = 60.0) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def over() -> bool:
        found.update(served.get(f"/v1/jobs/{job}"))
        return found["state"] in ("completed", "failed", "cancelled", "lost")

    eventually(over, within_s, what=f"job {job} ends", every_s=0.1)
    return found


def log_of(home: Path, job: int, attempt: int = 1, rank: int = 0) -> str:
    return (home / "runs" / f"{job}.{attempt}" / str(rank) / "log").read_text()
