"""What `make bench` measured of policies, as the tables and the picture of docs/figures/policies.md.

python tests/perf/policy_growth.py out/figures/policies.json docs/figures/policy-growth.svg
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swell.sim.report import pyplot

COUNTS = (1_250, 2_500, 5_000, 10_000)


def main(measured: Path, picture: Path) -> None:
    figures: Mapping[str, float] = json.loads(measured.read_text())["figures"]
    names = sorted(
        key.removesuffix("_p50_ms_at_10000_jobs") for key in figures if key.endswith("_p50_ms_at_10000_jobs")
    )
    print("| policy | p50 | p99 | p50 with all layers | " + " | ".join(f"{count:,} jobs" for count in COUNTS) + " |")
    print("|---|" + "---|" * (3 + len(COUNTS)))
    for name in names:
        keys = ("p50_ms", "p99_ms", "with_layers_p50_ms", *(f"p50_ms_at_{count}_jobs" for count in COUNTS))
        cells = (figures.get(f"{name}_{key}") for key in keys)
        print(f"| {name} | " + " | ".join("" if ms is None else f"{ms:.0f}" for ms in cells) + " |")
    draw(figures, names, picture)


def draw(figures: Mapping[str, float], names: list[str], picture: Path) -> None:
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(9, 5.5), constrained_layout=True)
    axes.set_prop_cycle(color=plt.get_cmap("tab20").colors)
    for place, name in enumerate(names):
        ms = [max(0.1, figures[f"{name}_p50_ms_at_{count}_jobs"]) for count in COUNTS]
        strong = {"color": "black", "linewidth": 2.5} if name == "swell" else {"linewidth": 1.3}
        axes.plot(COUNTS, ms, marker="os^D"[place % 4], label=name, **strong)
    label(axes)
    figure.savefig(picture, metadata={"Date": None})
    plt.close(figure)


def label(axes: Any) -> None:
    axes.set(xscale="log", yscale="log", xlabel="jobs, on 8,000 GPUs", ylabel="CPU ms of a decision, p50")
    axes.set_xticks(COUNTS, [f"{count:,}" for count in COUNTS])
    axes.minorticks_off()
    axes.axhline(100, color="grey", linestyle=":", linewidth=1)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", ncols=2)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
