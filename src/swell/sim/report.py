"""`swell sim report DIR`: what happened, as one HTML file that can be mailed; with `--pictures` also as SVG and PNG.

The page is the dashboard's own (`web/src/report.tsx`), built into one file, with comparison.json of `swell sim run`
written into it. Pictures are drawn from summary.json, jobs.csv and held.csv; only they need matplotlib (extra `sim`).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swell.core.errors import SwellError
from swell.sim.simulate_many import COMPARISON

Key = tuple[str, str]
"""(workload, policy)"""

BANDS = 40
"""The number of jobs with a colour of their own in the picture of GPUs over time; the others are grey."""
MARK = '<script type="application/json" id="results">null</script>'
"""Where the page takes its results from."""


@dataclass(frozen=True, slots=True)
class Change:
    at_s: float
    job: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Results:
    jobs: Mapping[Key, Sequence[Mapping[str, str]]]
    held: Mapping[Key, Sequence[Change]]
    gpus: Mapping[Key, int]


def report(directory: Path, template: Path) -> Path:
    """Write the page; returns where. `template`: the page without results, as the dashboard was built with."""
    _check(directory / COMPARISON, directory)
    if not template.is_file():
        raise SwellError(
            "this installation has no dashboard, which the page is a part of: install Node.js 20.19 or later and run "
            "`make web`, or install Swell again. `swell sim report --pictures` draws SVG and PNG without it"
        )
    results = (directory / COMPARISON).read_text(encoding="utf-8")
    page = directory / "report.html"
    page.write_text(page_of(template.read_text(encoding="utf-8"), results), encoding="utf-8")
    return page


def page_of(template: str, results: str) -> str:
    """`results` is JSON; a name of a job in it must not end the element that it stands in."""
    safe = results.replace("<", "\\u003c")
    before, mark, after = template.partition(MARK)
    if not mark:
        raise SwellError("the page of this installation cannot hold results; build it again with `make web`")
    return f"{before}{mark.replace('null', safe, 1)}{after}"


def draw(directory: Path) -> list[Path]:
    """Every picture as SVG and PNG; returns the SVGs."""
    _check(directory / "summary.json", directory)
    results = _read(directory)
    return [_save(directory, name, picture, results) for name, picture in PICTURES.items()]


def _check(path: Path, directory: Path) -> None:
    if not path.exists():
        raise SwellError(f"{directory} has no {path.name}; `swell sim run --out {directory} …` writes it")


def _read(directory: Path) -> Results:
    jobs: dict[Key, list[Mapping[str, str]]] = {}
    for row in _rows(directory / "jobs.csv"):
        jobs.setdefault((row["workload"], row["policy"]), []).append(row)
    held: dict[Key, list[Change]] = {}
    gpus: dict[Key, int] = {}
    for row in _rows(directory / "held.csv"):
        key = (row["workload"], row["policy"])
        held.setdefault(key, []).append(Change(float(row["at_s"]), int(row["job"]), int(row["gpus"])))
        gpus[key] = int(row["cluster_gpus"])
    return Results(jobs, held, gpus)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _label(key: Key, keys: Sequence[Key]) -> str:
    alone = len({workload for workload, _ in keys}) == 1
    return key[1] if alone else f"{key[1]} · {key[0]}"


def pyplot() -> Any:
    """matplotlib's, without a screen, and such that the same picture is the same file."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "swell"
    from matplotlib import pyplot as plt

    return plt


