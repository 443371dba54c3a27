"""What `swell show` says of a job's speed: by number of GPUs with what was measured, as bars; and the course of its
loss, its throughput and its use of GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swell.cli.pictures import bar, sparkline
from swell.cli.tables import short_count
from swell.jobfile.units import format_duration

BAR = 20
SPARK = 32
SIZES = 9
"""Lines of the picture at most."""
SHORT_S = 0.01
"""What takes less is counted per second."""
LOSSES = ("loss", "train_loss", "val_loss")


def speed_lines(speed: Mapping[str, Any], held: int, unit: str = "epoch") -> list[str]:
    """A line per number of GPUs: speed-up over one, efficiency, a bar, and where that is known from."""
    gpu_type, curve = _curve(speed)
    one = dict(curve).get(1) or (curve[0][1] / curve[0][0] if curve else 0.0)
    if one <= 0.0 or len(curve) < 2:
        return []
    measured = {point["gpus"]: point for point in speed["points"] if point["gpu_type"] == gpu_type}
    sizes = _chosen([size for size, _ in curve], {*measured, held})
    most = max(rate / one for _, rate in curve)
    lines = ["GPUS  SPEED-UP  EFFICIENCY"]
    for size, rate in curve:
        if size in sizes:
            up = rate / one
            known = _known(measured.get(size), speed["source"], unit) + (", has now" if size == held else "")
            lines.append(f"{size:>4}  {up:>7.2f}x  {up / size:>9.0%}   {bar(up / most, BAR):<{BAR}}  {known}")
    return lines


def _curve(speed: Mapping[str, Any]) -> tuple[str, list[tuple[int, float]]]:
    """Of the GPU type that most was measured on, else of the reference type."""
    curves = speed["curves"]
    epochs = {name: sum(p["epochs"] for p in speed["points"] if p["gpu_type"] == name) for name in curves}
    best = max(curves, key=lambda name: (epochs[name], name == speed["reference_type"]), default="")
    return best, [(int(size), float(rate)) for size, rate in curves.get(best, [])]


def _chosen(sizes: Sequence[int], always: set[int]) -> set[int]:
    """All if they are few; else powers of two, ends, and those of interest."""
    if len(sizes) <= SIZES:
        return set(sizes)
    powers = {size for size in sizes if size & (size - 1) == 0}
    return {size for size in sizes if size in powers or size in always or size in (sizes[0], sizes[-1])}


def _known(point: Mapping[str, Any] | None, source: str, unit: str) -> str:
    if point is None:
        return {"measured": "expected", "family": "as jobs like it", "prior": "a guess"}[source]
    count, each_s = int(point["epochs"]), float(point["epoch_s"])
    many = f"measured, {short_count(count)} {unit}{'' if count == 1 else 's'}"
    if 0.0 < each_s < SHORT_S:
        return f"{many}, {short_count(round(1.0 / each_s))} per s"
    return f"{many} of {format_duration(each_s) if each_s >= 10.0 else f'{each_s:.2g}s'}"


def loss_line(series: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """The course of the loss since the daemon started; empty if none was reported."""
    name = next((n for n in LOSSES if n in series), next((n for n in series if "loss" in n), ""))
    values = _values(series, name)
    if len(values) < 2:
        return ""
    return f"{sparkline(values, SPARK)}  {name} {values[0]:.4g} to {values[-1]:.4g}, least {min(values):.4g}"


def samples_line(series: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Throughput since the daemon started; empty if none was measured."""
    values = _values(series, "samples/s")
    return f"{_spark(values)}{short_count(round(values[-1]))} samples/s now" if values else ""


def gpu_use_line(series: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Utilisation and memory of its GPUs; empty where nobody measures them."""
    percents, memory = _values(series, "GPU utilisation (%)"), _values(series, "GPU memory (MiB)")
    if not percents or not memory:
        return ""
    return f"{_spark(percents)}{percents[-1]:.0f} % now, {memory[-1] / 1024:.1f} GiB on the fullest GPU"


def _values(series: Mapping[str, Sequence[Sequence[float]]], name: str) -> list[float]:
    return [float(value) for _, value in series.get(name, ())]


def _spark(values: Sequence[float]) -> str:
    return f"{sparkline(values, SPARK)}  " if len(values) > 1 else ""
