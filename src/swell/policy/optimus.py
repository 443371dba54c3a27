"""Optimus: minimums by submission, then each GPU to the job whose predicted remaining time it reduces most.

The remaining time is what `speed` predicts from the fitted convergence (epochs left) and the fitted speed; a step
from n to m GPUs is worth (rem/S(n) - rem/S(m)) / (m - n). Until no GPU is free or nobody gains. O(jobs + GPUs log
jobs). (Peng et al., Optimus: An efficient dynamic resource scheduler for deep learning clusters, EuroSys 2018.)
"""

from __future__ import annotations

from swell.core.decision import Decision
from swell.core.snapshot import JobView, Snapshot
from swell.policy.base import Memory, Purse, give_in_order, grow_best_first
from swell.policy.options import NO_OPTIONS
from swell.ports import Random


class Optimus:
    name = "optimus"
    elastic = True
    weighs_restarts = False
    OPTIONS = NO_OPTIONS

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        now_s = snapshot.now_s
        purse = Purse(snapshot.capacity)
        grants, explain = give_in_order(snapshot.jobs, purse, requested=False)

        def saved_s(job: JobView, speed: float, faster: float, gpus: int) -> float:
            return job.remaining_s(now_s) * (1.0 / (speed or 1e-9) - 1.0 / faster) / gpus

        grow_best_first(snapshot.jobs, grants, purse, saved_s)
        return Decision(grants=grants, explain=explain, memory=memory)
