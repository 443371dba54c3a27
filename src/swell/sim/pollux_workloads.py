"""Reader of workloads in the format of Pollux and Sia. `sim.simulate` calls it; see docs/how-to/simulate.md."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from swell.core.errors import SwellError
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.sim.profiles import Application
from swell.sim.workload import Arrival, Workload

ADAPTIVE_FIXED = {"ncf": 32768}
"""Applications whose batch size is never adapted, as in the published runs."""


def read_pollux(path: Path, apps: Mapping[str, Application], *, adaptive: bool, gpus: Mapping[str, int]) -> Workload:
    """A workload of the Pollux or Sia project: name, time, application, num_replicas, batch_size.

    `gpus` are those of the cluster, by type."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    missing = {"name", "time", "application", "num_replicas", "batch_size"} - set(rows[0] if rows else ())
    if missing:
        raise SwellError(f"{path} lacks the columns {', '.join(sorted(missing))}; is it a workload of Pollux or Sia?")
    arrivals = tuple(
        Arrival(at_s=float(row["time"]), spec=_pollux_spec(row, apps, adaptive, gpus, path)) for row in rows
    )
    return Workload(name=path.stem, arrivals=arrivals).sorted()


def _pollux_spec(
    row: Mapping[str, str], apps: Mapping[str, Application], adaptive: bool, gpus: Mapping[str, int], path: Path
) -> JobSpec:
    app = apps.get(row["application"])
    if app is None:
        raise SwellError(f"{path}: no profile of {row['application']!r}; there are: {', '.join(sorted(apps))}")
    adapts = adaptive and app.name not in ADAPTIVE_FIXED
    batch = ADAPTIVE_FIXED.get(app.name, 0) if adaptive else int(row["batch_size"])
    most = max(1, min(app.max_gpus(batch, gpus), max(gpus.values())))
    return JobSpec(
        name=row["name"],
        command=("python", "train.py", app.name),
        env={"application": app.name},
        gpus=GpuRequest(min=1, max=most, start=min(most, int(row["num_replicas"]))),
        epochs=app.epochs,
        batch_size=batch,
        adaptive_batch=adapts,
        family=app.name if adaptive else f"{app.name}/{batch}",
        launcher=Launcher.PER_GPU,
        uses_library=True,
    )
