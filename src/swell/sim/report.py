"""`swell sim report DIR`: what happened, as one HTML page with its pictures, which are also there as PNG and SVG.

Reads summary.json, jobs.csv and held.csv as `swell sim run` wrote them; matplotlib is imported only here (extra `sim`).
"""

from __future__ import annotations

import csv
import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swell.core.errors import SwellError
from swell.sim.simulate_many import read_summary

Key = tuple[str, str]
"""(workload, policy)"""

FIGURES = ("mean_jct_s", "median_jct_s", "p99_jct_s", "makespan_s", "restarts_per_job", "gpu_hours_per_job")
FAIRNESS = ("mean_rho", "worst_rho", "rho_above_1", "wall_s")
BANDS = 40
"""So many jobs have a colour of their own in the picture of GPUs over time; the others are grey."""
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.25rem .7rem;text-align:right;"
    "border-bottom:1px solid #ddd}td:first-child,td:nth-child(2),th:first-child,th:nth-child(2){text-align:left}"
    "img{max-width:100%}figure{margin:1.5rem 0}figcaption{color:#555}"
)


@dataclass(frozen=True, slots=True)
class Change:
    at_s: float
    job: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Results:
    summaries: Sequence[Mapping[str, object]]
    jobs: Mapping[Key, Sequence[Mapping[str, str]]]
    held: Mapping[Key, Sequence[Change]]
    gpus: Mapping[Key, int]


def report(directory: Path) -> Path:
    """Draw everything; returns the page."""
    if not (directory / "summary.json").exists():
        raise SwellError(f"{directory} holds no results; `swell sim run --out {directory} …` writes some")
    results = _read(directory)
    pictures = [_save(directory, name, draw, results) for name, draw in PICTURES.items()]
    page = directory / "report.html"
    page.write_text(_page(results, pictures), encoding="utf-8")
    return page


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
    return Results(read_summary(directory), jobs, held, gpus)


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


def _save(directory: Path, name: str, draw: Callable[[Any, Results], str], results: Results) -> tuple[str, str]:
    """(file, caption) of one picture, written as SVG and PNG."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(10, 4.5), constrained_layout=True)
    caption = draw(axes, results)
    figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
    figure.savefig(directory / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)
    return f"{name}.svg", caption


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


def _page(results: Results, pictures: Sequence[tuple[str, str]]) -> str:
    columns = ("workload", "policy", "batch", *FIGURES, *FAIRNESS)
    head = "".join(f"<th>{html.escape(column.replace('_', ' '))}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(figures.get(column))}</td>" for column in columns) + "</tr>"
        for figures in results.summaries
    )
    shown = "".join(
        f'<figure><img src="{name}" alt="{text}"><figcaption>{text}</figcaption></figure>'
        for name, text in ((name, html.escape(caption)) for name, caption in pictures)
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Simulation</title><style>{STYLE}</style>'
        f"<h1>Simulation</h1><table><tr>{head}</tr>{body}</table>{shown}</html>\n"
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
    return html.escape(str(value if value is not None else ""))
