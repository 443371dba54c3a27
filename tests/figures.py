"""Figures of benchmarks: compared with thresholds kept as data, and written down with machine and date.

`thresholds.json` (tests/perf) holds {"piece": {"figure": {"at_most": 0.25} or {"at_least": 30}}}. A figure that is not
listed is written down only. Results go to out/figures/<piece>.json, from where `docs/figures/` is filled.
"""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
THRESHOLDS = ROOT / "tests" / "perf" / "thresholds.json"
OUT = ROOT / "out" / "figures"


def record(piece: str, figures: dict[str, float]) -> None:
    """Write the figures down, then fail if one is beyond its threshold."""
    _write(piece, figures)
    limits: dict[str, dict[str, float]] = json.loads(THRESHOLDS.read_text()).get(piece, {})
    beyond = [text for name, value in figures.items() if (text := _beyond(name, value, limits.get(name, {})))]
    assert not beyond, "; ".join(beyond)


def _beyond(name: str, value: float, limit: dict[str, float]) -> str:
    if "at_most" in limit and value > limit["at_most"]:
        return f"{name} is {value:.4g}, at most {limit['at_most']} was promised"
    if "at_least" in limit and value < limit["at_least"]:
        return f"{name} is {value:.4g}, at least {limit['at_least']} was promised"
    return ""


def _write(piece: str, figures: dict[str, float]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{piece}.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    known.update(
        machine=f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}",
        date=time.strftime("%Y-%m-%d"),
    )
    known.setdefault("figures", {}).update(figures)
    path.write_text(json.dumps(known, indent=1, sort_keys=True))
    for name, value in figures.items():
        print(f"{piece}: {name} = {value:.4g}")
