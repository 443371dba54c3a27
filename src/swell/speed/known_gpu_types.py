"""Relative training speeds of known GPU types: a rough prior until something is measured.

`speed.gpu_type_ratios` counts the table as one family; unknown types get an optimistic prior, so that they are tried.
"""

from __future__ import annotations

import re

KNOWN: tuple[tuple[str, float], ...] = (
    ("k80", 0.25),
    ("p4", 0.35),
    ("p100", 0.6),
    ("1080ti", 0.6),
    ("t4", 0.55),
    ("2080ti", 0.8),
    ("titanrtx", 0.85),
    ("rtx6000", 0.9),
    ("v100", 1.0),
    ("a10", 1.0),
    ("3090", 1.2),
    ("l4", 0.8),
    ("a40", 1.3),
    ("a6000", 1.3),
    ("4090", 1.9),
    ("l40", 1.7),
    ("a100", 2.2),
    ("h100", 4.0),
    ("h200", 4.4),
    ("b200", 7.0),
)
"""Mixed-precision training throughput against a V100, from public benchmarks, rounded."""
SPREAD = 0.5
"""Expected deviation of families from the table, as standard deviation of the logarithm."""
OPTIMISM = 1.0
"""For a job that has run (and all jobs of a family with adaptive batches), a type that its family has not tried is
assumed to be faster than expected by this many deviations, so that it is tried there once; after that it is
measured."""


def known_speed(gpu_type: str) -> float | None:
    """The speed of the table; None for an unknown type. The longest name contained in it counts (a100 is not a10)."""
    plain = re.sub(r"[^a-z0-9]", "", gpu_type.lower())
    found = [(len(name), speed) for name, speed in KNOWN if name in plain]
    return max(found)[1] if found else None


def prior_speed(gpu_type: str) -> float:
    """The speed of the table; 1.0 for an unknown type."""
    return known_speed(gpu_type) or 1.0