def _save(directory: Path, name: str, draw: Callable[[Any, Results], str], results: Results) -> Path:
    """One picture with its caption above, as SVG and PNG."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(10, 4.5), constrained_layout=True)
    axes.set_title(draw(axes, results), fontsize="small")
    path = directory / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=110, metadata={"Software": None})
    plt.close(figure)
    return path


def _distribution(axes: Any, results: Results, of: Callable[[Mapping[str, str]], float]) -> None:
    keys = list(results.jobs)
    for key, rows in results.jobs.items():
        values = sorted(map(of, rows))
        axes.step(values, [(i + 1) / len(values) for i in range(len(values))], where="post", label=_label(key, keys))
    axes.set(xscale="log", ylabel="part of the jobs")
    axes.legend(fontsize="small")


def _completion(axes: Any, results: Results) -> str:
    _distribution(axes, results, lambda row: float(row["jct_s"]) / 3600)
    axes.set(xlabel="completion time, hours")
    return "Completion times: the part of the jobs that took at most so long from submission to end."


def _fairness(axes: Any, results: Results) -> str:
    _distribution(axes, results, lambda row: float(row["rho"]))
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set(xlabel="finish-time fairness ρ")
    return "Finish-time fairness ρ: completion time over that of the job alone on its share; at most 1 is fair."


def _restarts(axes: Any, results: Results) -> str:
    keys = list(results.jobs)
    means = [sum(int(row["restarts"]) for row in rows) / len(rows) for rows in results.jobs.values()]
    axes.barh([_label(key, keys) for key in keys], means)
    axes.invert_yaxis()
    axes.set(xlabel="restarts per job")
    return "Restarts: how often a job was stopped and started again, on average."


def _steps(changes: Sequence[tuple[float, int]]) -> tuple[list[float], list[int]]:
    """A running sum of changes, one point a moment, in hours."""
    times: list[float] = []
    values: list[int] = []
    now = 0
    for at_s, change in sorted(changes):
        now += change
        if times and times[-1] == at_s / 3600:
            values[-1] = now
        else:
            times.append(at_s / 3600)
            values.append(now)
    return times, values


def _deltas(changes: Sequence[Change]) -> list[tuple[float, int]]:
    now: dict[int, int] = {}
    deltas: list[tuple[float, int]] = []
    for change in changes:
        deltas.append((change.at_s, change.gpus - now.get(change.job, 0)))
        now[change.job] = change.gpus
    return deltas


def _utilisation(axes: Any, results: Results) -> str:
    keys = list(results.held)
    for key, changes in results.held.items():
        times, values = _steps(_deltas(changes))
        axes.step(times, [v / results.gpus[key] for v in values], where="post", label=_label(key, keys), linewidth=0.8)
    axes.set(xlabel="hours", ylabel="part of the GPUs held", ylim=(0, 1.05))
    axes.legend(fontsize="small")
    return "Utilisation: the part of the cluster's GPUs that jobs hold."


def _queue(axes: Any, results: Results) -> str:
    keys = list(results.jobs)
    for key, rows in results.jobs.items():
        waits = [(float(row["submitted_s"]), 1) for row in rows]
        holding: dict[int, int] = {}
        for change in results.held.get(key, ()):
            before, after = holding.get(change.job, 0) > 0, change.gpus > 0
            waits.extend([(change.at_s, before - after)] if before != after else [])
            holding[change.job] = change.gpus
        waits.extend((float(row["ended_s"]), -1) for row in rows)
        times, values = _steps(waits)
        axes.step(times, values, where="post", label=_label(key, keys), linewidth=0.8)
    axes.set(xlabel="hours", ylabel="jobs that wait")
    axes.legend(fontsize="small")
    return "Queue: how many jobs wait (before their start, or stopped in between)."


def _by_job(axes: Any, results: Results) -> str:
    """GPUs over time by job, of the first simulation: one band for each of the jobs that held most."""
    key = next(iter(results.held))
    times = sorted({change.at_s for change in results.held[key]})
    index = {at_s: i for i, at_s in enumerate(times)}
    series: dict[int, list[tuple[int, int]]] = {}
    for change in results.held[key]:
        series.setdefault(change.job, []).append((index[change.at_s], change.gpus))
    rows = {job: _dense(points, len(times)) for job, points in series.items()}
    largest = sorted(rows, key=lambda job: -sum(rows[job]))[:BANDS]
    others = [sum(rows[job][i] for job in rows if job not in largest) for i in range(len(times))]
    hours = [at_s / 3600 for at_s in times]
    bands = [rows[job] for job in sorted(largest)] + [others]
    colours = [f"C{i % 10}" for i in range(len(largest))] + ["#bbbbbb"]
    axes.stackplot(hours, bands, colors=colours, step="post", linewidth=0)
    axes.set(xlabel="hours", ylabel="GPUs", ylim=(0, results.gpus[key]))
    return f"GPUs over time by job under {key[1]} on {key[0]}; the {len(largest)} largest in colour, the others grey."


def _dense(points: Sequence[tuple[int, int]], length: int) -> list[int]:
    values = [0] * length
    for (start, gpus), (end, _) in zip(points, [*points[1:], (length, 0)], strict=True):
        values[start:end] = [gpus] * (end - start)
    return values


PICTURES: Mapping[str, Callable[[Any, Results], str]] = {
    "completion": _completion,
    "gpus": _by_job,
    "queue": _queue,
    "utilisation": _utilisation,
    "fairness": _fairness,
    "restarts": _restarts,
}
