"""Which end of which job another one waits for, and when that end can never come."""

import pytest

from swell.core import events as ev
from swell.core.dependencies import impossible, unmet
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Part
from swell.core.state import State


def ended(how: str) -> State:
    """Job 1, as it ended; empty: it has not."""
    run = RunId(1, 1)
    events: list[ev.Event] = [ev.JobSubmitted(job=1, spec=JobSpec(name="one", command=("true",)), at_s=0.0)]
    if how == "cancelled":
        events.append(ev.JobCancelled(job=1, at_s=1.0))
    elif how:
        reason = {"completed": ev.ExitReason.FINISHED, "failed": ev.ExitReason.USER_ERROR}[how]
        allocation = Allocation(parts=(Part(node="n", gpus=(0,)),), gpu_type="gpu")
        events += [ev.RunPlanned(run=run, allocation=allocation, at_s=1.0)]
        events += [ev.RunEnded(run=run, reason=reason, at_s=2.0)]
    return replay(events)


@pytest.mark.parametrize("field", ["depends_on", "after_any", "after_failure"])
@pytest.mark.parametrize("how", ["", "completed", "failed", "cancelled"])
def test_a_job_waits_until_the_end_it_needs(field: str, how: str) -> None:
    spec = JobSpec(name="two", command=("true",), **{field: (1,)})  # type: ignore[arg-type]
    state = ended(how)
    wanted = {"depends_on": ("completed",), "after_failure": ("failed", "cancelled")}.get(field)
    runs = bool(how) and (wanted is None or how in wanted)
    assert (not unmet(spec, state) and not impossible(spec, state)) is runs
    assert bool(impossible(spec, state)) is (bool(how) and not runs)


def test_a_job_that_ended_long_ago_is_no_obstacle() -> None:
    spec = JobSpec(name="two", command=("true",), depends_on=(7,), after_any=(8,), after_failure=(9,))
    assert unmet(spec, State()) == []
    assert impossible(spec, State()) == ""
