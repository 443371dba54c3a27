"""A policy of one's own: the smallest jobs first, each with what it asks for, at most `per_team` of a team at a time.

Name this file in the configuration (`policy_files: [/path/to/smallest_first.py]`), then: swell policy smallest-first
"""

from __future__ import annotations

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
        running: dict[str, int] = {}
        for job in sorted(snapshot.jobs, key=lambda job: (job.requested, job.submitted_s, job.id)):
            running[job.team] = running.get(job.team, 0) + 1
            if running[job.team] <= most:
                chosen.append(job)
            else:
                reasons[job.id] = (Reason(code=ReasonCode.BEHIND, detail={"ahead": int(most), "first": chosen[0].id}),)
        grants, passed_over = give_in_order(chosen, Purse(snapshot.capacity), requested=True)
        return Decision(grants=grants, reasons=reasons, explain=passed_over, memory=memory)
