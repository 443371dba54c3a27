"""The parts of a pass that daemon and simulator share: `question`, then `plan.cycle`, then `outcome`.

`sim.engine` calls the three in turn; `daemon.passes` runs a long `plan.cycle` outside its event loop. Both use the same
code, so that they decide alike. Pure: the caller commits the events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from swell.core.decision import Plan, Reason
from swell.core.events import Event
from swell.core.ids import JobId
from swell.core.snapshot import Options, Snapshot
from swell.core.state import State
from swell.plan.enact import events_of
from swell.plan.snapshotter import Snapshotter


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """All inputs of a decision, and the jobs that may not start although GPUs are free."""

    snapshot: Snapshot
    memory: Mapping[str, object]
    seed: int  # of the solvers' random numbers: the number of the last event
    held_back: Mapping[JobId, Reason]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The events to commit, and the time of the next deadline."""

    events: tuple[Event, ...]
    wake_s: float | None


def question(snapshotter: Snapshotter, state: State, now_s: float, options: Options) -> Question:
    snapshot, held_back = snapshotter.take(state, now_s, options)
    return Question(snapshot=snapshot, memory=state.policy_memory, seed=state.seq, held_back=held_back)


def outcome(asked: Question, plan: Plan, state: State, now_s: float) -> Outcome:
    """`state` and `now_s`: those when the plan is ready, which may be later than those of the question."""
    waits = [float(reason.detail["until_s"]) for reason in asked.held_back.values() if "until_s" in reason.detail]
    wakes = waits if plan.wake_s is None else [*waits, plan.wake_s]
    later = [wake_s for wake_s in wakes if wake_s > asked.snapshot.now_s]
    return Outcome(events=tuple(events_of(plan, state, now_s)), wake_s=min(later, default=None))
