"""GPUs that a job holds and does not use: the measured values and the rules. `plan.idle` applies them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRules:
    """A GPU is idle while every measurement of its utilisation is below `below_percent`. Jobs with `may_idle: true`
    are left alone."""

    below_percent: float = 5.0  # utilisation that counts as none
    warn_after_s: float = 1800.0  # then lists, `explain`, metrics and notices say so; 0: never
    shrink_after_s: float = 0.0  # then a job that can be resized is limited to the GPUs it uses; 0: never
    suspend_after_s: float = 0.0  # with all its GPUs idle, a job that can be stopped is paused then; 0: never


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """The measured use of one GPU. `percent` None: the driver does not report it."""

    percent: float | None
    memory_mib: int
