"""A policy of one's own: the smallest jobs first, each with what it asks for, at most `per_team` of a team at a time.

Name this file in the configuration (`policy_files: [/path/to/smallest_first.py]`), then: swell policy smallest-first
"""

from __future__ import annotations

from collections import Counter

from swell.core.decision import Decision, Reason, ReasonCode
from swell.core.ids import JobId
from swell.core.snapshot import JobView, Snapshot
from swell.policy.base import Memory, Purse, give_in_order
from swell.policy.options import Option, number
from swell.ports import Random

OPTIONS = {"per_team": Option(default=1000, low=1, doc="jobs of one team that run at a time")}


class SmallestFirst:
    name = "smallest-first"
    elastic = False
    OPTIONS = OPTIONS

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        most = number(snapshot, OPTIONS, "per_team")
        chosen: list[JobView] = []
        reasons: dict[JobId, tuple[Reason, ...]] = {}
        running = Counter(job.team for job in snapshot.served)
        for job in sorted(snapshot.jobs, key=lambda job: (job.requested, job.submitted_s, job.id)):
            if running[job.team] < most:
                running[job.team] += 1
                chosen.append(job)
            else:
                first = next(other.id for other in (*snapshot.served, *chosen) if other.team == job.team)
                reasons[job.id] = (Reason(code=ReasonCode.BEHIND, detail={"ahead": int(most), "first": first}),)
        grants, passed_over = give_in_order(chosen, Purse(snapshot.capacity), requested=True)
        return Decision(grants=grants, reasons=reasons, explain=passed_over, memory=memory)
